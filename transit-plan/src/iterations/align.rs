//! Which op of one iteration is which op of another. Iterations differ by a renamed kernel, a
//! logging step or a data-dependent branch: a bounded look-ahead finds the way back.

use crate::num::index;

/// How far a difference may reach, in ops.
const AHEAD: usize = 256;
/// Ops that must agree after a difference.
const AGREE: usize = 3;

/// For each op of `other` the place of its counterpart in `base`, if it has one.
#[must_use]
pub fn align(base: &[u32], other: &[u32]) -> Vec<Option<u32>> {
    let mut places = vec![None; other.len()];
    let (mut at, mut other_at) = (0, 0);
    while at < base.len() && other_at < other.len() {
        if base.get(at) == other.get(other_at) || agree(base, other, at + 1, other_at + 1) {
            if let Some(place) = places.get_mut(other_at) {
                *place = u32::try_from(at).ok();
            }
            at += 1;
            other_at += 1;
            continue;
        }
        match resume(base, other, at, other_at) {
            Some((skip, other_skip)) => {
                at += skip;
                other_at += other_skip;
            }
            None => {
                at += 1;
                other_at += 1;
            }
        }
    }
    places
}

/// Whether the next few ops agree (fewer at the end of either).
fn agree(base: &[u32], other: &[u32], at: usize, other_at: usize) -> bool {
    let left = base.get(at..).unwrap_or(&[]);
    let right = other.get(other_at..).unwrap_or(&[]);
    let length = AGREE.min(left.len()).min(right.len());
    left.get(..length) == right.get(..length) && (length > 0 || left.len() == right.len())
}

/// The least number of ops to skip on both sides until they agree again.
fn resume(base: &[u32], other: &[u32], at: usize, other_at: usize) -> Option<(usize, usize)> {
    for total in 1..=AHEAD {
        for skip in 0..=total {
            let other_skip = total - skip;
            let (left, right) = (at + skip, other_at + other_skip);
            if left < base.len() && right < other.len() && agree(base, other, left, right) {
                return Some((skip, other_skip));
            }
        }
    }
    None
}

/// The number of ops of `other` that have a counterpart.
#[must_use]
pub fn aligned_count(places: &[Option<u32>]) -> usize {
    places.iter().flatten().count()
}

/// The place in `base` of an op of `other`.
#[must_use]
pub fn place_of(places: &[Option<u32>], other_at: u32) -> Option<u32> {
    places.get(index(other_at)).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sequences_align_one_to_one() {
        let places = align(&[1, 2, 3], &[1, 2, 3]);
        assert_eq!(places, [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_renamed_op_keeps_its_place() {
        let places = align(&[1, 2, 3, 4, 5], &[1, 9, 3, 4, 5]);
        assert_eq!(places, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn inserted_and_missing_ops_are_skipped() {
        let base: Vec<u32> = (0..50).collect();
        let mut other: Vec<u32> = base.clone();
        other.drain(10..12);
        other.splice(30..30, [90, 91, 92]);
        let places = align(&base, &other);
        assert_eq!(places[9], Some(9));
        assert_eq!(places[10], Some(12));
        assert_eq!(places[30], None);
        assert_eq!(places[33], Some(32));
        assert_eq!(aligned_count(&places), 48);
    }
}
