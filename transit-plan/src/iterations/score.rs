//! How well a set of boundaries cuts the op sequence into alike pieces.

use crate::num::{float, index, narrow, share, wide};

use super::tokens::Tokens;

/// Pieces this alike (share of common ops) count as the same iteration: 5 % renamed kernels on
/// both sides leave 0.9.
pub(super) const ALIKE: f64 = 0.8;

/// A judged set of boundaries.
#[derive(Clone, Debug)]
pub(super) struct Segmentation {
    /// Places where an iteration starts; the last may be one past the end.
    pub(super) starts: Vec<u32>,
    /// Likeness of each piece to the reference piece.
    pub(super) similarity: Vec<f64>,
    /// The piece that others are compared with.
    pub(super) reference: usize,
    /// Its length in ops.
    pub(super) period: u32,
    /// Whether the ops before the first boundary end with an iteration like the reference.
    pub(super) head_alike: bool,
    /// Share of all ops that lie in alike pieces, the head and the tail included.
    pub(super) coverage: f64,
    /// How good it is, 0 to 1; only for comparing.
    pub(super) score: f64,
}

impl Segmentation {
    /// Whether a piece is like the majority: alike, and not much longer or shorter.
    pub(super) fn is_matched(&self, place: usize) -> bool {
        let length = match self.starts.get(place..place + 2) {
            Some([start, end]) => u64::from(end - start),
            _ => return false,
        };
        let period = u64::from(self.period);
        self.similarity
            .get(place)
            .is_some_and(|similarity| *similarity >= ALIKE)
            && length * 4 >= period * 3
            && length * 3 <= period * 4
    }
}

/// Judges boundaries. `None` with fewer than two of them.
pub(super) fn judge(tokens: &Tokens, starts: Vec<u32>) -> Option<Segmentation> {
    let lengths: Vec<u32> = starts.windows(2).map(piece_length).collect();
    let reference = reference_of(&lengths)?;
    let period = *lengths.get(reference)?;
    let piece = |place: usize| match starts.get(place..place + 2) {
        Some([start, end]) => tokens.slice(*start, *end),
        _ => &[],
    };
    let mut bag = Bag::new(tokens.kinds(), piece(reference));
    let similarity: Vec<f64> = (0..lengths.len())
        .map(|place| bag.similarity(piece(place)))
        .collect();
    let first = starts.first().copied().unwrap_or(0);
    let last = starts.last().copied().unwrap_or(0);
    let head = tokens.slice(first.saturating_sub(period), first);
    let head_alike = first >= period && bag.similarity(head) >= ALIKE;
    let tail_length = (tokens.len() - last.min(tokens.len())).min(period);
    let prefix = piece(reference).get(..index(tail_length)).unwrap_or(&[]);
    let tail_alike = tail_length > 0
        && Bag::new(tokens.kinds(), prefix).similarity(tokens.slice(last, last + tail_length))
            >= ALIKE;
    let mut judged = Segmentation {
        starts,
        similarity,
        reference,
        period,
        head_alike,
        coverage: 0.0,
        score: 0.0,
    };
    let extra =
        u64::from(period) * u64::from(head_alike) + u64::from(tail_length) * u64::from(tail_alike);
    (judged.coverage, judged.score) = score_of(&judged, &lengths, extra, u64::from(tokens.len()));
    Some(judged)
}

/// Coverage and score: ops covered by alike pieces, how alike they are, and how often two
/// neighbours have exactly the same length: cutting at each micro-batch makes the piece that holds
/// the optimizer differ.
fn score_of(judged: &Segmentation, lengths: &[u32], extra: u64, all: u64) -> (f64, f64) {
    let matched: Vec<usize> = (0..lengths.len())
        .filter(|p| judged.is_matched(*p))
        .collect();
    if matched.is_empty() {
        return (0.0, 0.0);
    }
    let length = |place: &usize| lengths.get(*place).copied().map_or(0, u64::from);
    let covered: u64 = matched.iter().map(length).sum();
    let likeness: f64 = matched
        .iter()
        .filter_map(|place| judged.similarity.get(*place))
        .sum();
    let likeness = likeness / float(wide(matched.len()));
    let from_first: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    let equal = lengths
        .windows(2)
        .filter(|pair| pair.first() == pair.last())
        .count();
    let equal = if lengths.len() < 2 {
        0.5
    } else {
        share(wide(equal), wide(lengths.len() - 1))
    };
    let dense = share(covered, from_first);
    let coverage = share((covered + extra).min(all), all);
    (
        coverage,
        dense * coverage.sqrt() * likeness * (0.7 + 0.3 * equal),
    )
}

/// The last piece of the most frequent length; the one of median length if none recurs.
fn reference_of(lengths: &[u32]) -> Option<usize> {
    let mut order: Vec<u32> = lengths.to_vec();
    order.sort_unstable();
    let mut best = (1, *order.get(order.len() / 2)?);
    let mut run = (0, 0);
    for length in &order {
        run = if *length == run.1 {
            (run.0 + 1, run.1)
        } else {
            (1, *length)
        };
        // Of two equally frequent lengths the longer is the safer whole.
        if run.0 >= best.0 && run.0 > 1 {
            best = run;
        }
    }
    lengths.iter().rposition(|length| *length == best.1)
}

fn piece_length(pair: &[u32]) -> u32 {
    match pair {
        [start, end] => end.saturating_sub(*start),
        _ => 0,
    }
}

/// A multiset of tokens that others are compared with.
pub(super) struct Bag {
    counts: Vec<u32>,
    scratch: Vec<u32>,
    size: usize,
}

impl Bag {
    pub(super) fn new(kinds: usize, tokens: &[u32]) -> Self {
        let mut counts = vec![0; kinds];
        for token in tokens {
            if let Some(count) = counts.get_mut(index(*token)) {
                *count += 1;
            }
        }
        Self {
            scratch: vec![0; kinds],
            counts,
            size: tokens.len(),
        }
    }

    /// Common tokens over the mean size: 1 for equal multisets, 0 for disjoint ones.
    pub(super) fn similarity(&mut self, tokens: &[u32]) -> f64 {
        let mut common = 0_u32;
        for token in tokens {
            let place = index(*token);
            if let (Some(seen), Some(count)) = (self.scratch.get_mut(place), self.counts.get(place))
            {
                *seen += 1;
                common += u32::from(*seen <= *count);
            }
        }
        for token in tokens {
            if let Some(seen) = self.scratch.get_mut(index(*token)) {
                *seen = 0;
            }
        }
        share(
            u64::from(common) * 2,
            u64::from(narrow(tokens.len() + self.size)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_is_like_itself_and_unlike_others() {
        let mut bag = Bag::new(10, &[1, 2, 2, 3]);
        assert!((bag.similarity(&[2, 1, 3, 2]) - 1.0).abs() < 1e-9);
        assert!((bag.similarity(&[2, 2, 2, 2]) - 0.5).abs() < 1e-9);
        assert!(bag.similarity(&[4, 5]).abs() < 1e-9);
    }

    #[test]
    fn the_reference_has_the_usual_length() {
        assert_eq!(reference_of(&[9, 5, 5, 7, 5, 6]), Some(4));
        assert_eq!(reference_of(&[3]), Some(0));
        assert_eq!(reference_of(&[]), None);
    }
}
