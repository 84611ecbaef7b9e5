//! A boundary is missed where its op ran under another name that once. A piece of about twice (three
//! times, ...) the usual length is cut where the start of the usual piece is seen again.

use crate::num::{float, index, wide};

use super::score::{ALIKE, Bag, Segmentation, judge};
use super::tokens::Tokens;

/// Leading ops compared.
const PATTERN: u32 = 48;
/// Share of them that must agree.
const AGREE: f64 = 0.6;
/// Pieces longer than this many periods are no missed boundary.
const MOST: u32 = 4;

/// Cuts pieces that hold a missed boundary; keeps the cuts only if the whole gets no worse.
pub(super) fn split_missed(tokens: &Tokens, found: Segmentation) -> Segmentation {
    let matched = (0..found.similarity.len())
        .filter(|place| found.is_matched(*place))
        .count();
    let period = found.period;
    let Some([start, end]) = found.starts.get(found.reference..found.reference + 2) else {
        return found;
    };
    if matched < 2 || period < PATTERN {
        return found;
    }
    let reference = tokens.slice(*start, *end);
    let mut bag = Bag::new(tokens.kinds(), reference);
    let mut starts = Vec::with_capacity(found.starts.len());
    for pair in found.starts.windows(2) {
        let [start, end] = *pair else { continue };
        starts.push(start);
        let mut from = start;
        while (end - from) * 2 >= period * 3 && end - from <= period * MOST {
            let Some(cut) = seen_again(tokens, reference, from + period) else {
                break;
            };
            let alike = bag.similarity(tokens.slice(from, cut)) >= ALIKE;
            if cut <= from || cut >= end || !alike {
                break;
            }
            starts.push(cut);
            from = cut;
        }
    }
    starts.extend(found.starts.last());
    if starts.len() == found.starts.len() {
        return found;
    }
    match judge(tokens, starts) {
        Some(repaired) if repaired.score >= found.score => repaired,
        _ => found,
    }
}

/// The place near an expected one where the piece's leading ops are seen best.
fn seen_again(tokens: &Tokens, reference: &[u32], expected: u32) -> Option<u32> {
    let pattern = reference.get(..index(PATTERN))?;
    let radius = (crate::num::narrow(reference.len()) / 8).max(PATTERN);
    let agreement = |place: &u32| {
        let window = tokens.slice(*place, place.saturating_add(PATTERN));
        window.iter().zip(pattern).filter(|(a, b)| a == b).count()
    };
    let places = expected.saturating_sub(radius)..expected.saturating_add(radius);
    let best =
        places.max_by_key(|place| (agreement(place), u32::MAX - place.abs_diff(expected)))?;
    (float(wide(agreement(&best))) >= AGREE * f64::from(PATTERN)).then_some(best)
}
