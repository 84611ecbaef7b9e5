//! From a policy's outcome to the plan that is written: tables, ops as a replayer recognises them,
//! steps in its order.

use std::collections::HashMap;

use transit_format::ids::{OpSeq, Ordinal, StreamId};
use transit_format::plan::model::{Action, Meta, Placement, Plan, PlanOp, PlanStream, Shape, Step};
use transit_format::plan::name_hash;

use crate::alloc_table::AllocTable;
use crate::num::{index, narrow};
use crate::policy::{Outcome, Policy};
use crate::ranges::Span;
use crate::space::{Space, plan_range};
use crate::timeline::Timeline;
use crate::unrolled::Unrolled;

/// The plan of one policy. `shape` gives capacity and card; the rest of it is filled in here.
#[must_use]
pub fn plan(
    timeline: &Timeline<'_>,
    unrolled: &Unrolled,
    space: &Space,
    outcome: &Outcome,
    meta: Meta,
    shape: Shape,
) -> Plan {
    let mut allocs = AllocTable::new(timeline.trace());
    let mut names = Names::default();
    let streams = streams(timeline, unrolled, &mut allocs, &mut names);
    let steps = steps(unrolled, outcome, &mut allocs);
    let mut resident: Vec<Span> = outcome
        .start_resident
        .iter()
        .map(|chunk| space.chunk_span(*chunk))
        .collect();
    crate::ranges::coalesce(&mut resident, 0);
    let start_resident = resident
        .iter()
        .filter_map(|span| Some(plan_range(*span, allocs.place(span.alloc)?)))
        .collect();
    let shape = Shape {
        main_stream: StreamId(0),
        anchor_ops: streams.first().map_or(0, |stream| anchor_ops(&stream.ops)),
        midpoint: Ordinal(outcome.midpoint.unwrap_or(unrolled.main_ops() / 2)),
        advise_all_at_midpoint: outcome.midpoint.is_some(),
        ..shape
    };
    Plan {
        meta,
        shape,
        names: names.list,
        allocs: allocs.finish(),
        streams,
        steps,
        placements: Vec::new(),
        start_resident,
    }
}

/// A plan without a phase: placements only. Advise can be given to each allocation as it is made;
/// the other policies have nothing to say without knowing when.
#[must_use]
pub fn without_phase(timeline: &Timeline<'_>, policy: Policy, meta: Meta, shape: Shape) -> Plan {
    let mut allocs = AllocTable::new(timeline.trace());
    let mut placements = Vec::new();
    if policy == Policy::Advise {
        let end = OpSeq(u64::from(timeline.op_count()));
        for (alloc, entry) in timeline
            .live_at(end)
            .filter(|(_, e)| (e.managed || e.converted) && !e.pooled)
        {
            let span = Span {
                alloc,
                start: 0,
                end: entry.bytes,
            };
            placements.extend(allocs.place(alloc).map(|place| Placement {
                action: Action::AdviseAccessedBy,
                range: plan_range(span, place),
            }));
        }
    }
    Plan {
        meta,
        shape,
        placements,
        allocs: allocs.finish(),
        ..Plan::default()
    }
}

#[derive(Default)]
struct Names {
    list: Vec<String>,
    place: HashMap<String, u32>,
}

impl Names {
    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.place.get(name) {
            return *place;
        }
        let place = narrow(self.list.len());
        self.list.push(name.to_owned());
        self.place.insert(name.to_owned(), place);
        place
    }
}

fn streams(
    timeline: &Timeline<'_>,
    unrolled: &Unrolled,
    allocs: &mut AllocTable<'_>,
    names: &mut Names,
) -> Vec<PlanStream> {
    let mut streams = Vec::new();
    for (stream, seqs) in &unrolled.streams {
        let mut ops = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let Some(op) = timeline.op(*seq) else {
                continue;
            };
            let name = timeline.name(op);
            let pointers = timeline.pointers(*seq).iter();
            let pointers =
                pointers.filter_map(|pointer| Some((allocs.place(pointer.alloc)?, pointer.offset)));
            ops.push(PlanOp {
                kind: op.kind,
                name_hash: name_hash(name.as_bytes()),
                shape: op.shape,
                name: names.place(name),
                pointers: pointers.collect(),
            });
        }
        let stream = timeline
            .trace()
            .streams
            .get(stream.index())
            .copied()
            .unwrap_or_default();
        streams.push(PlanStream { stream, ops });
    }
    streams
}

fn steps(unrolled: &Unrolled, outcome: &Outcome, allocs: &mut AllocTable<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for deed in &outcome.deeds {
        let Some(op) = unrolled.ops.get(deed.place) else {
            continue;
        };
        let place = |span: &Span| Some(plan_range(*span, allocs.place(span.alloc)?));
        let ranges = deed.spans.iter().filter_map(place).collect();
        steps.push(Step {
            stream: StreamId(op.stream),
            ordinal: Ordinal(op.ordinal),
            action: deed.action,
            ranges,
        });
    }
    // Stable: what is done for one op keeps its order.
    steps.sort_by_key(|step| (step.stream, step.ordinal));
    steps
}

/// The fewest leading ops that occur in this order nowhere else in the iteration, seen as a cycle.
fn anchor_ops(ops: &[PlanOp]) -> u32 {
    let name = |place: usize| {
        ops.get(place % ops.len().max(1))
            .map(|op| (op.kind, op.name_hash))
    };
    let mut rivals: Vec<usize> = (1..ops.len()).collect();
    let mut length = 0;
    while !rivals.is_empty() && length < ops.len() {
        rivals.retain(|rival| name(rival + length) == name(length));
        length += 1;
    }
    // A single op is too easily met elsewhere in the job (evaluation, start-up).
    narrow(length.max(4.min(ops.len())))
}

/// Ops that a plan's steps speak to.
#[must_use]
pub fn ops_with_steps(plan: &Plan) -> usize {
    let mut last = None;
    let mut count = 0;
    for step in &plan.steps {
        let at = Some((step.stream, step.ordinal));
        count += usize::from(at != last);
        last = at;
    }
    count
}

/// Bytes that a plan's steps of one kind speak of.
#[must_use]
pub fn step_bytes(plan: &Plan, action: Action) -> u64 {
    let steps = plan.steps.iter().filter(|step| step.action == action);
    steps
        .flat_map(|step| &step.ranges)
        .map(|range| range.bytes)
        .sum()
}

/// Whether an op index lies in a plan's stream; for checks.
#[must_use]
pub fn has_op(plan: &Plan, stream: StreamId, ordinal: Ordinal) -> bool {
    plan.streams
        .get(stream.index())
        .is_some_and(|s| s.ops.get(index(ordinal.0)).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(names: &str) -> Vec<PlanOp> {
        let op = |name: u8| PlanOp {
            name_hash: u64::from(name),
            ..PlanOp::default()
        };
        names.bytes().map(op).collect()
    }

    #[test]
    fn the_anchor_is_as_long_as_it_must_be() {
        assert_eq!(anchor_ops(&ops("abcdefgh")), 4);
        // The same micro-batch twice, then the optimizer.
        assert_eq!(anchor_ops(&ops("abcdeabcdez")), 6);
        assert_eq!(anchor_ops(&ops("aaaa")), 4);
        assert_eq!(anchor_ops(&[]), 0);
    }
}
