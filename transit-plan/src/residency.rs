//! What is on the card. One rule, the driver's: 2 MiB chunks, first in first out by last migration
//! (a use of resident memory moves nothing, a prefetch of it does).

use std::collections::VecDeque;

use crate::num::{index, narrow};

/// A simulated card.
#[derive(Clone, Debug)]
pub struct Card {
    capacity: u32,
    masks: Vec<u32>,
    /// When each chunk last migrated; an older entry of it in `order` is stale.
    stamps: Vec<u32>,
    order: VecDeque<(u32, u32)>,
    clock: u32,
    resident: u32,
    peak: u32,
}

impl Card {
    /// An empty card for so many chunks, of which it can hold `capacity`.
    #[must_use]
    pub fn new(chunks: u32, capacity: u32) -> Self {
        Self {
            capacity,
            masks: vec![0; index(chunks)],
            stamps: vec![0; index(chunks)],
            order: VecDeque::new(),
            clock: 0,
            resident: 0,
            peak: 0,
        }
    }

    /// Chunks it can hold.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Chunks it holds.
    #[must_use]
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// Most chunks it held since [`Self::reset_peak`].
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Starts a new count of the peak.
    pub fn reset_peak(&mut self) {
        self.peak = self.resident;
    }

    /// The groups of a chunk that are on the card.
    #[must_use]
    pub fn mask(&self, chunk: u32) -> u32 {
        self.masks.get(index(chunk)).copied().unwrap_or(0)
    }

    /// Whether any of a chunk is on the card.
    #[must_use]
    pub fn holds(&self, chunk: u32) -> bool {
        self.mask(chunk) != 0
    }

    /// Frames still free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.capacity.saturating_sub(self.resident)
    }

    /// Migrates groups in and moves their chunk to the end of the line. The caller makes room.
    pub fn bring(&mut self, chunk: u32, mask: u32) {
        let Some(entry) = self.masks.get_mut(index(chunk)).filter(|_| mask != 0) else {
            return;
        };
        self.resident += u32::from(*entry == 0);
        *entry |= mask;
        self.peak = self.peak.max(self.resident);
        self.clock = self.clock.wrapping_add(1);
        if let Some(stamp) = self.stamps.get_mut(index(chunk)) {
            *stamp = self.clock;
        }
        self.order.push_back((chunk, self.clock));
        if self.order.len() > 1024 + 4 * self.masks.len() {
            let Self {
                order,
                masks,
                stamps,
                ..
            } = self;
            order.retain(|entry| is_current(masks, stamps, *entry));
        }
    }

    /// Takes a chunk off the card; the groups it held.
    pub fn evict(&mut self, chunk: u32) -> u32 {
        let Some(entry) = self.masks.get_mut(index(chunk)) else {
            return 0;
        };
        let held = std::mem::take(entry);
        self.resident -= u32::from(held != 0);
        held
    }

    /// The chunk that is first in line among those not spared.
    pub fn first_in_line(&mut self, spared: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(entry) = self.order.front() {
            if is_current(&self.masks, &self.stamps, *entry) {
                break;
            }
            self.order.pop_front();
        }
        self.line().find(|chunk| !spared(*chunk))
    }

    /// Chunks on the card, first in line first.
    pub fn line(&self) -> impl Iterator<Item = u32> + '_ {
        self.order
            .iter()
            .filter(|entry| is_current(&self.masks, &self.stamps, **entry))
            .map(|(chunk, _)| *chunk)
    }

    /// A number equal for equal contents in equal order.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        self.line().fold(u64::from(self.resident), |hash, chunk| {
            let value = u64::from(chunk) << 32 | u64::from(self.mask(chunk));
            (hash ^ value)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
    }

    /// A number equal for equal contents, in whatever order they came.
    #[must_use]
    pub fn contents_hash(&self) -> u64 {
        let held = self
            .masks
            .iter()
            .enumerate()
            .filter(|(_, mask)| **mask != 0);
        held.fold(u64::from(self.resident), |hash, (chunk, mask)| {
            let value = u64::from(narrow(chunk)) << 32 | u64::from(*mask);
            (hash ^ value)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
    }

    /// Everything on the card, by chunk number.
    pub fn contents(&self) -> impl Iterator<Item = u32> + '_ {
        (0..narrow(self.masks.len())).filter(|chunk| self.holds(*chunk))
    }
}

fn is_current(masks: &[u32], stamps: &[u32], (chunk, stamp): (u32, u32)) -> bool {
    stamps.get(index(chunk)) == Some(&stamp) && masks.get(index(chunk)).is_some_and(|m| *m != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_by_last_migration_not_by_use() {
        let mut card = Card::new(4, 3);
        for chunk in [2, 0, 1] {
            card.bring(chunk, u32::MAX);
        }
        assert_eq!(card.first_in_line(|_| false), Some(2));
        card.bring(2, 1);
        assert_eq!(card.first_in_line(|_| false), Some(0));
        assert_eq!(card.first_in_line(|chunk| chunk == 0), Some(1));
        assert_eq!(card.evict(0), u32::MAX);
        assert_eq!(card.line().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((card.resident(), card.peak(), card.free()), (2, 3, 1));
    }

    #[test]
    fn a_chunk_that_left_and_came_back_is_in_line_once() {
        let mut card = Card::new(2, 2);
        card.bring(0, 1);
        card.evict(0);
        card.bring(1, 1);
        card.bring(0, 1);
        assert_eq!(card.line().collect::<Vec<_>>(), [1, 0]);
    }
}
