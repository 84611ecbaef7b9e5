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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(bytes("80GiB"), Ok(80 << 30));
        assert_eq!(bytes("2 MB"), Ok(2_000_000));
        assert_eq!(bytes("0"), Ok(0));
        assert!(bytes("big").unwrap_err().contains("80GiB"));
    }
}
