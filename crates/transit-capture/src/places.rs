//! Which allocation lay at an address at a time. CUPTI's records come late and name addresses
//! only; the allocation may be freed by then and another may lie there.

use std::collections::{BTreeMap, VecDeque};

use transit_format::ids::{AllocId, Nanos};

/// Freed allocations remembered; the oldest free is forgotten first.
const RETIRED: usize = 1 << 16;
/// Host and device times agree to within this.
const CLOCK_ERROR_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Place {
    id: AllocId,
    base: u64,
    bytes: u64,
    born: Nanos,
    died: Nanos,
}

/// A piece of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) alloc: AllocId,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Live and recently freed allocations.
#[derive(Debug, Default)]
pub(crate) struct Places {
    live: BTreeMap<u64, Place>,
    retired: VecDeque<Place>,
}

impl Places {
    /// An allocation was made.
    pub(crate) fn born(&mut self, id: AllocId, base: u64, bytes: u64, at: Nanos) {
        let place = Place {
            id,
            base,
            bytes,
            born: at,
            died: Nanos(u64::MAX),
        };
        if let Some(old) = self.live.insert(base, place) {
            self.retire(old, at);
        }
    }

    /// It was freed.
    pub(crate) fn died(&mut self, id: AllocId, base: u64, at: Nanos) {
        if self.live.get(&base).is_some_and(|place| place.id == id)
            && let Some(old) = self.live.remove(&base)
        {
            self.retire(old, at);
        }
    }

    fn retire(&mut self, mut place: Place, at: Nanos) {
        place.died = at;
        if self.retired.len() == RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(place);
    }

    /// Cuts `[address, address + bytes)` into the allocations that lay there at `at`. Empty if
    /// there was none. Whole pages move, so what hangs over an end belongs to that allocation.
    pub(crate) fn split(&self, address: u64, bytes: u64, at: Nanos, out: &mut Vec<Piece>) {
        out.clear();
        let end = address.saturating_add(bytes.max(1));
        let first = self
            .live
            .range(..=address)
            .next_back()
            .map_or(address, |(&base, _)| base);
        let live = self.live.range(first..end).map(|(_, place)| place);
        // The retired are in order of their end: older ones cannot have been alive at `at`.
        let ended_later = self
            .retired
            .iter()
            .rev()
            .take_while(|place| at.0 <= place.died.0.saturating_add(CLOCK_ERROR_NS));
        for place in live.chain(ended_later) {
            if at.0.saturating_add(CLOCK_ERROR_NS) >= place.born.0 {
                add(place, address, end, out);
            }
        }
        if out.is_empty() {
            return;
        }
        out.sort_by_key(|piece| piece.offset);
        if let [only] = out.as_mut_slice() {
            only.bytes = bytes;
        }
    }
}

/// Adds the part of `[address, end)` in `place`, unless an earlier (younger) place holds it.
fn add(place: &Place, address: u64, end: u64, out: &mut Vec<Piece>) {
    let from = address.max(place.base);
    let to = end.min(place.base.saturating_add(place.bytes));
    let taken: u64 = out.iter().map(|piece| piece.bytes).sum();
    if from < to && taken < end - address {
        out.push(Piece {
            alloc: place.id,
            offset: from - place.base,
            bytes: to - from,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(places: &Places, address: u64, bytes: u64, at: u64) -> Vec<(u32, u64, u64)> {
        let mut out = Vec::new();
        places.split(address, bytes, Nanos(at), &mut out);
        out.iter()
            .map(|piece| (piece.alloc.0, piece.offset, piece.bytes))
            .collect()
    }

    #[test]
    fn an_address_means_what_lay_there_at_the_time() {
        let mut places = Places::default();
        let second = 1_000_000_000;
        places.born(AllocId(0), 0x10000, 0x4000, Nanos(second));
        places.died(AllocId(0), 0x10000, Nanos(2 * second));
        places.born(AllocId(1), 0x10000, 0x8000, Nanos(3 * second));
        assert_eq!(
            pieces(&places, 0x11000, 0x1000, second + 1),
            [(0, 0x1000, 0x1000)]
        );
        assert_eq!(
            pieces(&places, 0x11000, 0x1000, 4 * second),
            [(1, 0x1000, 0x1000)]
        );
        assert_eq!(
            pieces(&places, 0x11000, 0x1000, 2 * second + second / 2),
            []
        );
        assert_eq!(pieces(&places, 0x20000, 0x1000, 4 * second), []);
    }

    #[test]
    fn a_transfer_over_two_neighbours_is_cut_and_a_last_page_is_not() {
        let mut places = Places::default();
        places.born(AllocId(0), 0x10000, 0x1000, Nanos(0));
        places.born(AllocId(1), 0x11000, 0x1000, Nanos(0));
        assert_eq!(
            pieces(&places, 0x10800, 0x1000, 5),
            [(1, 0, 0x800), (0, 0x800, 0x800)]
        );
        assert_eq!(pieces(&places, 0x11000, 0x10000, 5), [(1, 0, 0x10000)]);
    }
}
