//! Makes plans that a planner could have made.

use transit_format::ids::{Ordinal, StreamId};
use transit_format::plan::model::{
    Action, Meta, Placement, Plan, PlanAlloc, PlanOp, PlanStream, Range, Shape, Step,
};
use transit_format::plan::name_hash;
use transit_format::trace::model::{OpKind, Stream, StreamKind};

use super::Random;

const ACTIONS: [Action; 5] = [
    Action::PrefetchToDevice,
    Action::EvictToHost,
    Action::AdviseAccessedBy,
    Action::AdvisePreferHost,
    Action::AdviseReadMostly,
];

/// Two streams with `ops` ops each; every third op has steps.
pub fn plan(ops: u32, seed: u64) -> Plan {
    let mut random = Random(seed);
    let names: Vec<String> = (0..40)
        .map(|number| format!("_Z6kernel{number}Pfi"))
        .collect();
    let allocs: Vec<PlanAlloc> = (0..50)
        .map(|ordinal| PlanAlloc {
            ordinal,
            turn: ordinal / 5,
            bytes: (2 + random.below(30)) << 20,
            device: 0,
        })
        .collect();
    let mut plan = Plan {
        meta: Meta {
            tool_version: "0.1.0".into(),
            policy: "hybrid".into(),
            command: vec!["python".into(), "train.py".into()],
            rank: Some(0),
            device_name: "NVIDIA H200".into(),
            trace_hash: "deadbeef".into(),
            boundary_evidence: "optimizer kernel names".into(),
            confidence: 0.875,
            choices: vec![("gap".into(), "128 KiB".into())],
        },
        shape: Shape {
            capacity_bytes: 80 << 30,
            card_bytes: 80 << 30,
            main_stream: StreamId(1),
            anchor_ops: ops.min(8),
            midpoint: Ordinal(ops / 2),
            advise_all_at_midpoint: true,
            min_convert_bytes: 2 << 20,
        },
        names,
        allocs,
        ..Plan::default()
    };
    for turn in 0..2 {
        let stream = stream(&mut random, &mut plan, turn, ops);
        plan.streams.push(stream);
    }
    for action in ACTIONS {
        let range = range(&mut random, &plan.allocs);
        plan.placements.push(Placement { action, range });
        plan.start_resident.push(range);
    }
    plan
}

fn stream(random: &mut Random, plan: &mut Plan, turn: u32, ops: u32) -> PlanStream {
    let made = (0..ops).map(|ordinal| {
        if ordinal % 3 == 0 {
            for _ in 0..1 + random.below(2) {
                let action = ACTIONS[random.below(5) as usize];
                let ranges = (0..random.below(4))
                    .map(|_| range(random, &plan.allocs))
                    .collect();
                let (stream, ordinal) = (StreamId(turn), Ordinal(ordinal));
                plan.steps.push(Step {
                    stream,
                    ordinal,
                    action,
                    ranges,
                });
            }
        }
        let name = random.below(40) as u32;
        let pointers = (0..random.below(5)).map(|_| {
            let range = range(random, &plan.allocs);
            (range.alloc, range.offset)
        });
        let pointers = pointers.collect();
        PlanOp {
            kind: OpKind::Kernel,
            name_hash: name_hash(plan.names[name as usize].as_bytes()),
            shape: random.below(1 << 32) as u32,
            name,
            pointers,
        }
    });
    let ops = made.collect();
    PlanStream {
        stream: Stream {
            kind: StreamKind::Created,
            device: 0,
            turn,
        },
        ops,
    }
}

fn range(random: &mut Random, allocs: &[PlanAlloc]) -> Range {
    let alloc = random.below(allocs.len() as u64) as u32;
    let offset = random.below(allocs[alloc as usize].bytes >> 16) << 16;
    Range {
        alloc,
        offset,
        bytes: 1 << 16,
    }
}
