//! Finding the training iteration in the op sequence. The busiest stream's ops are compared by
//! (kind, function) only, since shapes change with the data; candidates for the boundary come from
//! named evidence; the one that cuts the sequence into the most alike pieces wins. Linear in ops.

pub mod align;
mod anchors;
mod evidence;
mod repair;
mod score;
mod tokens;

use regex::Regex;
use transit_format::ids::StreamId;
use transit_format::trace::End;
use transit_format::trace::model::MarkKind;

use crate::num::{index, narrow, share, wide};
use crate::render::names::demangled;
use crate::timeline::Timeline;
use score::Segmentation;
pub use tokens::{Numbering, Tokens};

/// How the boundary between iterations is to be found.
#[derive(Clone, Debug, Default)]
pub enum Boundary {
    /// By the best evidence in the trace.
    #[default]
    Auto,
    /// An iteration starts after the last of a group of ops whose name matches.
    Pattern(Regex),
    /// An iteration starts at this op (its sequence number) and wherever the same ops recur.
    Op(u32),
}

/// Why a boundary was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Given by the user.
    Given,
    /// Kernels named after an optimizer.
    OptimizerName,
    /// Multi-tensor kernels, which optimizers and gradient clipping use.
    ForeachName,
    /// The largest gap between two launches on the host recurs at the same place.
    HostGap,
    /// A copy onto managed memory recurs at the same place.
    InputCopy,
    /// Only that the sequence repeats: where it starts is arbitrary.
    Period,
}

impl Evidence {
    /// The name stored in the plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "--boundary-op",
            Self::OptimizerName => "optimizer kernel names",
            Self::ForeachName => "multi-tensor kernel names",
            Self::HostGap => "largest host gap",
            Self::InputCopy => "input copies",
            Self::Period => "repetition only",
        }
    }
}

/// One complete iteration of the main stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration {
    /// Place of its first op among the main stream's ops.
    pub start: u32,
    /// Place one past its last op.
    pub end: u32,
    /// Sequence number of its first main-stream op: ops of other streams from here on belong to it.
    pub first_seq: u32,
    /// Sequence number of the next iteration's first main-stream op.
    pub end_seq: u32,
    /// Share of its ops that the reference iteration has too.
    pub similarity: f64,
    /// Whether it is like the majority.
    pub matched: bool,
}

impl Iteration {
    /// Ops on the main stream.
    #[must_use]
    pub fn ops(&self) -> u32 {
        self.end - self.start
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The stream the iteration is defined on.
    pub main_stream: StreamId,
    /// Why the boundary is where it is.
    pub evidence: Evidence,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Complete iterations in order.
    pub iterations: Vec<Iteration>,
    /// Which of them plans are made from: the last that matches the majority.
    pub steady: usize,
}

/// Below this a plan holds placements only.
pub const CONFIDENT: f64 = 0.5;

impl Phase {
    /// The iteration that plans are made from.
    #[must_use]
    pub fn steady(&self) -> Option<&Iteration> {
        self.iterations.get(self.steady)
    }

    /// Iterations like the majority, oldest first.
    pub fn matched(&self) -> impl DoubleEndedIterator<Item = &Iteration> {
        self.iterations.iter().filter(|iteration| iteration.matched)
    }

    /// Whether a plan may rely on it.
    #[must_use]
    pub fn is_confident(&self) -> bool {
        self.confidence >= CONFIDENT
    }
}

/// Looks for the iteration. `None` if nothing repeats.
#[must_use]
pub fn find(timeline: &Timeline<'_>, boundary: &Boundary) -> Option<Phase> {
    let main_stream = timeline.busiest_stream()?;
    let tokens = Tokens::new(timeline, main_stream);
    let (evidence, segmentation) = match boundary {
        Boundary::Auto => evidence::best(timeline, &tokens)?,
        Boundary::Pattern(pattern) => {
            let places = evidence::after_matching(timeline, &tokens, |name| {
                pattern.is_match(name) || pattern.is_match(&demangled(name))
            });
            (
                Evidence::Given,
                evidence::best_clustering(&tokens, &places)?,
            )
        }
        Boundary::Op(seq) => (Evidence::Given, anchors::from_op(&tokens, *seq)?),
    };
    let segmentation = repair::split_missed(&tokens, segmentation);
    Some(phase(timeline, &tokens, evidence, &segmentation))
}

fn phase(
    timeline: &Timeline<'_>,
    tokens: &Tokens,
    evidence: Evidence,
    segmentation: &Segmentation,
) -> Phase {
    let window = recorded_window(timeline);
    let mut iterations = Vec::new();
    for (place, pair) in segmentation.starts.windows(2).enumerate() {
        let [start, end] = *pair else { continue };
        let similarity = segmentation.similarity.get(place).copied().unwrap_or(0.0);
        let (first_seq, end_seq) = (tokens.seq_at(start), tokens.seq_at(end));
        let recorded = first_seq >= window.0 && end_seq <= window.1;
        let matched = recorded && segmentation.is_matched(place);
        iterations.push(Iteration {
            start,
            end,
            first_seq,
            end_seq,
            similarity,
            matched,
        });
    }
    let steady = steady_of(tokens, &iterations);
    let confidence = confidence_of(evidence, segmentation, &iterations);
    Phase {
        main_stream: tokens.stream(),
        evidence,
        confidence,
        iterations,
        steady,
    }
}

/// Sequence numbers between which everything was recorded.
fn recorded_window(timeline: &Timeline<'_>) -> (u32, u32) {
    let mut window = (0, u32::MAX);
    for mark in &timeline.trace().marks {
        let at = u32::try_from(mark.at_op.0).unwrap_or(u32::MAX);
        match mark.kind {
            MarkKind::WindowBegin => window.0 = at,
            MarkKind::WindowEnd => window.1 = at,
            _ => {}
        }
    }
    // A killed recorder's last op may have more to it than the file says.
    if timeline.trace().end != End::Clean {
        window.1 = window.1.min(timeline.op_count().saturating_sub(1));
    }
    window
}

/// The last iteration that is exactly like most others; else the last of the usual length.
fn steady_of(tokens: &Tokens, iterations: &[Iteration]) -> usize {
    let matched = || {
        iterations
            .iter()
            .enumerate()
            .filter(|(_, iteration)| iteration.matched)
    };
    let exact = |iteration: &Iteration| tokens.hash(iteration.start, iteration.end);
    let matched_count = matched().count();
    if let Some((place, count)) = last_of_majority(matched().map(|(p, i)| (p, exact(i))))
        && count >= 2
        && count * 3 >= matched_count
    {
        return place;
    }
    last_of_majority(matched().map(|(place, iteration)| (place, u64::from(iteration.ops()))))
        .map_or(iterations.len().saturating_sub(1), |(place, _)| place)
}

/// The last place that holds the most frequent value, and how often that occurs.
fn last_of_majority(values: impl Iterator<Item = (usize, u64)>) -> Option<(usize, usize)> {
    let mut counts: std::collections::HashMap<u64, (usize, usize)> = Default::default();
    for (place, value) in values {
        let entry = counts.entry(value).or_insert((0, 0));
        *entry = (entry.0 + 1, place);
    }
    counts
        .into_values()
        .max()
        .map(|(count, place)| (place, count))
}

/// Share of ops in matching iterations (the first complete one may differ: lazily made state), times
/// how alike those are; less if fewer than two were seen.
fn confidence_of(evidence: Evidence, segmentation: &Segmentation, iterations: &[Iteration]) -> f64 {
    let judged = if iterations.len() > 2 {
        iterations.get(1..)
    } else {
        iterations.get(..)
    };
    let judged = judged.unwrap_or(&[]);
    let ops = |iteration: &&Iteration| u64::from(iteration.ops());
    let all: u64 = judged.iter().map(|iteration| ops(&iteration)).sum();
    let alike: u64 = judged
        .iter()
        .filter(|iteration| iteration.matched)
        .map(|i| ops(&i))
        .sum();
    let matched: Vec<f64> = iterations
        .iter()
        .filter(|i| i.matched)
        .map(|iteration| iteration.similarity)
        .collect();
    let seen = matched.len() + usize::from(segmentation.head_alike);
    let mean = matched.iter().sum::<f64>() / crate::num::float(wide(matched.len().max(1)));
    let enough = match seen {
        0 => 0.0,
        1 => 0.4,
        2 => 0.9,
        _ => 1.0,
    };
    // Layers repeat too, within one iteration: without a name, what repeats must be most of the job.
    let expected = match evidence {
        Evidence::Given => 0.0,
        Evidence::OptimizerName | Evidence::ForeachName => 0.2,
        Evidence::HostGap | Evidence::InputCopy | Evidence::Period => 0.6,
    };
    let covers = if segmentation.coverage >= expected {
        1.0
    } else {
        0.4
    };
    share(alike, all).sqrt() * mean * enough * covers
}

/// Ops of every stream that lie in an iteration, by issue order: `(stream, sequence numbers)` for
/// each stream that has one, the main stream first.
#[must_use]
pub fn ops_by_stream(
    timeline: &Timeline<'_>,
    phase: &Phase,
    iteration: &Iteration,
) -> Vec<(StreamId, Vec<u32>)> {
    let others = timeline
        .streams()
        .filter(|stream| *stream != phase.main_stream);
    std::iter::once(phase.main_stream)
        .chain(others)
        .map(|stream| {
            let ops = timeline.ops_of(stream);
            let first = ops.partition_point(|seq| *seq < iteration.first_seq);
            let end = ops.partition_point(|seq| *seq < iteration.end_seq);
            (stream, ops.get(first..end).unwrap_or(&[]).to_vec())
        })
        .filter(|(_, ops)| !ops.is_empty())
        .collect()
}

/// The iteration each op lies in, for pictures: `None` before the first and after the last.
#[must_use]
pub fn iteration_of(phase: &Phase, seq: u32) -> Option<usize> {
    let after = phase
        .iterations
        .partition_point(|iteration| iteration.first_seq <= seq);
    let place = after.checked_sub(1)?;
    phase
        .iterations
        .get(place)
        .filter(|iteration| seq < iteration.end_seq)
        .map(|_| place)
}

/// Number of ops on all streams in an iteration.
#[must_use]
pub fn op_count(timeline: &Timeline<'_>, phase: &Phase, iteration: &Iteration) -> u32 {
    let streams = ops_by_stream(timeline, phase, iteration);
    narrow(streams.iter().map(|(_, ops)| ops.len()).sum())
}

/// Device time from the first op's start to the next iteration's, in nanoseconds; 0 if unknown.
#[must_use]
pub fn duration_ns(timeline: &Timeline<'_>, iteration: &Iteration) -> u64 {
    let start = |seq: u32| {
        let op = timeline.trace().ops.get(index(seq))?;
        Some(if op.start_ns.0 == 0 {
            op.issued_ns.0
        } else {
            op.start_ns.0
        })
    };
    let last = iteration.end_seq.checked_sub(1);
    let end = start(iteration.end_seq)
        .or_else(|| last.and_then(|seq| timeline.op(seq)).map(|op| op.end_ns.0));
    end.unwrap_or(0)
        .saturating_sub(start(iteration.first_seq).unwrap_or(0))
}
