//! Device memory as the driver manages it: 2 MiB chunks, each of 32 groups of 64 KiB. Chunks of the
//! allocations a plan may speak of are numbered densely, so that a simulated card is a few tables.

use transit_format::ids::{AllocId, OpSeq};
use transit_format::plan::model::Range;

use crate::num::{index, narrow};
use crate::ranges::Span;
use crate::timeline::Timeline;

/// The driver evicts in units of this.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// The driver migrates at least this much around a fault.
pub const GROUP_BYTES: u64 = 64 << 10;
/// Marks an allocation without chunks here.
const NONE: u32 = u32::MAX;

/// Chunk numbers of allocations.
#[derive(Clone, Debug, Default)]
pub struct Space {
    first_chunk: Vec<u32>,
    bytes: Vec<u64>,
    owner: Vec<(AllocId, u32)>,
    pooled: Vec<bool>,
}

/// Part of a chunk: bit `i` is its `i`-th group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// The chunk's number.
    pub chunk: u32,
    /// Its groups.
    pub mask: u32,
}

impl Space {
    /// Numbers the managed allocations that exist at some time between two ops.
    #[must_use]
    pub fn new(timeline: &Timeline<'_>, from: OpSeq, to: OpSeq) -> Self {
        let mut space = Self::default();
        for (alloc, entry) in (0..).map(AllocId).zip(&timeline.trace().allocs) {
            let managed = entry.managed || entry.converted;
            let alive = entry.at_op < to && timeline.freed_at(alloc) > from;
            space.bytes.push(entry.bytes);
            space.pooled.push(entry.pooled);
            if !managed || !alive {
                space.first_chunk.push(NONE);
                continue;
            }
            space.first_chunk.push(narrow(space.owner.len()));
            let chunks = u32::try_from(entry.bytes.div_ceil(CHUNK_BYTES)).unwrap_or(0);
            space.owner.extend((0..chunks).map(|place| (alloc, place)));
        }
        space
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        narrow(self.owner.len())
    }

    /// Size of an allocation in bytes, 0 if it has no chunks here.
    #[must_use]
    pub fn alloc_bytes(&self, alloc: AllocId) -> u64 {
        match self.first_chunk.get(alloc.index()) {
            Some(first) if *first != NONE => self.bytes.get(alloc.index()).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Chunk numbers of an allocation.
    #[must_use]
    pub fn chunks_of(&self, alloc: AllocId) -> std::ops::Range<u32> {
        let first = self.first_chunk.get(alloc.index()).copied().unwrap_or(NONE);
        if first == NONE {
            return 0..0;
        }
        let count = u32::try_from(self.alloc_bytes(alloc).div_ceil(CHUNK_BYTES)).unwrap_or(0);
        first..first + count
    }

    /// Whether a chunk is of a pool's memory, which takes no advice.
    #[must_use]
    pub fn is_pooled(&self, chunk: u32) -> bool {
        let owner = self.owner.get(index(chunk));
        owner.is_some_and(|(alloc, _)| self.pooled.get(alloc.index()) == Some(&true))
    }

    /// The groups a span lies in, chunk by chunk.
    pub fn touches(&self, span: Span) -> impl Iterator<Item = Touch> + use<> {
        let chunks = self.chunks_of(span.alloc);
        let end = span.end.min(self.alloc_bytes(span.alloc));
        let start = span.start.min(end);
        let places = if start < end {
            start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)
        } else {
            0..0
        };
        places.filter_map(move |place| {
            let base = place * CHUNK_BYTES;
            let low = start.saturating_sub(base) / GROUP_BYTES;
            let high = end
                .saturating_sub(base)
                .min(CHUNK_BYTES)
                .div_ceil(GROUP_BYTES);
            let chunk = chunks.start.checked_add(u32::try_from(place).ok()?)?;
            chunks.contains(&chunk).then_some(Touch {
                chunk,
                mask: groups(low, high),
            })
        })
    }

    /// The spans of a chunk's groups, in order.
    pub fn spans(&self, touch: Touch) -> impl Iterator<Item = Span> + use<> {
        let (alloc, place) = self
            .owner
            .get(index(touch.chunk))
            .copied()
            .unwrap_or_default();
        let bytes = self.alloc_bytes(alloc);
        let base = u64::from(place) * CHUNK_BYTES;
        let mut mask = touch.mask;
        let mut at = 0_u32;
        std::iter::from_fn(move || {
            if mask == 0 {
                return None;
            }
            let skip = mask.trailing_zeros();
            mask >>= skip;
            let run = mask.trailing_ones();
            let start = base + u64::from(at + skip) * GROUP_BYTES;
            at += skip + run;
            mask = mask.checked_shr(run).unwrap_or(0);
            let end = (base + u64::from(at) * GROUP_BYTES).min(bytes);
            Some(Span {
                alloc,
                start: start.min(end),
                end,
            })
        })
    }

    /// A whole chunk as a span.
    #[must_use]
    pub fn chunk_span(&self, chunk: u32) -> Span {
        let (alloc, place) = self.owner.get(index(chunk)).copied().unwrap_or_default();
        let start = u64::from(place) * CHUNK_BYTES;
        let end = (start + CHUNK_BYTES).min(self.alloc_bytes(alloc));
        Span {
            alloc,
            start: start.min(end),
            end,
        }
    }
}

/// Groups `low..high` of a chunk as bits.
fn groups(low: u64, high: u64) -> u32 {
    let below = |count: u64| match count {
        0..32 => (1_u32 << count) - 1,
        _ => u32::MAX,
    };
    below(high) & !below(low)
}

/// Bytes of a mask.
#[must_use]
pub fn mask_bytes(mask: u32) -> u64 {
    u64::from(mask.count_ones()) * GROUP_BYTES
}

/// A span as the plan stores it, given the allocation's place in the plan's table.
#[must_use]
pub fn plan_range(span: Span, alloc: u32) -> Range {
    Range {
        alloc,
        offset: span.start,
        bytes: span.bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        // One allocation of two and a half chunks.
        Space {
            first_chunk: vec![0],
            bytes: vec![5 << 20],
            owner: (0..3).map(|place| (AllocId(0), place)).collect(),
            pooled: vec![false],
        }
    }

    #[test]
    fn a_span_becomes_groups_and_back() {
        let space = space();
        let span = Span {
            alloc: AllocId(0),
            start: 3 << 19,
            end: 5 << 20,
        };
        let touches: Vec<Touch> = space.touches(span).collect();
        let expected = [
            Touch {
                chunk: 0,
                mask: 0xff00_0000,
            },
            Touch {
                chunk: 1,
                mask: u32::MAX,
            },
            Touch {
                chunk: 2,
                mask: 0x0000_ffff,
            },
        ];
        assert_eq!(touches, expected);
        let mut spans: Vec<Span> = touches.into_iter().flat_map(|t| space.spans(t)).collect();
        crate::ranges::coalesce(&mut spans, 0);
        assert_eq!(spans, [span]);
    }

    #[test]
    fn separate_groups_stay_separate_spans() {
        let spans: Vec<Span> = space()
            .spans(Touch {
                chunk: 1,
                mask: 0b1011,
            })
            .collect();
        let group = |low: u64, high: u64| Span {
            alloc: AllocId(0),
            start: CHUNK_BYTES + low * GROUP_BYTES,
            end: CHUNK_BYTES + high * GROUP_BYTES,
        };
        assert_eq!(spans, [group(0, 2), group(3, 4)]);
    }
}
