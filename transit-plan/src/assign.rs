//! Which op a migration belongs to. The recorder knows when it settled after each op (emulated
//! card); otherwise the device's clock decides, as in the paper: the op that was running when the
//! transfer began, else the next one to run.

use transit_format::ids::AllocId;
use transit_format::trace::Trace;
use transit_format::trace::model::Op;

use crate::num::{index, narrow};

/// Marks a migration that no op can be named for: nothing ran during or after it.
pub const NO_OP: u32 = u32::MAX;

/// How many ops that began earlier are looked at for one that still runs. More streams than this
/// with ops in flight at once are not seen on training jobs.
const LOOK_BACK: usize = 32;

/// The op of each migration, [`NO_OP`] where there is none.
#[must_use]
pub fn migrations_to_ops(trace: &Trace) -> Vec<u32> {
    let clock = Clock::new(trace);
    let op_count = u64::try_from(trace.ops.len()).unwrap_or(u64::MAX);
    let mut near = 0;
    trace
        .migrations
        .iter()
        .map(
            |migration| match migration.op.filter(|op| op.0 < op_count) {
                Some(op) => u32::try_from(op.0).unwrap_or(NO_OP),
                None => clock.op_at(migration.start_ns.0, migration.alloc, &mut near),
            },
        )
        .collect()
}

/// Ops by device time.
struct Clock<'t> {
    trace: &'t Trace,
    /// Ops whose times are known, and those of stretches without times, by start.
    order: Vec<u32>,
    /// For each of them the latest end so far: nothing earlier still runs after it.
    latest_end_ns: Vec<u64>,
}

impl<'t> Clock<'t> {
    fn new(trace: &'t Trace) -> Self {
        let ops = &trace.ops;
        let mut order = with_times(ops);
        let start = |seq: &u32| start_of(ops.get(index(*seq)));
        if !order.is_sorted_by_key(start) {
            order.sort_by_key(start);
        }
        let mut latest = 0;
        let ends = order.iter().map(|seq| {
            latest = ops.get(index(*seq)).map_or(0, |op| op.end_ns.0).max(latest);
            latest
        });
        let latest_end_ns = ends.collect();
        Self {
            trace,
            order,
            latest_end_ns,
        }
    }

    /// The op for a transfer that began at a time. `near` is where the last answer was found:
    /// transfers come nearly in order of time.
    fn op_at(&self, at_ns: u64, alloc: AllocId, near: &mut usize) -> u32 {
        let start = |place: usize| start_of(self.order.get(place).and_then(|seq| self.op(*seq)));
        let mut next = (*near).min(self.order.len());
        let mut steps = 0;
        while steps < LOOK_BACK && next < self.order.len() && start(next) <= at_ns {
            next += 1;
            steps += 1;
        }
        let settled = next == self.order.len() || start(next) > at_ns;
        if !settled
            || next
                .checked_sub(1)
                .is_some_and(|before| start(before) > at_ns)
        {
            next = self
                .order
                .partition_point(|seq| start_of(self.op(*seq)) <= at_ns);
        }
        *near = next;
        self.running_at(at_ns, next, alloc)
            .or_else(|| self.order.get(next).copied())
            .unwrap_or(NO_OP)
    }

    /// The op that runs at a time, among the last few that began before it: the youngest that
    /// points into the allocation, else the youngest.
    fn running_at(&self, at_ns: u64, next: usize, alloc: AllocId) -> Option<u32> {
        let mut youngest = None;
        let first = next.saturating_sub(LOOK_BACK);
        let near = self.order.get(first..next).unwrap_or(&[]).iter();
        let ends = self.latest_end_ns.get(first..next).unwrap_or(&[]).iter();
        for (seq, latest_end_ns) in near.zip(ends).rev() {
            if *latest_end_ns < at_ns {
                break;
            }
            let Some(op) = self.op(*seq) else { continue };
            if op.end_ns.0.max(start_of(Some(op))) < at_ns {
                continue;
            }
            if self
                .trace
                .pointers_of(op)
                .iter()
                .any(|pointer| pointer.alloc == alloc)
            {
                return Some(*seq);
            }
            youngest = youngest.or(Some(*seq));
        }
        youngest
    }

    fn op(&self, seq: u32) -> Option<&'t Op> {
        self.trace.ops.get(index(seq))
    }
}

/// The ops to look among: those with device times. Where there are none far and wide (no CUPTI, or it
/// was not asked), the host's clock is the best there is.
fn with_times(ops: &[Op]) -> Vec<u32> {
    let mut order = Vec::with_capacity(ops.len());
    let mut first = 0_u32;
    for stretch in ops.chunk_by(|one, next| (one.start_ns.0 == 0) == (next.start_ns.0 == 0)) {
        let timed = stretch.first().is_some_and(|op| op.start_ns.0 != 0);
        let end = first.saturating_add(narrow(stretch.len()));
        if timed || stretch.len() > LOOK_BACK || stretch.len() == ops.len() {
            order.extend(first..end);
        }
        first = end;
    }
    order
}

fn start_of(op: Option<&Op>) -> u64 {
    op.map_or(u64::MAX, |op| {
        if op.start_ns.0 == 0 {
            op.issued_ns.0
        } else {
            op.start_ns.0
        }
    })
}
