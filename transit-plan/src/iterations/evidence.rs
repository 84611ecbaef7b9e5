//! Where an iteration may start, by what the ops are called and when the host issued them.

use std::sync::LazyLock;

use regex::Regex;
use transit_format::trace::model::OpKind;

use crate::num::{index, narrow, wide};
use crate::timeline::Timeline;

use super::Evidence;
use super::anchors;
use super::score::{Segmentation, judge};
use super::tokens::Tokens;

/// Kernels only an optimizer has. `fused_adam`, `FusedAdamMathFunctor`, `multi_tensor_lamb`, ...
const OPTIMIZERS: &str = r"(?i)adam|lamb(?:_|stage|kernel|\b)|sgd|adagrad|adafactor|rmsprop|adadelta|lion(?:_|kernel|\b)|muon|optimizer|momentum_update";
/// Kernels that optimizers have and gradient clipping too.
const FOREACH: &str = r"(?i)multi_tensor_apply|foreach";

static OPTIMIZER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(OPTIMIZERS).ok());
static MULTI_TENSOR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(FOREACH).ok());

/// Named evidence that cuts worse than this is not believed.
const NAMED_FLOOR: f64 = 0.3;
/// A gap counts if it is this many times the median gap.
const GAP_FACTOR: u64 = 3;
/// Distances between groups differ by at least this factor from those within.
const JUMP: f64 = 1.5;
/// A grouping into shorter pieces is taken if it scores at least this share of the best: a job that
/// evaluates every fourth step repeats better every four steps.
const SHORTER: f64 = 0.5;
/// How many ways of grouping are judged.
const GROUPINGS: usize = 8;

/// The best evidence: optimizer names, then multi-tensor names, then repetition, which is turned
/// to the largest host gap or the input copies if one of them recurs.
pub(super) fn best(timeline: &Timeline<'_>, tokens: &Tokens) -> Option<(Evidence, Segmentation)> {
    let named = [
        (Evidence::OptimizerName, OPTIMIZER.as_ref()),
        (Evidence::ForeachName, MULTI_TENSOR.as_ref()),
    ];
    for (evidence, pattern) in named {
        let Some(pattern) = pattern else { continue };
        let places = after_matching(timeline, tokens, |name| pattern.is_match(name));
        match best_clustering(tokens, &places) {
            Some(found) if found.score >= NAMED_FLOOR => return Some((evidence, found)),
            _ => {}
        }
    }
    let found = anchors::best(tokens)?;
    let turned = by_host_gap(timeline, tokens, &found)
        .map(|turned| (Evidence::HostGap, turned))
        .or_else(|| by_input_copy(timeline, tokens, &found).map(|t| (Evidence::InputCopy, t)));
    match turned {
        Some((evidence, turned)) if turned.score >= found.score * 0.95 => Some((evidence, turned)),
        _ => Some((Evidence::Period, found)),
    }
}

/// Places on the main stream right after each op, on any stream, whose function name matches.
pub(super) fn after_matching(
    timeline: &Timeline<'_>,
    tokens: &Tokens,
    matches: impl Fn(&str) -> bool,
) -> Vec<u32> {
    let functions = &timeline.trace().functions;
    let hit: Vec<bool> = functions
        .iter()
        .map(|function| matches(&function.name))
        .collect();
    if !hit.contains(&true) {
        return Vec::new();
    }
    let mut places = Vec::new();
    let mut place = 0_u32;
    for (seq, op) in (0_u32..).zip(&timeline.trace().ops) {
        if tokens.seq_at(place) == seq {
            place += 1;
        }
        if hit.get(op.function.index()) == Some(&true) && places.last() != Some(&place) {
            places.push(place);
        }
    }
    places
}

/// Groups of ops that lie close together end one iteration each; how close is tried.
pub(super) fn best_clustering(tokens: &Tokens, places: &[u32]) -> Option<Segmentation> {
    let gap = |pair: &[u32]| match pair {
        [before, after] => after - before,
        _ => 0,
    };
    let mut gaps: Vec<u32> = places.windows(2).map(gap).collect();
    gaps.sort_unstable();
    gaps.dedup();
    let mut jumps: Vec<(f64, u32)> = gaps
        .windows(2)
        .filter_map(|pair| match pair {
            [low, high] => Some((f64::from(*high) / f64::from((*low).max(1)), *low)),
            _ => None,
        })
        .filter(|(ratio, _)| *ratio >= JUMP)
        .collect();
    jumps.sort_by(|a, b| b.0.total_cmp(&a.0));
    jumps.truncate(GROUPINGS);
    let mut judged = Vec::new();
    for within in std::iter::once(0).chain(jumps.into_iter().map(|(_, low)| low)) {
        let starts: Vec<u32> = places
            .iter()
            .zip(places.iter().skip(1).map(Some).chain([None]))
            .filter(|(place, next)| next.is_none_or(|next| next - **place > within))
            .map(|(place, _)| *place)
            .collect();
        judged.extend(judge(tokens, starts));
    }
    let (best, period) = judged
        .iter()
        .map(|found| (found.score, found.period))
        .fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
    // Shorter means a part of it: 595 ops and then 1 is the same iteration of 596, cut twice.
    let shorter = |found: &Segmentation| {
        found.period == period || u64::from(found.period) * 3 < u64::from(period) * 2
    };
    judged
        .into_iter()
        .filter(|found| found.score > 0.0 && found.score >= best * SHORTER && shorter(found))
        .min_by_key(|found| found.period)
}

/// Moves each boundary to the largest gap between launches within its piece, if it is the same
/// place in most pieces.
fn by_host_gap(
    timeline: &Timeline<'_>,
    tokens: &Tokens,
    found: &Segmentation,
) -> Option<Segmentation> {
    let issued = |place: u32| {
        timeline
            .op(tokens.seq_at(place))
            .map_or(0, |op| op.issued_ns.0)
    };
    let gap = |place: u32| issued(place).saturating_sub(issued(place.saturating_sub(1)));
    let mut gaps: Vec<u64> = (1..tokens.len()).map(gap).collect();
    let middle = gaps.len() / 2;
    let (_, median, _) = (!gaps.is_empty()).then(|| gaps.select_nth_unstable(middle))?;
    let floor = (*median).max(1) * GAP_FACTOR;
    turn(tokens, found, |start, end| {
        (start.max(1)..end)
            .max_by_key(|place| gap(*place))
            .filter(|place| gap(*place) >= floor)
    })
}

/// Moves each boundary to its piece's only copy onto managed memory.
fn by_input_copy(
    timeline: &Timeline<'_>,
    tokens: &Tokens,
    found: &Segmentation,
) -> Option<Segmentation> {
    let is_copy = |place: &u32| {
        timeline
            .op(tokens.seq_at(*place))
            .is_some_and(|op| op.kind == OpKind::Memcpy)
    };
    turn(tokens, found, |start, end| {
        let mut copies = (start..end).filter(is_copy);
        copies.next().filter(|_| copies.next().is_none())
    })
}

/// Moves each boundary into its piece. `None` unless most pieces agree on the ops around it.
fn turn(
    tokens: &Tokens,
    found: &Segmentation,
    choose: impl Fn(u32, u32) -> Option<u32>,
) -> Option<Segmentation> {
    let mut starts = Vec::new();
    let mut around = std::collections::HashMap::<[u32; 2], u64>::new();
    for pair in found.starts.windows(2) {
        let [start, end] = *pair else { continue };
        let Some(place) = choose(start, end) else {
            continue;
        };
        let token = |place: u32| tokens.all().get(index(place)).copied().unwrap_or(0);
        *around
            .entry([token(place.saturating_sub(1)), token(place)])
            .or_insert(0) += 1;
        starts.push(place);
    }
    let agreeing = around.values().max().copied().unwrap_or(0);
    let pieces = wide(found.starts.len()).saturating_sub(1);
    if narrow(starts.len()) < 2 || agreeing * 5 < pieces * 3 {
        return None;
    }
    judge(tokens, starts)
}
