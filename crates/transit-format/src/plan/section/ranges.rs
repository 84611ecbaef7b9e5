//! Sections 10 and 12: stretches of allocations, those of steps and those on the device when a
//! steady iteration starts.
//!
//! ```text
//!  0  8  offset within the allocation, bytes
//!  8  8  length in bytes, at least 1; the end lies within the allocation
//! 16  4  allocation in section 5
//! 20  4  0
//! ```

use zerocopy::little_endian::{U32, U64};

use super::allocs::AllocRecord;
use super::{Fault, record, wrong};
use crate::plan::model::Range;

record! {
    /// A stretch of an allocation.
    pub RangeRecord, 24 {
        0 offset: U64,
        8 bytes: U64,
        16 alloc: U32,
        20 reserved: U32,
    }
}

impl RangeRecord {
    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> Range {
        Range {
            alloc: self.alloc(),
            offset: self.offset(),
            bytes: self.bytes(),
        }
    }

    /// Index of the allocation.
    #[must_use]
    pub fn alloc(&self) -> u32 {
        self.alloc.get()
    }

    /// Offset within it, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Length in bytes, at least 1; offset + bytes lies within the allocation.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(in crate::plan) fn new(range: &Range) -> Self {
        Self {
            offset: range.offset.into(),
            bytes: range.bytes.into(),
            alloc: range.alloc.into(),
            reserved: 0.into(),
        }
    }
}

/// Checks one record.
pub(in crate::plan) fn check(range: &RangeRecord, allocs: &[AllocRecord]) -> Result<(), Fault> {
    let size = allocs.get(range.alloc() as usize).map(AllocRecord::bytes);
    let end = range.offset().checked_add(range.bytes());
    let within = size.zip(end).is_some_and(|(size, end)| end <= size);
    if within && range.bytes() > 0 {
        return Ok(());
    }
    wrong(format!(
        "bytes {} + {} of allocation {} ({size:?} bytes)",
        range.offset(),
        range.bytes(),
        range.alloc()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn ranges_outside_their_allocation_are_damage() {
        for (at, value) in [(4, u32::MAX), (8, 0), (8, 5 << 20), (12, u32::MAX), (16, 2)] {
            let refusal = refused(Kind::StepRanges, |bytes| set(bytes, at, value));
            assert_eq!(refusal, "damaged step ranges", "field at {at}");
            let refusal = refused(Kind::StartResident, |bytes| set(bytes, at, value));
            assert_eq!(refusal, "damaged start resident", "field at {at}");
        }
    }

    #[test]
    fn an_end_past_all_numbers_is_damage() {
        let all = |bytes: &mut Vec<u8>| bytes[..16].fill(0xff);
        assert_eq!(refused(Kind::StepRanges, all), "damaged step ranges");
    }
}
