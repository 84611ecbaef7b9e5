//! Every allocation, by base address (for frees) and by any address inside (for the launch path).
//! Frees are matched to what was allocated; the counters saturate and never go below zero.

mod table;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use transit_format::ids::AllocId;

use crate::log;
use crate::observer::Allocation;
use table::{Free, Range, Table};

/// Bytes by kind of memory, in the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Converted bytes alive.
    pub converted_bytes: u64,
    /// Highest sum of converted bytes alive at once.
    pub converted_peak_bytes: u64,
    /// Unconverted device bytes alive (small or excluded requests, pools, VMM, arrays).
    pub unconverted_bytes: u64,
    /// Highest sum of unconverted bytes alive at once.
    pub unconverted_peak_bytes: u64,
    /// The job's own managed bytes alive.
    pub job_managed_bytes: u64,
    /// Frees of addresses never seen at allocation.
    pub unknown_frees: u64,
    /// Managed allocations left out because the table was full.
    pub untracked: u64,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The allocation.
    pub alloc: AllocId,
    /// Base address of it.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
    /// The address' offset within it.
    pub offset: u64,
    /// CUDA device ordinal.
    pub device: u32,
    /// Converted by us (else the job's own managed memory).
    pub converted: bool,
}

/// A sum that remembers its highest value and does not go below zero.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Sum {
    pub(crate) const fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        let before = update(&self.now, |now| now.saturating_add(bytes));
        self.peak
            .fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        update(&self.now, |now| now.saturating_sub(bytes));
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

fn update(cell: &AtomicU64, change: impl Fn(u64) -> u64) -> u64 {
    cell.try_update(Ordering::AcqRel, Ordering::Relaxed, |now| Some(change(now)))
        .unwrap_or_default()
}

/// What an allocation is kept as, under the lock.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) allocation: Allocation,
    slot: Option<u32>,
}

#[derive(Debug, Default)]
struct Books {
    by_base: BTreeMap<u64, Entry>,
    free: Free,
}

/// The ledger: one in the process, more in tests.
pub(crate) struct Ledger {
    table: Table,
    books: Mutex<Books>,
    next_id: AtomicU32,
    converted: Sum,
    unconverted: Sum,
    job_managed: Sum,
    unknown_frees: AtomicU64,
    untracked: AtomicU64,
}

/// Where an allocation ends; it takes a byte at least.
fn end_of(allocation: &Allocation) -> u64 {
    allocation.address.saturating_add(allocation.bytes.max(1))
}

impl Books {
    /// The entries that lie, with a byte at least, where `allocation` is now.
    fn in_place_of(&self, allocation: &Allocation) -> Vec<u64> {
        let base = allocation.address;
        let reaches_in = |(_, entry): &(&u64, &Entry)| end_of(&entry.allocation) > base;
        // Entries do not overlap.
        let before = self.by_base.range(..base).next_back().filter(reaches_in);
        let within = self.by_base.range(base..end_of(allocation));
        before
            .into_iter()
            .chain(within)
            .map(|(base, _)| *base)
            .collect()
    }
}

impl Ledger {
    pub(crate) fn new(with_granules: bool) -> Option<Self> {
        Some(Self {
            table: Table::new(with_granules)?,
            books: Mutex::default(),
            next_id: AtomicU32::new(0),
            converted: Sum::default(),
            unconverted: Sum::default(),
            job_managed: Sum::default(),
            unknown_frees: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sum_of(&self, allocation: &Allocation) -> &Sum {
        match (allocation.converted, allocation.managed) {
            (true, _) => &self.converted,
            (false, true) => &self.job_managed,
            (false, false) => &self.unconverted,
        }
    }

    /// Enters an allocation, giving it its number. Also returns what lay there before, leftovers of
    /// frees that we did not see: the driver gives no address twice.
    pub(crate) fn insert(&self, mut allocation: Allocation) -> (Allocation, Vec<Allocation>) {
        let mut books = self.books();
        allocation.id = AllocId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let stale = self.enter(&mut books, allocation.clone());
        (allocation, stale)
    }

    fn enter(&self, books: &mut Books, allocation: Allocation) -> Vec<Allocation> {
        let mut stale = Vec::new();
        for base in books.in_place_of(&allocation) {
            if let Some(entry) = books.by_base.remove(&base) {
                self.forget(books, &entry);
                stale.push(entry.allocation);
            }
        }
        let slot = if allocation.managed {
            let range = Range {
                alloc: allocation.id,
                base: allocation.address,
                bytes: allocation.bytes,
                device: allocation.device,
                converted: allocation.converted,
            };
            let slot = self.table.insert(&mut books.free, range);
            if slot.is_none() {
                self.untracked.fetch_add(1, Ordering::Relaxed);
            }
            slot
        } else {
            None
        };
        self.sum_of(&allocation).add(allocation.bytes);
        books
            .by_base
            .insert(allocation.address, Entry { allocation, slot });
        stale
    }

    /// Takes out every allocation of a context that is gone, in the order they were made.
    pub(crate) fn remove_of(&self, context: usize) -> Vec<Allocation> {
        let mut books = self.books();
        let of_context = |entry: &Entry| context != 0 && entry.allocation.context == context;
        let found: Vec<u64> = books
            .by_base
            .iter()
            .filter(|(_, entry)| of_context(entry))
            .map(|(base, _)| *base)
            .collect();
        let mut gone = Vec::new();
        for base in found {
            if let Some(entry) = books.by_base.remove(&base) {
                self.forget(&mut books, &entry);
                gone.push(entry.allocation);
            }
        }
        gone.sort_unstable_by_key(|allocation| allocation.id.0);
        gone
    }

    fn forget(&self, books: &mut Books, entry: &Entry) {
        if let Some(slot) = entry.slot {
            self.table.remove(&mut books.free, slot);
        }
        self.sum_of(&entry.allocation).sub(entry.allocation.bytes);
    }

    /// The allocation at a base address.
    pub(crate) fn at_base(&self, base: u64) -> Option<Allocation> {
        self.books()
            .by_base
            .get(&base)
            .map(|entry| entry.allocation.clone())
    }

    /// Takes out the allocation at a base address.
    pub(crate) fn remove(&self, base: u64) -> Option<Allocation> {
        let mut books = self.books();
        let entry = books.by_base.remove(&base)?;
        self.forget(&mut books, &entry);
        Some(entry.allocation)
    }

    /// Counts a free of an address that was never seen at allocation.
    pub(crate) fn unknown_free(&self) {
        self.unknown_frees.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        self.table.find(address)
    }

    /// The allocation that holds `address` and the offset within it: all that a launch needs.
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64) -> Option<(AllocId, u64)> {
        self.table.locate(address)
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            converted_bytes: self.converted.now(),
            converted_peak_bytes: self.converted.peak(),
            unconverted_bytes: self.unconverted.now(),
            unconverted_peak_bytes: self.unconverted.peak(),
            job_managed_bytes: self.job_managed.now(),
            unknown_frees: self.unknown_frees.load(Ordering::Relaxed),
            untracked: self.untracked.load(Ordering::Relaxed),
        }
    }

    /// Device bytes that are no `cuMemAlloc` (pools, VMM, arrays).
    pub(crate) fn other_device_bytes(&self) -> &Sum {
        &self.unconverted
    }
}

static LEDGER: OnceLock<Ledger> = OnceLock::new();

/// Maps the process' ledger.
pub(crate) fn start() -> Result<&'static Ledger, &'static str> {
    let made = Ledger::new(true).ok_or("no address space for the ledger of allocations")?;
    if made.table.whole.is_none() {
        log::complain(format_args!(
            "little address space (ulimit -v?): looking pointers up takes each launch longer"
        ));
    }
    Ok(LEDGER.get_or_init(|| made))
}

/// The process' ledger; `None` before it goes live.
#[inline]
pub(crate) fn get() -> Option<&'static Ledger> {
    LEDGER.get()
}

/// The live managed allocation (converted or the job's own) that holds `address`. Lock-free.
#[must_use]
#[inline]
pub fn find(address: u64) -> Option<Found> {
    get()?.find(address)
}

/// Counters now.
#[must_use]
pub fn counters() -> Counters {
    get().map(Ledger::counters).unwrap_or_default()
}
