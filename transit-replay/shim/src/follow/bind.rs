//! Which live allocation stands for which allocation of the plan, readable on the launch path
//! without a lock: one record of atomics per plan allocation, written by the ledger.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use transit_format::plan::model::Range;

/// No live allocation.
pub(crate) const UNBOUND: u32 = u32::MAX;

#[derive(Debug)]
struct Record {
    live: AtomicU32,
    /// Odd while the fields change.
    turn: AtomicU32,
    address: AtomicU64,
    bytes: AtomicU64,
}

/// The live allocations standing for the plan's.
#[derive(Debug)]
pub(crate) struct Bindings {
    records: Box<[Record]>,
    unconfirmed: AtomicBool,
}

impl Bindings {
    /// `count` unbound plan allocations.
    pub(crate) fn new(count: usize) -> Self {
        let empty = || Record {
            live: AtomicU32::new(UNBOUND),
            turn: AtomicU32::new(0),
            address: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let records = (0..count).map(|_| empty()).collect();
        Self {
            records,
            unconfirmed: AtomicBool::new(false),
        }
    }

    /// Id of the live allocation bound to plan allocation `alloc`, or [`UNBOUND`].
    pub(crate) fn live(&self, alloc: u32) -> u32 {
        let record = self.records.get(alloc as usize);
        record.map_or(UNBOUND, |record| record.live.load(Ordering::Relaxed))
    }

    /// The address range that `range` means now; `None` if its allocation is unbound, changes at
    /// this moment, or is too small for it.
    pub(crate) fn resolve(&self, range: &Range) -> Option<(u64, u64)> {
        let record = self.records.get(range.alloc as usize)?;
        let turn = record.turn.load(Ordering::Acquire);
        let live = record.live.load(Ordering::Acquire);
        let address = record.address.load(Ordering::Acquire);
        let bytes = record.bytes.load(Ordering::Acquire);
        if turn % 2 == 1 || record.turn.load(Ordering::Acquire) != turn || live == UNBOUND {
            return None;
        }
        let end = range.offset.checked_add(range.bytes)?;
        if end > bytes || range.bytes == 0 {
            return None;
        }
        Some((address.checked_add(range.offset)?, range.bytes))
    }

    /// Whether some binding still waits for its use to confirm it.
    pub(crate) fn unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// A binding was made that only its use can confirm.
    pub(super) fn mark_unconfirmed(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    /// Nothing more to learn from use until the next binding.
    pub(crate) fn mark_settled(&self) {
        self.unconfirmed.store(false, Ordering::Relaxed);
    }

    /// Binds plan allocation `alloc` (`live` = [`UNBOUND`] takes the binding away). One writer at
    /// a time: the ledger, under its own lock.
    pub(super) fn set(&self, alloc: u32, live: u32, address: u64, bytes: u64) {
        let Some(record) = self.records.get(alloc as usize) else {
            return;
        };
        record.turn.fetch_add(1, Ordering::AcqRel);
        record.live.store(live, Ordering::Release);
        record.address.store(address, Ordering::Release);
        record.bytes.store(bytes, Ordering::Release);
        record.turn.fetch_add(1, Ordering::AcqRel);
    }
}
