//! Section 5: allocations the plan speaks of, as they were when recorded.
//!
//! ```text
//!  0  8  size, bytes
//!  8  4  ordinal among the process's tracked allocations
//! 12  4  turn among those of this size
//! 16  4  device
//! 20  4  0
//! ```

use zerocopy::little_endian::{U32, U64};

use super::record;
use crate::plan::model::PlanAlloc;

record! {
    /// An allocation.
    pub AllocRecord, 24 {
        0 bytes: U64,
        8 ordinal: U32,
        12 turn: U32,
        16 device: U32,
        20 reserved: U32,
    }
}

impl AllocRecord {
    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> PlanAlloc {
        PlanAlloc {
            ordinal: self.ordinal.get(),
            turn: self.turn.get(),
            bytes: self.bytes.get(),
            device: self.device.get(),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(in crate::plan) fn new(alloc: &PlanAlloc) -> Self {
        Self {
            bytes: alloc.bytes.into(),
            ordinal: alloc.ordinal.into(),
            turn: alloc.turn.into(),
            device: alloc.device.into(),
            reserved: 0.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_returns() {
        let alloc = PlanAlloc {
            ordinal: 1,
            turn: u32::MAX,
            bytes: u64::MAX,
            device: 3,
        };
        assert_eq!(AllocRecord::new(&alloc).get(), alloc);
    }
}
