//! The part of a trace that a heatmap shows, and its horizontal axis: device time, or ops in the
//! order they were issued.

use transit_format::trace::Trace;
use transit_format::trace::model::{Fault, FaultKind, Migration, Op};

use crate::cmd::windows::{self, Window, Windows};

/// What runs along the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Along {
    /// Device time.
    Time,
    /// Ops, in the order they were issued.
    Op,
}

/// Time, unless the device idled for most of it: an emulated card settles after every op, and
/// what moves would be lost between the waits.
#[must_use]
pub fn best(trace: &Trace) -> Along {
    let (from, to) = time_span(trace);
    let ops = trace
        .ops
        .iter()
        .map(|op| op.end_ns.0.saturating_sub(op.start_ns.0));
    let busy_ns: u64 = ops.sum();
    if busy_ns as f64 * 5.0 < to - from {
        Along::Op
    } else {
        Along::Time
    }
}

/// A part of a trace with its axis.
#[derive(Debug)]
pub struct View<'t> {
    /// The trace.
    pub trace: &'t Trace,
    /// The axis.
    pub along: Along,
    /// First value on the axis: nanoseconds or op number.
    pub min: f64,
    /// Last.
    pub max: f64,
    /// Iterations that begin within it.
    pub windows: Vec<Window>,
    /// The number of the first of them.
    pub first_window: usize,
    /// The op of each migration.
    op_of_migration: Vec<u32>,
}

impl<'t> View<'t> {
    /// The whole trace, or the iterations `from..to` of it. `op_of_migration` is needed along ops.
    #[must_use]
    pub fn new(
        trace: &'t Trace,
        along: Along,
        windows: &Windows,
        range: Option<(usize, usize)>,
        op_of_migration: Vec<u32>,
    ) -> Self {
        let first_window = range.map_or(0, |(from, _)| from);
        // The whole trace counted as one iteration has no boundary to show.
        let found = windows.confidence > 0.0;
        let mut list = if found {
            windows.list.clone()
        } else {
            Vec::new()
        };
        if let Some((from, to)) = range {
            list = list.into_iter().take(to).skip(from).collect();
        }
        let (min, max) = match (range, along) {
            (Some(_), Along::Time) => (
                list.first().map_or(0, |one| one.start_ns) as f64,
                list.last().map_or(0, |one| one.end_ns) as f64,
            ),
            (Some(_), Along::Op) => (
                list.first().map_or(0, |one| one.first_op) as f64,
                list.last().map_or(0, |one| one.end_op) as f64,
            ),
            (None, Along::Op) => (0.0, trace.ops.len() as f64),
            (None, Along::Time) => time_span(trace),
        };
        Self {
            trace,
            along,
            min,
            max: max.max(min + 1.0),
            windows: list,
            first_window,
            op_of_migration,
        }
    }

    /// Where a migration lies along the axis, `None` if outside or unknown.
    #[must_use]
    pub fn of_migration(&self, place: usize, migration: &Migration) -> Option<(f64, f64)> {
        match self.along {
            Along::Time => self.within(migration.start_ns.0 as f64, migration.end_ns.0 as f64),
            Along::Op => {
                let op = self
                    .op_of_migration
                    .get(place)
                    .filter(|op| **op != u32::MAX)?;
                self.within(f64::from(*op), f64::from(*op) + 1.0)
            }
        }
    }

    /// Where a remote map lies along the axis.
    #[must_use]
    pub fn of_fault(&self, fault: &Fault) -> Option<(f64, f64)> {
        let start = fault.start_ns.0;
        match self.along {
            Along::Time => self.within(start as f64, fault.end_ns.0 as f64),
            Along::Op => {
                let by_time = || self.trace.ops.partition_point(|op| ended_by(op, start)) as u64;
                let op = fault.op.map_or_else(by_time, |op| op.0) as f64;
                self.within(op, op + 1.0)
            }
        }
    }

    /// Where an op lies along the axis.
    #[must_use]
    pub fn of_op(&self, place: usize, op: &Op) -> Option<(f64, f64)> {
        match self.along {
            Along::Time => self.within(windows::began_ns(op) as f64, windows::ended_ns(op) as f64),
            Along::Op => self.within(place as f64, place as f64 + 1.0),
        }
    }

    /// Where something that holds from one op and time to another lies along the axis.
    #[must_use]
    pub fn of_life(&self, from: (u64, u64), to: (u64, u64)) -> Option<(f64, f64)> {
        match self.along {
            Along::Time => self.within(from.1 as f64, to.1 as f64),
            Along::Op => self.within(from.0 as f64, to.0 as f64),
        }
    }

    /// Where an iteration begins along the axis.
    #[must_use]
    pub fn begin_of(&self, window: &Window) -> f64 {
        match self.along {
            Along::Time => window.start_ns as f64,
            Along::Op => window.first_op as f64,
        }
    }

    /// Remote maps of the trace.
    pub fn remote_maps(&self) -> impl Iterator<Item = &'t Fault> {
        self.trace
            .faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::RemoteMap)
    }

    fn within(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        (to >= self.min && from <= self.max).then(|| (from.max(self.min), to.min(self.max)))
    }
}

fn ended_by(op: &Op, ns: u64) -> bool {
    windows::ended_ns(op) < ns
}

fn time_span(trace: &Trace) -> (f64, f64) {
    let ops = trace
        .ops
        .iter()
        .map(|op| (windows::began_ns(op), windows::ended_ns(op)));
    let moves = trace
        .migrations
        .iter()
        .map(|one| (one.start_ns.0, one.end_ns.0));
    let mut span = (u64::MAX, 0);
    for (from, to) in ops.chain(moves) {
        span = (span.0.min(from), span.1.max(to));
    }
    (span.0.min(span.1) as f64, span.1 as f64)
}
