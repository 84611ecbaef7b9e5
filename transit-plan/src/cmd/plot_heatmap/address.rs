//! The vertical axis of the heatmap: addresses in order, with the empty stretches between
//! allocations taken out.

use transit_format::ids::AllocId;
use transit_format::trace::Trace;

/// A stretch of addresses without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// Bytes of all segments below it.
    pub below_bytes: u64,
}

/// Addresses without their gaps.
#[derive(Clone, Debug, Default)]
pub struct AddressMap {
    segments: Vec<Segment>,
    bases: Vec<Option<u64>>,
}

impl AddressMap {
    /// Lays out the allocations of a trace that `shown` picks. Addresses used again after a free
    /// share their place.
    #[must_use]
    pub fn new(trace: &Trace, shown: impl Fn(AllocId) -> bool) -> Self {
        let ids = (0..).map(AllocId);
        let picked: Vec<(usize, u64, u64)> = ids
            .zip(&trace.allocs)
            .filter(|(id, alloc)| alloc.managed && alloc.bytes > 0 && shown(*id))
            .map(|(id, alloc)| (id.index(), alloc.address, alloc.bytes))
            .collect();
        let mut order: Vec<(u64, u64)> = picked
            .iter()
            .map(|(_, address, bytes)| (*address, *bytes))
            .collect();
        order.sort_unstable();
        let mut segments: Vec<Segment> = Vec::new();
        for (address, bytes) in order {
            let end = address.saturating_add(bytes);
            match segments.last_mut() {
                Some(last) if address <= last.address + last.bytes => {
                    last.bytes = last.bytes.max(end - last.address);
                }
                _ => {
                    let below_bytes = segments
                        .last()
                        .map_or(0, |last| last.below_bytes + last.bytes);
                    segments.push(Segment {
                        address,
                        bytes,
                        below_bytes,
                    });
                }
            }
        }
        let mut bases = vec![None; trace.allocs.len()];
        for (index, address, _) in picked {
            let place = segments.partition_point(|segment| segment.address <= address);
            let segment = place.checked_sub(1).and_then(|place| segments.get(place));
            if let (Some(base), Some(segment)) = (bases.get_mut(index), segment) {
                *base = Some(segment.below_bytes + (address - segment.address));
            }
        }
        Self { segments, bases }
    }

    /// Height of the axis in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.segments
            .last()
            .map_or(0, |last| last.below_bytes + last.bytes)
    }

    /// The stretches, lowest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Height of an offset in an allocation, `None` if that is not shown.
    #[must_use]
    pub fn height(&self, alloc: AllocId, offset: u64) -> Option<u64> {
        self.bases
            .get(alloc.index())
            .copied()
            .flatten()
            .map(|base| base + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn gaps_are_taken_out_and_order_is_by_address() {
        let mut trace = Synthetic::default().trace();
        trace.allocs.truncate(3);
        for (alloc, (address, bytes)) in
            trace
                .allocs
                .iter_mut()
                .zip([(1 << 40, 100), (1 << 20, 50), ((1 << 20) + 50, 10)])
        {
            (alloc.address, alloc.bytes) = (address, bytes);
        }
        let map = AddressMap::new(&trace, |_| true);
        assert_eq!(map.total_bytes(), 160);
        assert_eq!(map.segments().len(), 2);
        assert_eq!(map.height(AllocId(1), 7), Some(7));
        assert_eq!(map.height(AllocId(2), 0), Some(50));
        assert_eq!(map.height(AllocId(0), 1), Some(61));
        assert_eq!(map.height(AllocId(9), 1), None);
    }
}
