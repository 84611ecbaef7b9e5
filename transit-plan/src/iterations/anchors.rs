//! Boundaries without names: ops, or short runs of ops, that recur at even distances. Only their
//! occurrences are looked at, and only a bounded sample of runs, so that this stays linear.

use std::collections::HashMap;

use crate::num::{float, index, narrow, share, wide};

use super::score::{Segmentation, judge};
use super::tokens::{Tokens, mix};

/// Ops in a run that serves as an anchor.
const RUN: usize = 4;
/// Runs kept per trace; above it a fixed share of all distinct runs is sampled.
const SAMPLE: usize = 1 << 18;
/// Periods that are judged in full.
const JUDGED: usize = 16;
/// No training iteration is shorter.
const SHORTEST: u32 = 4;
/// Two scores this close count as equal; the shorter period then wins.
const TIE: f64 = 0.02;

struct Candidate {
    places: Vec<u32>,
    period: u32,
    evenness: f64,
}

/// The best boundary by repetition alone.
pub(super) fn best(tokens: &Tokens) -> Option<Segmentation> {
    let mut candidates: Vec<Candidate> = occurrences(tokens)
        .into_iter()
        .filter_map(|places| candidate(tokens, places))
        .collect();
    // One per period, the most even first and of equal ones the earliest.
    candidates.sort_by(|a, b| {
        b.evenness
            .total_cmp(&a.evenness)
            .then(a.places.first().cmp(&b.places.first()))
    });
    let mut periods: Vec<u32> = Vec::new();
    candidates.retain(|candidate| {
        let known = periods
            .iter()
            .any(|period| period.abs_diff(candidate.period) * 50 <= *period);
        if !known {
            periods.push(candidate.period);
        }
        !known && periods.len() <= JUDGED
    });
    let judged: Vec<Segmentation> = candidates
        .into_iter()
        .filter_map(|candidate| judge(tokens, candidate.places))
        .collect();
    let top = judged.iter().map(|found| found.score).fold(0.0, f64::max);
    judged
        .into_iter()
        .filter(|found| found.score > 0.0 && found.score >= top - TIE)
        .min_by_key(|found| found.period)
}

/// Boundaries wherever the ops that follow a given op recur.
pub(super) fn from_op(tokens: &Tokens, seq: u32) -> Option<Segmentation> {
    let at = narrow(tokens.seqs().partition_point(|other| *other < seq));
    let mut best: Option<Segmentation> = None;
    let mut length = 1;
    while length <= 4096 && at + length <= tokens.len() {
        let pattern = tokens.slice(at, at + length);
        let places: Vec<u32> = (0..=tokens.len() - length)
            .filter(|place| tokens.slice(*place, *place + length) == pattern)
            .collect();
        if places.len() < 2 {
            break;
        }
        match judge(tokens, places) {
            Some(found) if best.as_ref().is_none_or(|b| found.score > b.score) => {
                best = Some(found);
            }
            _ => {}
        }
        length *= 4;
    }
    best
}

/// Places of every op kind and of a sample of runs, for those that occur more than once.
fn occurrences(tokens: &Tokens) -> Vec<Vec<u32>> {
    let all = tokens.all();
    let limit = all.len() / index(SHORTEST);
    let mut counts = vec![0_usize; tokens.kinds()];
    for token in all {
        if let Some(count) = counts.get_mut(index(*token)) {
            *count += 1;
        }
    }
    let mut single: Vec<Vec<u32>> = vec![Vec::new(); tokens.kinds()];
    for (place, token) in (0_u32..).zip(all) {
        let token = index(*token);
        if counts
            .get(token)
            .is_some_and(|count| (2..=limit).contains(count))
            && let Some(places) = single.get_mut(token)
        {
            places.push(place);
        }
    }
    let mask = wide((all.len() / SAMPLE).next_power_of_two()) - 1;
    let mut runs: HashMap<u64, Vec<u32>> = HashMap::new();
    for (place, window) in (0_u32..).zip(all.windows(RUN)) {
        let hash = window
            .iter()
            .fold(0x51_7cc1_b727_220a, |hash, token| mix(hash, *token));
        if (hash >> 7) & mask == 0 {
            runs.entry(hash).or_default().push(place);
        }
    }
    single
        .into_iter()
        .chain(runs.into_values())
        .filter(|places| places.len() >= 2)
        .collect()
}

/// Whether places lie evenly and span much of the trace.
fn candidate(tokens: &Tokens, places: Vec<u32>) -> Option<Candidate> {
    let mut gaps: Vec<u32> = places
        .windows(2)
        .map(|pair| match pair {
            [before, after] => after - before,
            _ => 0,
        })
        .collect();
    let middle = gaps.len() / 2;
    let (_, period, _) = (!gaps.is_empty()).then(|| gaps.select_nth_unstable(middle))?;
    let period = *period;
    if period < SHORTEST {
        return None;
    }
    let even = gaps
        .iter()
        .filter(|gap| **gap * 5 >= period * 4 && **gap * 4 <= period * 5)
        .count();
    let even = share(wide(even), wide(gaps.len()));
    let spanned = f64::from(period) * float(wide(places.len())) / f64::from(tokens.len());
    (even >= 0.6 && spanned >= 0.3).then_some(Candidate {
        places,
        period,
        evenness: even,
    })
}
