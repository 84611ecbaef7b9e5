//! The emulated card: which 2 MiB chunks a smaller card would hold, first in first out by last
//! migration. A pure model: it is told what moved and says what must leave. Recorder, planner and
//! simulator follow the same rule (design section 4).

use std::collections::{HashMap, VecDeque};

use transit_format::ids::AllocId;

/// Bytes in a chunk: what the driver moves and evicts at once.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// One chunk of an allocation. Chunks are aligned in address space, as the driver's are, so chunk
/// `n` of an allocation is the one at `(base >> 21) + n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chunk {
    /// The allocation.
    pub alloc: AllocId,
    /// Which of its chunks.
    pub index: u32,
}

/// The chunks on an emulated card, oldest migration first.
#[derive(Debug)]
pub struct EmulatedCard {
    capacity_chunks: u64,
    clock: u64,
    /// Clock of each resident chunk's last migration.
    resident: HashMap<Chunk, u64>,
    /// Chunks in order of migration; an entry whose clock is not the resident one is stale.
    order: VecDeque<(Chunk, u64)>,
    peak_chunks: u64,
}

impl EmulatedCard {
    /// A card that holds `capacity_bytes`, rounded down to whole chunks. 0 holds nothing.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_chunks: capacity_bytes / CHUNK_BYTES,
            clock: 0,
            resident: HashMap::new(),
            order: VecDeque::new(),
            peak_chunks: 0,
        }
    }

    /// Changes the size: what else lies on the card grows and shrinks. Takes effect at the next
    /// [`Self::take_evictions`].
    pub fn set_capacity(&mut self, capacity_bytes: u64) {
        self.capacity_chunks = capacity_bytes / CHUNK_BYTES;
    }

    /// Data of a chunk came to the card: it is now the youngest.
    pub fn migrated_in(&mut self, alloc: AllocId, index: u32) {
        let chunk = Chunk { alloc, index };
        self.clock += 1;
        self.resident.insert(chunk, self.clock);
        self.order.push_back((chunk, self.clock));
        self.peak_chunks = self.peak_chunks.max(self.resident_chunks());
        self.compact();
    }

    /// A whole chunk left the card (an eviction, a prefetch to the host, a fault of the host's).
    pub fn migrated_out(&mut self, alloc: AllocId, index: u32) {
        self.resident.remove(&Chunk { alloc, index });
    }

    /// An allocation is gone, with all its chunks.
    pub fn freed(&mut self, alloc: AllocId) {
        self.resident.retain(|chunk, _| chunk.alloc != alloc);
    }

    /// Removes and returns the chunks over the limit, oldest first.
    pub fn take_evictions(&mut self) -> Vec<Chunk> {
        let mut evicted = Vec::new();
        while self.resident_chunks() > self.capacity_chunks {
            let Some((chunk, clock)) = self.order.pop_front() else {
                break;
            };
            if self.resident.get(&chunk) == Some(&clock) {
                self.resident.remove(&chunk);
                evicted.push(chunk);
            }
        }
        evicted
    }

    /// Chunks on the card now, sorted.
    #[must_use]
    pub fn resident(&self) -> Vec<Chunk> {
        let mut chunks: Vec<Chunk> = self.resident.keys().copied().collect();
        chunks.sort_unstable();
        chunks
    }

    /// Whether a chunk is on the card.
    #[must_use]
    pub fn holds(&self, alloc: AllocId, index: u32) -> bool {
        self.resident.contains_key(&Chunk { alloc, index })
    }

    /// Number of chunks on the card now.
    #[must_use]
    pub fn resident_chunks(&self) -> u64 {
        self.resident.len() as u64
    }

    /// Highest number of chunks at once, before evictions were taken.
    #[must_use]
    pub fn peak_chunks(&self) -> u64 {
        self.peak_chunks
    }

    /// Chunks the card holds when full.
    #[must_use]
    pub fn capacity_chunks(&self) -> u64 {
        self.capacity_chunks
    }

    /// Drops stale entries once they outnumber the live ones.
    fn compact(&mut self) {
        if self.order.len() > 1024 && self.order.len() / 4 > self.resident.len() {
            let resident = &self.resident;
            self.order
                .retain(|(chunk, clock)| resident.get(chunk) == Some(clock));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AllocId = AllocId(0);
    const B: AllocId = AllocId(1);

    fn chunk(alloc: AllocId, index: u32) -> Chunk {
        Chunk { alloc, index }
    }

    #[test]
    fn the_oldest_migration_leaves_first() {
        let mut card = EmulatedCard::new(2 * CHUNK_BYTES);
        card.migrated_in(A, 0);
        card.migrated_in(A, 1);
        assert!(card.take_evictions().is_empty());
        card.migrated_in(B, 0);
        assert_eq!(card.take_evictions(), [chunk(A, 0)]);
        assert_eq!(card.resident(), [chunk(A, 1), chunk(B, 0)]);
    }

    #[test]
    fn a_chunk_that_migrates_again_is_young_again() {
        let mut card = EmulatedCard::new(2 * CHUNK_BYTES);
        card.migrated_in(A, 0);
        card.migrated_in(A, 1);
        card.migrated_in(A, 0);
        card.migrated_in(B, 0);
        assert_eq!(card.take_evictions(), [chunk(A, 1)]);
    }

    #[test]
    fn what_left_or_was_freed_is_not_evicted() {
        let mut card = EmulatedCard::new(CHUNK_BYTES);
        card.migrated_in(A, 0);
        card.migrated_in(A, 1);
        card.migrated_in(B, 0);
        card.migrated_out(A, 0);
        card.freed(B);
        assert!(card.take_evictions().is_empty());
        assert!(card.holds(A, 1) && !card.holds(B, 0));
        assert_eq!(card.peak_chunks(), 3);
    }

    #[test]
    fn a_card_of_zero_keeps_nothing() {
        let mut card = EmulatedCard::new(CHUNK_BYTES - 1);
        card.migrated_in(A, 0);
        assert_eq!(card.take_evictions(), [chunk(A, 0)]);
        assert_eq!(card.resident_chunks(), 0);
    }

    #[test]
    fn the_order_does_not_grow_without_bound() {
        let mut card = EmulatedCard::new(10 * CHUNK_BYTES);
        for turn in 0..100_000 {
            card.migrated_in(A, turn % 8);
        }
        assert!(card.order.len() <= 1100, "{}", card.order.len());
        assert_eq!(card.resident_chunks(), 8);
    }
}
