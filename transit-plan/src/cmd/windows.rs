//! Where a trace's iterations begin and end, in ops and in time: shared by every verb that shows
//! or compares iterations.

use serde::Serialize;
use transit_format::trace::Trace;
use transit_format::trace::model::{MarkKind, Op};

use crate::iterations::{self, Boundary, Phase};
use crate::num::index;
use crate::timeline::Timeline;

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its first op.
    pub first_op: usize,
    /// One past its last op.
    pub end_op: usize,
    /// When its first op began (or was issued, without device times).
    pub start_ns: u64,
    /// When the next iteration's first op began; for the last one, when its last op ended.
    pub end_ns: u64,
    /// Whether it is like most others and not the first: what medians are taken over.
    pub steady: bool,
}

impl Window {
    /// Number of ops.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.end_op - self.first_op
    }

    /// Duration.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// The iterations of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Windows {
    /// In order.
    pub list: Vec<Window>,
    /// What they were told by.
    pub evidence: String,
    /// How sure, 0 to 1.
    pub confidence: f64,
}

impl Windows {
    /// Those that medians are taken over: the steady ones, or all where none is.
    #[must_use]
    pub fn steady(&self) -> Vec<Window> {
        let steady: Vec<Window> = self.list.iter().copied().filter(|one| one.steady).collect();
        if steady.is_empty() {
            self.list.clone()
        } else {
            steady
        }
    }
}

/// When an op began on the device, or was issued where that is unknown.
#[must_use]
pub fn began_ns(op: &Op) -> u64 {
    if op.start_ns.0 > 0 {
        op.start_ns.0
    } else {
        op.issued_ns.0
    }
}

/// When an op ended on the device, or was issued where that is unknown.
#[must_use]
pub fn ended_ns(op: &Op) -> u64 {
    op.end_ns.0.max(op.issued_ns.0)
}

/// Finds the iterations: the replayer's own marks where it left some, else the planner's search,
/// else the whole trace as one.
#[must_use]
pub fn of(trace: &Trace) -> Windows {
    let marked: Vec<usize> = trace
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::Iteration)
        .map(|mark| usize::try_from(mark.at_op.0).unwrap_or(usize::MAX))
        .filter(|first| *first < trace.ops.len())
        .collect();
    if marked.len() >= 2 {
        return from_starts(trace, &marked, "the replayer's marks", 1.0);
    }
    let timeline = Timeline::new(trace);
    if let Some(phase) = iterations::find(&timeline, &Boundary::Auto).filter(Phase::is_confident) {
        return from_phase(trace, &phase);
    }
    let whole: &[usize] = if trace.ops.is_empty() { &[] } else { &[0] };
    from_starts(trace, whole, NOTHING, 0.0)
}

/// What [`Windows::evidence`] says where nothing repeats.
const NOTHING: &str = "nothing repeats, so the whole trace counts as one";

/// Windows of the planner's iterations. They need not adjoin: an evaluation may lie between.
fn from_phase(trace: &Trace, phase: &Phase) -> Windows {
    let last_ns = trace.ops.iter().map(ended_ns).max().unwrap_or(0);
    let begin = |at: usize| trace.ops.get(at).map_or(last_ns, began_ns);
    let several = phase.matched().count() > 1;
    let mut first_matched = true;
    let mut list = Vec::with_capacity(phase.iterations.len());
    for iteration in &phase.iterations {
        let (first_op, end_op) = (index(iteration.first_seq), index(iteration.end_seq));
        // The first one still makes the optimizer's state or warms up.
        let steady = iteration.matched && !(several && first_op == 0 && first_matched);
        first_matched &= !iteration.matched;
        let (start_ns, end_ns) = (begin(first_op), begin(end_op));
        list.push(Window {
            first_op,
            end_op,
            start_ns,
            end_ns,
            steady,
        });
    }
    Windows {
        list,
        evidence: phase.evidence.name().to_owned(),
        confidence: phase.confidence,
    }
}

/// Makes windows from the first op of each iteration; what precedes the first belongs to none.
#[must_use]
pub fn from_starts(trace: &Trace, starts: &[usize], evidence: &str, confidence: f64) -> Windows {
    let last_ns = trace.ops.iter().map(ended_ns).max().unwrap_or(0);
    let mut list: Vec<Window> = Vec::with_capacity(starts.len());
    for (place, first) in starts.iter().enumerate() {
        let end = starts.get(place + 1).copied();
        let begin = |at: usize| trace.ops.get(at).map_or(last_ns, began_ns);
        list.push(Window {
            first_op: *first,
            end_op: end.unwrap_or(trace.ops.len()),
            start_ns: begin(*first),
            end_ns: end.map_or(last_ns, begin),
            steady: false,
        });
    }
    let mut lengths: Vec<usize> = list.iter().map(Window::ops).collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let skipped = usize::from(list.len() > 1);
    for window in list.iter_mut().skip(skipped) {
        window.steady = window.ops().abs_diff(usual) * 20 <= usual;
    }
    Windows {
        list,
        evidence: evidence.to_owned(),
        confidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn marks_of_a_replayer_are_taken_and_the_first_iteration_is_not_steady() {
        let made = Synthetic::default();
        let trace = made.trace();
        let length = trace.ops.len() / 4;
        let starts: Vec<usize> = (0..4).map(|step| step * length).collect();
        let windows = from_starts(&trace, &starts, "test", 1.0);
        assert_eq!(windows.list.len(), 4);
        assert_eq!(windows.steady().len(), 3);
        assert!(
            windows
                .list
                .iter()
                .all(|one| one.ops() == length && one.duration_ns() > 0)
        );
    }

    #[test]
    fn without_marks_or_period_the_trace_is_one_window() {
        let mut trace = Synthetic {
            layers: 1,
            steps: 1,
            ..Synthetic::default()
        }
        .trace();
        assert_eq!(of(&trace).list.len(), 1);
        trace.ops.clear();
        assert!(of(&trace).list.is_empty());
    }
}
