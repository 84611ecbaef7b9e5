//! Stretches of allocations: sorting, merging across small gaps, rounding to pages, clipping.

use transit_format::ids::AllocId;

/// Pages are the driver's smallest unit of migration.
pub const PAGE_BYTES: u64 = 4 << 10;

/// Bytes `start..end` of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Which allocation.
    pub alloc: AllocId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Span {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Rounded outward to pages, then clipped to an allocation of a size; `None` if nothing stays.
    #[must_use]
    pub fn in_pages(&self, alloc_bytes: u64) -> Option<Self> {
        let start = self.start / PAGE_BYTES * PAGE_BYTES;
        let end = self
            .end
            .div_ceil(PAGE_BYTES)
            .saturating_mul(PAGE_BYTES)
            .min(alloc_bytes);
        (start < end).then_some(Self {
            alloc: self.alloc,
            start,
            end,
        })
    }
}

/// Sorts spans and merges those of one allocation that overlap or lie at most `gap_bytes` apart
/// (the paper's 128 KiB): fewer, larger transfers.
pub fn coalesce(spans: &mut Vec<Span>, gap_bytes: u64) {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans.drain(..) {
        match merged.last_mut() {
            Some(last)
                if last.alloc == span.alloc && span.start.saturating_sub(last.end) <= gap_bytes =>
            {
                last.end = last.end.max(span.end);
            }
            _ => merged.push(span),
        }
    }
    *spans = merged;
}

/// Stretches covered by at least `needed` of several lists.
#[must_use]
pub fn covered_by(lists: &mut [Vec<Span>], needed: usize) -> Vec<Span> {
    let mut edges: Vec<(AllocId, u64, i32)> = Vec::new();
    for list in lists.iter_mut() {
        coalesce(list, 0);
        for span in list.iter() {
            edges.push((span.alloc, span.start, 1));
            edges.push((span.alloc, span.end, -1));
        }
    }
    edges.sort_unstable();
    let needed = i32::try_from(needed.max(1)).unwrap_or(i32::MAX);
    let mut covered = Vec::new();
    let (mut depth, mut since) = (0, 0);
    for (alloc, at, change) in edges {
        let was = depth;
        depth += change;
        if was < needed && depth >= needed {
            since = at;
        } else if was >= needed && depth < needed && since < at {
            covered.push(Span {
                alloc,
                start: since,
                end: at,
            });
        }
    }
    coalesce(&mut covered, 0);
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(alloc: u32, start: u64, end: u64) -> Span {
        Span {
            alloc: AllocId(alloc),
            start,
            end,
        }
    }

    #[test]
    fn gaps_up_to_the_limit_are_merged_and_larger_ones_are_not() {
        let gap = 128 << 10;
        let mut spans = vec![
            span(0, 2 * gap, 3 * gap),
            span(0, 0, gap),
            span(0, 4 * gap + 1, 5 * gap),
            span(1, 5 * gap, 6 * gap),
        ];
        coalesce(&mut spans, gap);
        let expected = [
            span(0, 0, 3 * gap),
            span(0, 4 * gap + 1, 5 * gap),
            span(1, 5 * gap, 6 * gap),
        ];
        assert_eq!(spans, expected);
    }

    #[test]
    fn what_recurs_is_kept_and_what_happened_once_is_not() {
        let mut lists = [
            vec![span(0, 0, 100), span(2, 0, 10)],
            vec![span(0, 50, 150), span(0, 60, 70)],
            vec![span(0, 60, 200)],
        ];
        assert_eq!(covered_by(&mut lists, 2), [span(0, 50, 150)]);
        assert_eq!(covered_by(&mut lists, 1), [span(0, 0, 200), span(2, 0, 10)]);
    }

    #[test]
    fn spans_are_rounded_to_pages_within_their_allocation() {
        assert_eq!(
            span(0, 5000, 5001).in_pages(1 << 20),
            Some(span(0, 4096, 8192))
        );
        assert_eq!(
            span(0, 5000, 9000).in_pages(6000),
            Some(span(0, 4096, 6000))
        );
        assert_eq!(span(0, 8192, 9000).in_pages(6000), None);
    }
}
