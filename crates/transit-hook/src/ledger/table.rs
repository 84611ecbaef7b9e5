//! From an address to a slot without a lock: one 32-bit cell per 2 MiB of address space, in a
//! mapping without reserved memory, so only the parts in use cost anything. Cells hold a slot's
//! number plus one. Allocations that share a granule are chained through their slots.
//!
//! A launch needs only which allocation and where in it. For granules that lie wholly within one, that
//! stands in a second cell, of 64 bits, so that nearly every pointer costs one load.
//!
//! Edits are made by one thread at a time (the ledger's lock); readers never wait. A slot carries a
//! version, odd while it is edited or empty: a reader that meets an edit sees a miss, never a
//! mixture.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;

use transit_format::ids::AllocId;

use super::Found;

/// Bits of an address inside a granule: 2 MiB, the driver's chunk.
const GRANULE_BITS: u32 = 21;
/// Bits of a user-space address (x86-64 has 47, aarch64 48).
const ADDRESS_BITS: u32 = 48;
const GRANULES: usize = 1 << (ADDRESS_BITS - GRANULE_BITS);
const GRANULE_BYTES: u64 = 1 << GRANULE_BITS;
/// Managed allocations alive at once at most; more are left alone.
pub(super) const SLOTS: usize = 1 << 17;
/// Neighbours in one granule looked at before giving up.
const MOST_HOPS: usize = 4096;

#[derive(Default)]
struct Slot {
    version: AtomicU32,
    alloc: AtomicU32,
    base: AtomicU64,
    bytes: AtomicU64,
    device: AtomicU32,
    converted: AtomicU32,
    /// Next slot in the chain of the first granule.
    next_first: AtomicU32,
    /// Next slot in the chain of the last granule, if that is another one.
    next_last: AtomicU32,
}

impl Slot {
    fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    fn first(&self) -> u64 {
        self.base() >> GRANULE_BITS
    }

    fn last(&self) -> u64 {
        (self.base() + self.bytes.load(Ordering::Relaxed).max(1) - 1) >> GRANULE_BITS
    }

    /// What was put into it.
    fn range(&self) -> Range {
        Range {
            alloc: AllocId(self.alloc.load(Ordering::Relaxed)),
            base: self.base(),
            bytes: self.bytes.load(Ordering::Relaxed),
            device: self.device.load(Ordering::Relaxed),
            converted: self.converted.load(Ordering::Relaxed) != 0,
        }
    }

    /// The link that continues the chain of a granule.
    fn next(&self, granule: u64) -> Option<&AtomicU32> {
        if granule == self.first() {
            Some(&self.next_first)
        } else if granule == self.last() {
            Some(&self.next_last)
        } else {
            None
        }
    }
}

/// What an insertion needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) alloc: AllocId,
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) device: u32,
    pub(super) converted: bool,
}

impl Range {
    /// The granules that lie wholly within the range and what their cells of 64 bits say: the first
    /// granule and the allocation. None where the range does not begin with a granule.
    fn whole(&self) -> (core::ops::Range<u64>, u64) {
        let first = self.base >> GRANULE_BITS;
        let cell = first << 32 | u64::from(self.alloc.0);
        if first == 0 || !self.base.is_multiple_of(GRANULE_BYTES) {
            return (0..0, cell);
        }
        (first..(self.base + self.bytes) >> GRANULE_BITS, cell)
    }
}

/// The table. Edits need `&mut Free`, which lives under the ledger's lock.
pub(super) struct Table {
    /// By granule, number plus one of the first slot of its chain. `None`: no room for it.
    chains: Option<&'static [AtomicU32; GRANULES]>,
    /// By granule, see [`Range::whole`]; else 0. `None`: no room for it, or for the chains.
    pub(super) whole: Option<&'static [AtomicU64; GRANULES]>,
    slots: &'static [Slot; SLOTS],
    lowest: AtomicU64,
    highest: AtomicU64,
    used: AtomicU32,
}

/// Slots to use again, oldest first.
#[derive(Debug, Default)]
pub(super) struct Free(VecDeque<u32>);

impl Table {
    /// Maps the table. Without room for the cells of 64 bits, look-ups follow chains, without room for
    /// those too they walk the slots: slower, still right. `None` if not even the slots can be had.
    pub(super) fn new(with_granules: bool) -> Option<Self> {
        let chains = if with_granules { map() } else { None };
        Some(Self {
            chains,
            whole: chains.and_then(|_| map()),
            slots: map()?,
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
            used: AtomicU32::new(0),
        })
    }

    /// Whether no range can hold `address`.
    #[inline]
    fn outside(&self, address: u64) -> bool {
        address < self.lowest.load(Ordering::Relaxed)
            || address >= self.highest.load(Ordering::Relaxed)
    }

    /// The allocation that holds `address`, and the address' offset within it.
    #[inline(always)]
    pub(super) fn locate(&self, address: u64) -> Option<(AllocId, u64)> {
        if self.outside(address) {
            return None;
        }
        // Below the end of all ranges, an address has a granule.
        let granule = place(address >> GRANULE_BITS) % GRANULES;
        let whole = self.whole.and_then(|whole| whole.get(granule));
        let cell = whole.map_or(0, |cell| cell.load(Ordering::Acquire));
        if cell == 0 {
            return self.locate_by_chain(address);
        }
        let base = cell >> 32 << GRANULE_BITS;
        let id = u32::try_from(cell & u64::from(u32::MAX)).unwrap_or(0);
        Some((AllocId(id), address - base))
    }

    #[cold]
    fn locate_by_chain(&self, address: u64) -> Option<(AllocId, u64)> {
        self.find(address).map(|found| (found.alloc, found.offset))
    }

    /// The live range that holds `address`.
    pub(super) fn find(&self, address: u64) -> Option<Found> {
        if self.outside(address) {
            return None;
        }
        let Some(chains) = self.chains else {
            return self.find_by_walking(address);
        };
        let granule = address >> GRANULE_BITS;
        let chain = chains.get(place(granule))?;
        let mut number = chain.load(Ordering::Acquire);
        for _ in 0..MOST_HOPS {
            let slot = self.slot(number)?;
            if let Some(found) = read(slot, address) {
                return Some(found);
            }
            number = slot.next(granule)?.load(Ordering::Acquire);
        }
        None
    }

    fn find_by_walking(&self, address: u64) -> Option<Found> {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.slots
            .iter()
            .take(used)
            .find_map(|slot| read(slot, address))
    }

    fn slot(&self, number: u32) -> Option<&'static Slot> {
        self.slots.get((number as usize).checked_sub(1)?)
    }

    /// Adds a range and returns its slot's number; `None` if there is no slot left or the range
    /// lies beyond the table.
    pub(super) fn insert(&self, free: &mut Free, range: Range) -> Option<u32> {
        let end = range.base.checked_add(range.bytes)?;
        if end >> ADDRESS_BITS != 0 || range.bytes == 0 {
            return None;
        }
        let number = self.take_slot(free)?;
        let slot = self.slot(number)?;
        slot.alloc.store(range.alloc.0, Ordering::Relaxed);
        slot.base.store(range.base, Ordering::Relaxed);
        slot.bytes.store(range.bytes, Ordering::Relaxed);
        slot.device.store(range.device, Ordering::Relaxed);
        slot.converted
            .store(u32::from(range.converted), Ordering::Relaxed);
        slot.next_first.store(0, Ordering::Relaxed);
        slot.next_last.store(0, Ordering::Relaxed);
        slot.version.fetch_add(1, Ordering::Release);
        if let Some(chains) = self.chains {
            for granule in slot.first()..=slot.last() {
                let Some(cell) = chains.get(place(granule)) else {
                    break;
                };
                if let Some(next) = slot.next(granule) {
                    next.store(cell.load(Ordering::Relaxed), Ordering::Release);
                }
                cell.store(number, Ordering::Release);
            }
            let (whole, says) = range.whole();
            for cell in self.whole_cells(whole) {
                cell.store(says, Ordering::Release);
            }
        }
        self.lowest.fetch_min(range.base, Ordering::Release);
        self.highest.fetch_max(end, Ordering::Release);
        Some(number)
    }

    /// The cells of 64 bits of some granules.
    fn whole_cells(
        &self,
        granules: core::ops::Range<u64>,
    ) -> impl Iterator<Item = &'static AtomicU64> {
        let whole = self.whole.map(|whole| whole.as_slice()).unwrap_or(&[]);
        granules.map_while(|granule| whole.get(place(granule)))
    }

    fn take_slot(&self, free: &mut Free) -> Option<u32> {
        let used = self.used.load(Ordering::Relaxed);
        if (used as usize) < SLOTS {
            // An empty slot has an odd version.
            self.slot(used + 1)?.version.store(1, Ordering::Release);
            self.used.store(used + 1, Ordering::Release);
            return Some(used + 1);
        }
        free.0.pop_front()
    }

    /// Removes the range in a slot. Slots are used again only when all others are, so that a
    /// reader on its way through a chain does not meet a new tenant.
    pub(super) fn remove(&self, free: &mut Free, number: u32) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        if let Some(chains) = self.chains {
            for granule in slot.first()..=slot.last() {
                let Some(cell) = chains.get(place(granule)) else {
                    break;
                };
                match slot.next(granule) {
                    // Another's by now, where the free of this range was not seen.
                    None if cell.load(Ordering::Relaxed) != number => {}
                    None => cell.store(0, Ordering::Release),
                    Some(next) => self.unlink(cell, granule, number, next),
                }
            }
            let (whole, says) = slot.range().whole();
            for cell in self.whole_cells(whole) {
                // As above.
                if cell.load(Ordering::Relaxed) == says {
                    cell.store(0, Ordering::Release);
                }
            }
        }
        slot.version.fetch_add(1, Ordering::AcqRel);
        free.0.push_back(number);
    }

    fn unlink(&self, cell: &AtomicU32, granule: u64, number: u32, next: &AtomicU32) {
        let mut link = cell;
        for _ in 0..=SLOTS {
            let here = link.load(Ordering::Relaxed);
            if here == number {
                link.store(next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            let Some(following) = self.slot(here).and_then(|slot| slot.next(granule)) else {
                return;
            };
            link = following;
        }
    }
}

/// The slot's range if it holds `address` and was not edited meanwhile.
#[inline]
fn read(slot: &Slot, address: u64) -> Option<Found> {
    let version = slot.version.load(Ordering::Acquire);
    let base = slot.base.load(Ordering::Relaxed);
    let bytes = slot.bytes.load(Ordering::Relaxed);
    let offset = address.wrapping_sub(base);
    if version & 1 == 1 || offset >= bytes {
        return None;
    }
    let found = Found {
        alloc: AllocId(slot.alloc.load(Ordering::Relaxed)),
        base,
        bytes,
        offset,
        device: slot.device.load(Ordering::Relaxed),
        converted: slot.converted.load(Ordering::Relaxed) != 0,
    };
    core::sync::atomic::fence(Ordering::Acquire);
    (slot.version.load(Ordering::Relaxed) == version).then_some(found)
}

fn place(granule: u64) -> usize {
    usize::try_from(granule).unwrap_or(usize::MAX)
}

/// Zeroed items in a mapping of their own that reserves no memory.
fn map<T, const COUNT: usize>() -> Option<&'static [T; COUNT]> {
    let bytes = COUNT.checked_mul(size_of::<T>())?;
    // SAFETY: a new private anonymous mapping; nothing existing is touched.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is `bytes` long, zeroed, page-aligned and never unmapped; `T` is made of
    // atomics, for which zero is a value.
    Some(unsafe { &*start.cast::<[T; COUNT]>() })
}
