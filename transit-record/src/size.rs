//! Sizes as people write them.

use bytesize::ByteSize;

/// `80GiB`, `80GB` (decimal) or plain bytes.
///
/// # Errors
/// Says what a size looks like.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("`{text}` is no size; write it like 80GiB, 512MiB or 4096"))
}

/// What a card moves at once, and the least that can be one.
const CHUNK_BYTES: u64 = 2 << 20;

/// The size of a card to impose; 0 stands for none. A number of bytes below one chunk is a size
/// whose unit was forgotten.
///
/// # Errors
/// Says what a size looks like.
pub(crate) fn card_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        few @ 1..CHUNK_BYTES => Err(format!(
            "a card of {few} bytes holds nothing; write the unit, as in {few}GiB"
        )),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(bytes("80GiB"), Ok(80 << 30));
        assert_eq!(bytes("2 MB"), Ok(2_000_000));
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(card_bytes("16GiB"), Ok(16 << 30));
        assert_eq!(card_bytes("0"), Ok(0));
        assert!(card_bytes("16").unwrap_err().contains("16GiB"));
        assert!(bytes("big").unwrap_err().contains("80GiB"));
    }
}
