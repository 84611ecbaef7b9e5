//! Takes a part of a trace out as a trace of its own: what is kept, and how ids are numbered anew.

use transit_format::ids::{FunctionId, OpSeq, StreamId};
use transit_format::trace::model::{Fault, Migration, Op, OpKind};
use transit_format::trace::{End, Trace};

use crate::assign;
use crate::cmd::windows;

/// Ops to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first.
    pub first_op: usize,
    /// One past the last.
    pub end_op: usize,
}

impl Part {
    /// A position among all ops as one among the kept.
    fn seq(self, at: OpSeq) -> OpSeq {
        OpSeq(at.0.saturating_sub(self.first_op as u64))
    }

    fn holds(self, op: u64) -> bool {
        (self.first_op as u64..self.end_op as u64).contains(&op)
    }
}

/// Cuts; `name` is the file's, noted in the header.
#[must_use]
pub fn cut(trace: &Trace, part: Part, name: &str) -> Trace {
    let mut kept = Trace {
        header: trace.header.clone(),
        end: End::Clean,
        ..Trace::default()
    };
    let all = part.first_op == 0 && part.end_op == trace.ops.len();
    if !all {
        let what = format!(
            "ops {}..{} of {} in {name}",
            part.first_op,
            part.end_op,
            trace.ops.len()
        );
        kept.header.notes.push(("cut".to_owned(), what));
    }
    ops(trace, part, &mut kept);
    allocations(trace, part, &mut kept);
    transfers(trace, part, &mut kept);
    let marks = trace
        .marks
        .iter()
        .filter(|mark| (part.first_op as u64..=part.end_op as u64).contains(&mark.at_op.0));
    kept.marks = marks.copied().collect();
    for mark in &mut kept.marks {
        mark.at_op = part.seq(mark.at_op);
    }
    kept.totals = trace.totals.clone();
    if !all {
        let hooked = |op: &&Op| matches!(op.kind, OpKind::Kernel | OpKind::Graph);
        kept.totals.ops = kept.ops.len() as u64;
        kept.totals.hooked_ops = kept.ops.iter().filter(hooked).count() as u64;
        let timed = kept.ops.iter().filter(hooked).filter(|op| op.end_ns.0 > 0);
        kept.totals.cupti_ops = timed.count() as u64;
        if trace.totals.unasked_ops > 0 {
            // Which ops were not asked for is not on record, only how many.
            kept.totals.hooked_ops = kept.totals.cupti_ops;
            let untimed = kept.ops.iter().filter(|op| op.end_ns.0 == 0).count() as u64;
            kept.totals.unasked_ops = untimed.min(trace.totals.unasked_ops);
        }
        kept.totals.check = None;
    }
    kept
}

/// Ops with their functions, streams and pointers, numbered in order of appearance.
fn ops(trace: &Trace, part: Part, kept: &mut Trace) {
    let mut functions = vec![None; trace.functions.len()];
    let mut streams = vec![None; trace.streams.len()];
    for op in trace.ops.iter().take(part.end_op).skip(part.first_op) {
        let pointers = trace.pointers_of(op);
        let function = renumber(&mut functions, op.function.index(), |old| {
            kept.functions.extend(trace.functions.get(old).cloned());
            kept.functions.len()
        });
        let stream = renumber(&mut streams, op.stream.index(), |old| {
            kept.streams.extend(trace.streams.get(old).copied());
            kept.streams.len()
        });
        kept.ops.push(Op {
            function: FunctionId(function),
            stream: StreamId(stream),
            first_pointer: kept.pointers.len() as u64,
            ..*op
        });
        kept.pointers.extend_from_slice(pointers);
    }
}

/// The new number of an entry; `add` copies it at first use and returns the table's new length.
fn renumber(table: &mut [Option<u32>], old: usize, add: impl FnOnce(usize) -> usize) -> u32 {
    let Some(slot) = table.get_mut(old) else {
        return 0;
    };
    *slot.get_or_insert_with(|| u32::try_from(add(old) - 1).unwrap_or(u32::MAX))
}

fn allocations(trace: &Trace, part: Part, kept: &mut Trace) {
    let before_end = |at: OpSeq| at.0 < part.end_op as u64 || part.end_op == trace.ops.len();
    kept.allocs = trace
        .allocs
        .iter()
        .take_while(|one| before_end(one.at_op))
        .cloned()
        .collect();
    let count = kept.allocs.len();
    let frees = trace
        .frees
        .iter()
        .filter(|one| before_end(one.at_op) && one.alloc.index() < count);
    kept.frees = frees.copied().collect();
    for alloc in &mut kept.allocs {
        alloc.at_op = part.seq(alloc.at_op);
    }
    for free in &mut kept.frees {
        free.at_op = part.seq(free.at_op);
    }
}

/// Migrations and faults of the kept ops: as the recorder says, else by time.
fn transfers(trace: &Trace, part: Part, kept: &mut Trace) {
    let begin = |at: usize| trace.ops.get(at).map_or(u64::MAX, windows::began_ns);
    let from = if part.first_op == 0 {
        0
    } else {
        begin(part.first_op)
    };
    let span = from..begin(part.end_op);
    let count = kept.allocs.len();
    for (one, op) in trace
        .migrations
        .iter()
        .zip(assign::migrations_to_ops(trace))
    {
        let inside = if op == assign::NO_OP {
            span.contains(&one.start_ns.0)
        } else {
            part.holds(u64::from(op))
        };
        if inside && one.alloc.index() < count {
            let op = one.op.filter(|op| part.holds(op.0)).map(|op| part.seq(op));
            kept.migrations.push(Migration { op, ..*one });
        }
    }
    for one in &trace.faults {
        let inside = one
            .op
            .map_or_else(|| span.contains(&one.start_ns.0), |op| part.holds(op.0));
        if inside && one.alloc.index() < count {
            let op = one.op.map(|op| part.seq(op));
            kept.faults.push(Fault { op, ..*one });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::windows;
    use crate::synthetic::Synthetic;

    fn read(trace: &Trace) -> Trace {
        let bytes = trace.write_to(Vec::new()).unwrap();
        Trace::read(&bytes, "cut").unwrap()
    }

    #[test]
    fn an_iteration_cut_out_is_a_valid_trace_with_the_same_ops_and_transfers() {
        let trace = Synthetic::default().trace();
        let window = windows::of(&trace).list[1];
        let part = Part {
            first_op: window.first_op,
            end_op: window.end_op,
        };
        let kept = read(&cut(&trace, part, "x.trace.zst"));
        assert_eq!(kept.ops.len(), window.ops());
        for (new, old) in kept.ops.iter().zip(&trace.ops[window.first_op..]) {
            let name = |trace: &Trace, op: &Op| trace.functions[op.function.index()].name.clone();
            assert_eq!(name(&kept, new), name(&trace, old));
            assert_eq!(kept.pointers_of(new), trace.pointers_of(old));
        }
        let moved = |trace: &Trace, from: u64, to: u64| -> u64 {
            let inside = trace
                .migrations
                .iter()
                .filter(|one| one.op.is_some_and(|op| (from..to).contains(&op.0)));
            inside.map(|one| one.bytes).sum()
        };
        assert_eq!(
            moved(&kept, 0, kept.ops.len() as u64),
            moved(&trace, window.first_op as u64, window.end_op as u64)
        );
        assert_eq!(
            kept.allocs.len(),
            trace.allocs.len(),
            "ordinals of allocations must hold"
        );
        assert_eq!(kept.end, End::Clean);
        assert_eq!(kept.header.notes.last().unwrap().0, "cut");
    }

    #[test]
    fn cutting_nothing_off_changes_nothing() {
        let trace = Synthetic::default().trace();
        let all = Part {
            first_op: 0,
            end_op: trace.ops.len(),
        };
        let kept = cut(&trace, all, "x");
        assert_eq!(
            (&kept.ops, &kept.migrations),
            (&trace.ops, &trace.migrations)
        );
        assert_eq!((&kept.allocs, &kept.totals), (&trace.allocs, &trace.totals));
    }
}
