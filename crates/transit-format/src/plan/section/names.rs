//! Sections 3 and 4: function names, and their bytes.
//!
//! ```text
//!  0  8  FNV-1a hash of the name (see `name_hash`)
//!  8  4  first byte in section 4
//! 12  4  bytes
//! ```
//!
//! Section 4 is UTF-8; the names divide it among them in order.

use zerocopy::little_endian::{U32, U64};

use super::{Division, Fault, record, small, wrong};
use crate::error::Error;
use crate::plan::name_hash;
use crate::plan::view::slice_of;

record! {
    /// A function name.
    pub NameRecord, 16 {
        0 hash: U64,
        8 first_byte: U32,
        12 bytes: U32,
    }
}

impl NameRecord {
    /// FNV-1a hash of the name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(in crate::plan) fn span(&self) -> (usize, usize) {
        (self.first_byte.get() as usize, self.bytes.get() as usize)
    }
}

/// Both sections.
pub(in crate::plan) fn encode(names: &[String]) -> Result<(Vec<NameRecord>, Vec<u8>), Error> {
    let mut bytes = Vec::new();
    let mut records = Vec::with_capacity(names.len());
    for name in names {
        records.push(NameRecord {
            hash: name_hash(name.as_bytes()).into(),
            first_byte: small("names", bytes.len())?.into(),
            bytes: small("names", name.len())?.into(),
        });
        bytes.extend_from_slice(name.as_bytes());
    }
    Ok((records, bytes))
}

/// Checks one record against the bytes it takes.
pub(in crate::plan) fn check(
    record: &NameRecord,
    bytes: &[u8],
    division: &mut Division,
) -> Result<(), Fault> {
    division.take(record.span())?;
    let name = slice_of(bytes, record.span());
    if std::str::from_utf8(name).is_err() {
        return wrong("not UTF-8".to_owned());
    }
    if name_hash(name) != record.hash() {
        return wrong("the hash does not match the name".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn wrong_hashes_and_stretches_are_damage() {
        for (at, value) in [(0, 1), (8, 1), (12, 4_000), (16 + 8, 0)] {
            assert_eq!(
                refused(Kind::Names, |bytes| set(bytes, at, value)),
                "damaged names"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_damage() {
        assert_eq!(
            refused(Kind::NameBytes, |bytes| bytes[0] = 0xff),
            "damaged names"
        );
        assert_eq!(
            refused(Kind::NameBytes, |bytes| bytes.push(b'x')),
            "damaged name bytes"
        );
    }
}
