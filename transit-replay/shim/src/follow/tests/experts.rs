//! A mixture of experts: between the fixed ops of its layers lie ops whose number, kernels and
//! addresses the data decides. The place is lost there, and found again on the weights of what
//! follows.

use transit_format::ids::{Ordinal, StreamId};
use transit_format::plan::model::{
    Action, Plan, PlanAlloc, PlanOp, PlanStream, Range, Shape, Step,
};
use transit_format::trace::model::{OpKind, Stream, StreamKind};

use crate::follow::core::Phase;
use crate::follow::tests::programs::{Bench, Issued, MIB, Random};

const LAYERS: u64 = 6;
const EXPERTS: u64 = 8;
/// Plan allocations: all weights, all activations.
const WEIGHTS: u32 = 0;
const ACTIVATIONS: u32 = 1;

/// An op: kernel, pointers, and whether it is one of those the data leaves alone.
#[derive(Clone, Debug)]
struct Op {
    name: u64,
    pointers: Vec<(u32, u64)>,
    fixed: bool,
}

fn fixed(name: u64, weight: u64, activation: u64) -> Op {
    Op {
        name,
        pointers: vec![(WEIGHTS, weight * 4096), (ACTIVATIONS, activation * 4096)],
        fixed: true,
    }
}

/// Layers forwards or backwards; `random` is the data.
fn pass(ops: &mut Vec<Op>, random: &mut Random, kernels: u64, layers: impl Iterator<Item = u64>) {
    for layer in layers {
        for at in 0..10 {
            // Some kernels only touch activations, at places that every layer uses.
            ops.push(if at % 2 == 0 {
                fixed(kernels + at, layer * 100 + at, at)
            } else {
                Op {
                    pointers: vec![(ACTIVATIONS, at * 4096)],
                    ..fixed(kernels + at, 0, 0)
                }
            });
        }
        for expert in 0..EXPERTS {
            let tokens = random.below(6);
            let anywhere = |random: &mut Random| (ACTIVATIONS, random.below(1000) * 512);
            let mut own = |name: u64, weight: Option<u64>| {
                let mut pointers = vec![anywhere(random)];
                pointers.extend(weight.map(|weight| (WEIGHTS, weight * 4096)));
                ops.push(Op {
                    name,
                    pointers,
                    fixed: false,
                });
            };
            own(kernels + 50, None);
            own(kernels + 51, None);
            if tokens == 0 {
                continue;
            }
            // Another tile for each size, and some are split in two launches.
            for (turn, tile) in [(0, tokens), (1, tokens + 7)] {
                own(
                    kernels + 60 + tile,
                    Some(layer * 100 + 20 + expert * 2 + turn),
                );
                if tokens.is_multiple_of(2) {
                    own(kernels + 80, None);
                }
                own(kernels + 52 + turn, None);
            }
        }
    }
}

fn step(random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for at in 0..16 {
        ops.push(fixed(100 + at, 5000 + at, at));
    }
    pass(&mut ops, random, 1000, 0..LAYERS);
    pass(&mut ops, random, 2000, (0..LAYERS).rev());
    for at in 0..40 {
        ops.push(fixed(300, 6000 + at, 500 + at));
    }
    ops
}

/// A plan of one recorded step; every fixed op with weights has a step of its own.
fn plan(random: &mut Random) -> Plan {
    let recorded = step(random);
    let mut plan = Plan {
        shape: Shape {
            anchor_ops: 12,
            midpoint: Ordinal(60),
            ..Shape::default()
        },
        ..Plan::default()
    };
    for ordinal in [WEIGHTS, ACTIVATIONS] {
        plan.allocs.push(PlanAlloc {
            ordinal,
            turn: 0,
            bytes: (64 + u64::from(ordinal)) * MIB,
            device: 0,
        });
    }
    for (ordinal, op) in (0..).zip(&recorded) {
        if op.fixed && op.pointers.len() > 1 {
            let range = Range {
                alloc: WEIGHTS,
                offset: op.pointers[0].1,
                bytes: 4096,
            };
            plan.steps.push(Step {
                stream: StreamId(0),
                ordinal: Ordinal(ordinal),
                action: Action::PrefetchToDevice,
                ranges: vec![range],
            });
        }
    }
    let ops = recorded.into_iter().map(|op| PlanOp {
        kind: OpKind::Kernel,
        name_hash: op.name,
        pointers: op.pointers,
        ..PlanOp::default()
    });
    plan.streams.push(PlanStream {
        stream: Stream {
            kind: StreamKind::Legacy,
            device: 0,
            turn: 0,
        },
        ops: ops.collect(),
    });
    plan
}

fn issued(op: &Op) -> Issued {
    Issued {
        stream: 0,
        name: op.name,
        kind: OpKind::Kernel,
        pointers: op.pointers.clone(),
        truth: None,
        noise: !op.fixed,
    }
}

#[test]
fn experts_lose_the_place_and_the_next_layers_weights_give_it_back() {
    for seed in 0..8 {
        let mut random = Random(seed);
        let plan = plan(&mut random);
        let mut bench = Bench::new(&plan);
        for _ in 0..4 {
            for op in step(&mut random) {
                bench.issue(&issued(&op));
            }
        }
        let (mut due, mut handed, mut right) = (0, 0, 0);
        for _ in 0..20 {
            for op in step(&mut random) {
                let verdict = bench.issue(&issued(&op));
                due += u32::from(op.fixed && op.pointers.len() > 1);
                let Some((_, ordinal)) = bench.step_owner(&plan, &verdict) else {
                    continue;
                };
                // An op of another name on the very data is the plan's op by its role.
                let planned = &plan.streams[0].ops[ordinal as usize];
                handed += 1;
                right += u32::from(planned.pointers == op.pointers);
            }
        }
        let counters = bench.follower.counters();
        assert_eq!(bench.follower.phase(), Phase::Tracking, "seed {seed}");
        assert_eq!(counters.completed, 24, "seed {seed}");
        // By names alone it is none at all.
        assert!(right * 10 >= due * 9, "seed {seed}: {right} of {due}");
        assert!(
            (handed - right) * 50 <= handed,
            "seed {seed}: {right} of {handed}"
        );
    }
}
