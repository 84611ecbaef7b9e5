//! Section 8: managed pointers of ops.
//!
//! ```text
//!  0  8  offset within the allocation, bytes; at most its size
//!  8  4  allocation in section 5
//! 12  4  0
//! ```

use zerocopy::little_endian::{U32, U64};

use super::allocs::AllocRecord;
use super::{Fault, record, wrong};

record! {
    /// A pointer of an op.
    pub PointerRecord, 16 {
        0 offset: U64,
        8 alloc: U32,
        12 reserved: U32,
    }
}

impl PointerRecord {
    /// Index of the allocation pointed into.
    #[must_use]
    pub fn alloc(&self) -> u32 {
        self.alloc.get()
    }

    /// Offset within it, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    pub(in crate::plan) fn new((alloc, offset): &(u32, u64)) -> Self {
        Self {
            offset: (*offset).into(),
            alloc: (*alloc).into(),
            reserved: 0.into(),
        }
    }
}

/// Checks one record. One past the end is a pointer that a kernel may well be given.
pub(in crate::plan) fn check(pointer: &PointerRecord, allocs: &[AllocRecord]) -> Result<(), Fault> {
    let bytes = allocs.get(pointer.alloc() as usize).map(AllocRecord::bytes);
    if bytes.is_some_and(|bytes| pointer.offset() <= bytes) {
        return Ok(());
    }
    wrong(format!(
        "byte {} of allocation {} ({bytes:?})",
        pointer.offset(),
        pointer.alloc()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn pointers_outside_their_allocation_are_damage() {
        for (at, value) in [(4, 1), (8, 2)] {
            assert_eq!(
                refused(Kind::Pointers, |bytes| set(bytes, at, value)),
                "damaged pointers"
            );
        }
    }
}
