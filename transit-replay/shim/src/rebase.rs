//! Recorded ranges against the job's present layout. A resumed job, or an allocator that broke a
//! tie the other way, keeps its tensors elsewhere in the same segments; the op's own arguments say
//! where. What a step fetches for an op lies around the pointers the op had when recorded, so each
//! stretch of a range moves along with the pointer it begins at.

use transit_format::plan::model::Range;
use transit_hook::observer::PointerArg;

use crate::follow::script::PointerRecord;

/// Stretches a range may fall into; what is beyond is left to faults.
pub(crate) const PIECES: usize = 64;

/// A stretch of a live allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Id of the live allocation.
    pub(crate) live: u32,
    /// Offset within it.
    pub(crate) offset: u64,
    /// Length.
    pub(crate) bytes: u64,
}

/// Where the op's data of `range` lies now; the number of pieces written, `None` if no pointer of
/// the op was near the range.
pub(crate) fn pieces(
    planned: &[PointerRecord],
    live: &[PointerArg],
    range: &Range,
    out: &mut [Piece; PIECES],
) -> Option<usize> {
    let end = range.offset.checked_add(range.bytes)?;
    if planned.len() != live.len() {
        return None;
    }
    let here = |pointer: &PointerRecord| pointer.alloc == range.alloc && pointer.offset < end;
    // The pointer the range begins at or after; failing that the first one inside.
    let offsets = || {
        planned
            .iter()
            .filter(|pointer| here(pointer))
            .map(|pointer| pointer.offset)
    };
    let before = offsets().filter(|&offset| offset <= range.offset).max();
    let mut anchor = before.or_else(|| offsets().min())?;
    let (mut from, mut count) = (range.offset, 0);
    while from < end {
        let next = offsets()
            .filter(|&offset| offset > anchor && offset > from)
            .min();
        let to = next.unwrap_or(end).clamp(from, end);
        let index = planned
            .iter()
            .position(|p| p.alloc == range.alloc && p.offset == anchor)?;
        let target = live.get(index)?;
        // Below its own pointer a stretch moves along with it too, as far as there is memory.
        let moved = i128::from(target.offset) + i128::from(from) - i128::from(anchor);
        let cut = u64::try_from(-moved).unwrap_or(0);
        if let Some(slot) = out.get_mut(count)
            && to - from > cut
        {
            let offset = u64::try_from(moved.max(0)).ok()?;
            *slot = Piece {
                live: target.alloc.0,
                offset,
                bytes: to - from - cut,
            };
            count += 1;
        }
        from = to;
        let Some(following) = next else { break };
        anchor = following;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use transit_format::ids::AllocId;

    use super::*;

    fn rebased(
        planned: &[(u32, u64)],
        live: &[(u32, u64)],
        range: (u32, u64, u64),
    ) -> Option<Vec<(u32, u64, u64)>> {
        let planned: Vec<_> = planned
            .iter()
            .map(|&(alloc, offset)| PointerRecord { alloc, offset })
            .collect();
        let live: Vec<_> = live
            .iter()
            .map(|&(alloc, offset)| PointerArg {
                alloc: AllocId(alloc),
                offset,
                bytes: 0,
            })
            .collect();
        let (alloc, offset, bytes) = range;
        let mut out = [Piece::default(); PIECES];
        let count = pieces(
            &planned,
            &live,
            &Range {
                alloc,
                offset,
                bytes,
            },
            &mut out,
        )?;
        Some(
            out[..count]
                .iter()
                .map(|piece| (piece.live, piece.offset, piece.bytes))
                .collect(),
        )
    }

    #[test]
    fn a_tensor_moved_within_its_segment_takes_its_range_along() {
        let moved = rebased(&[(0, 4096)], &[(7, 65536)], (0, 4096, 1000));
        assert_eq!(moved, Some(vec![(7, 65536, 1000)]));
        let middle = rebased(&[(0, 4096)], &[(7, 65536)], (0, 5096, 1000));
        assert_eq!(middle, Some(vec![(7, 66536, 1000)]));
    }

    #[test]
    fn a_range_over_two_tensors_is_cut_where_the_second_begins() {
        let moved = rebased(
            &[(0, 8192), (0, 0), (1, 0)],
            &[(3, 0), (5, 100), (6, 0)],
            (0, 0, 12288),
        );
        assert_eq!(moved, Some(vec![(5, 100, 8192), (3, 0, 4096)]));
    }

    #[test]
    fn what_lies_before_the_first_pointer_goes_with_it_as_far_as_there_is_memory() {
        let moved = rebased(&[(0, 8192)], &[(3, 12288)], (0, 4096, 8192));
        assert_eq!(moved, Some(vec![(3, 8192, 8192)]));
        let cut = rebased(&[(0, 8192)], &[(3, 1024)], (0, 4096, 8192));
        assert_eq!(cut, Some(vec![(3, 0, 5120)]));
    }

    #[test]
    fn a_range_the_op_does_not_point_at_has_no_place() {
        assert_eq!(rebased(&[(1, 0)], &[(1, 0)], (0, 0, 4096)), None);
        assert_eq!(rebased(&[(0, 8192)], &[(1, 0)], (0, 0, 4096)), None);
        assert_eq!(rebased(&[(0, 0)], &[], (0, 0, 4096)), None);
    }
}
