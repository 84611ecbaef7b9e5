//! Plans that are cut, flipped, or well-formed and hostile: they may cost speed, never a result.

use fastrand::Rng;
use transit_format::ids::{Ordinal, StreamId};
use transit_format::plan::model::{Action, Placement, Plan, Range, Step};

const ACTIONS: [Action; 5] = [
    Action::PrefetchToDevice,
    Action::EvictToHost,
    Action::AdviseAccessedBy,
    Action::AdvisePreferHost,
    Action::AdviseReadMostly,
];

/// Offsets and lengths that invite mistakes.
const ODD_BYTES: [u64; 9] = [
    0,
    1,
    4095,
    4096,
    (2 << 20) - 1,
    1 << 40,
    i64::MAX as u64,
    u64::MAX - 4095,
    u64::MAX,
];

/// A plan's bytes, damaged in one or a few places.
pub(crate) fn damaged(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    if rng.bool() {
        bytes.truncate(rng.usize(..bytes.len()));
    } else {
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..bytes.len());
            bytes[at] ^= 1 << rng.u8(..8);
        }
    }
    bytes
}

/// The same plan with several well-meant facts made hostile; which, for a message.
pub(crate) fn hostile(rng: &mut Rng, plan: &mut Plan) -> String {
    let mut done = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let (name, change): (&str, fn(&mut Rng, &mut Plan)) = match rng.usize(..9) {
            0 => ("steps at every op", steps_at_every_op),
            1 => ("all steps evict", all_steps_evict),
            2 => ("very many ranges", very_many_ranges),
            3 => ("contradicting placements", contradicting_placements),
            4 => ("odd ranges", odd_ranges),
            5 => ("other sizes", other_sizes),
            6 => ("other names", other_names),
            7 => ("an odd shape", odd_shape),
            _ => ("other pointers", other_pointers),
        };
        change(rng, plan);
        done.push(name);
    }
    done.join(", ")
}

/// A range within a random allocation.
fn range(rng: &mut Rng, plan: &Plan) -> Option<Range> {
    let alloc = rng.usize(..plan.allocs.len().max(1));
    let whole = plan.allocs.get(alloc)?.bytes;
    let offset = rng.u64(..whole.max(1)) & !4095;
    Some(Range {
        alloc: alloc as u32,
        offset,
        bytes: rng.u64(1..=(whole - offset).max(1)),
    })
}

fn steps_at_every_op(rng: &mut Rng, plan: &mut Plan) {
    let mut steps = Vec::new();
    for (stream, ops) in (0_u32..).zip(plan.streams.iter().map(|stream| stream.ops.len())) {
        for ordinal in 0..ops as u32 {
            let ranges = (0..rng.usize(1..4))
                .filter_map(|_| range(rng, plan))
                .collect();
            steps.push(Step {
                stream: StreamId(stream),
                ordinal: Ordinal(ordinal),
                action: ACTIONS[rng.usize(..ACTIONS.len())],
                ranges,
            });
        }
    }
    plan.steps = steps;
}

fn all_steps_evict(rng: &mut Rng, plan: &mut Plan) {
    steps_at_every_op(rng, plan);
    let whole = |(alloc, known): (u32, &_)| {
        let known: &transit_format::plan::model::PlanAlloc = known;
        Range {
            alloc,
            offset: 0,
            bytes: known.bytes,
        }
    };
    let all: Vec<Range> = (0_u32..).zip(&plan.allocs).map(whole).collect();
    for step in &mut plan.steps {
        step.action = Action::EvictToHost;
        step.ranges.clone_from(&all);
    }
}

fn very_many_ranges(rng: &mut Rng, plan: &mut Plan) {
    let many: Vec<Range> = (0..3000).filter_map(|_| range(rng, plan)).collect();
    if let Some(step) = plan.steps.first_mut() {
        step.ranges.clone_from(&many);
    }
    plan.start_resident = many;
}

fn contradicting_placements(rng: &mut Rng, plan: &mut Plan) {
    for _ in 0..64 {
        let Some(range) = range(rng, plan) else {
            return;
        };
        for action in ACTIONS {
            plan.placements.push(Placement { action, range });
        }
    }
    rng.shuffle(&mut plan.placements);
}

/// Empty, odd, or so large that a sum overflows; the plan's allocations are made to hold them.
fn odd_ranges(rng: &mut Rng, plan: &mut Plan) {
    for step in &mut plan.steps {
        for range in &mut step.ranges {
            if rng.u8(..4) == 0 {
                range.offset = ODD_BYTES[rng.usize(..ODD_BYTES.len())];
                let most = u64::MAX - range.offset;
                range.bytes = ODD_BYTES[rng.usize(..ODD_BYTES.len())].min(most);
                if let Some(alloc) = plan.allocs.get_mut(range.alloc as usize) {
                    alloc.bytes = alloc.bytes.max(range.offset + range.bytes);
                }
            }
        }
    }
}

fn other_sizes(rng: &mut Rng, plan: &mut Plan) {
    for alloc in &mut plan.allocs {
        match rng.usize(..4) {
            // Ranges in it stay within what the plan says, and lie beyond what the job has.
            0 => alloc.bytes = alloc.bytes.saturating_mul(2),
            1 => alloc.turn = rng.u32(..8),
            2 => alloc.ordinal = rng.u32(..8),
            _ => alloc.device = rng.u32(..3),
        }
    }
}

fn other_names(_: &mut Rng, plan: &mut Plan) {
    let name = "_Z14another_kernelPfi";
    for known in &mut plan.names {
        name.clone_into(known);
    }
    for op in plan.streams.iter_mut().flat_map(|stream| &mut stream.ops) {
        op.name_hash = transit_format::plan::name_hash(name.as_bytes());
    }
}

fn odd_shape(rng: &mut Rng, plan: &mut Plan) {
    let shape = &mut plan.shape;
    match rng.usize(..6) {
        0 => shape.anchor_ops = [0, 1, 100_000][rng.usize(..3)],
        1 => shape.card_bytes = [0, 1, 2 << 20, 4 << 20, u64::MAX][rng.usize(..5)],
        2 => shape.capacity_bytes = [0, u64::MAX][rng.usize(..2)],
        3 => shape.midpoint = Ordinal([0, 1, u32::MAX][rng.usize(..3)]),
        4 => shape.min_convert_bytes = [0, u64::MAX][rng.usize(..2)],
        _ => shape.advise_all_at_midpoint = !shape.advise_all_at_midpoint,
    }
}

fn other_pointers(rng: &mut Rng, plan: &mut Plan) {
    let allocs = &plan.allocs;
    for op in plan.streams.iter_mut().flat_map(|stream| &mut stream.ops) {
        for (alloc, offset) in &mut op.pointers {
            let other = rng.usize(..allocs.len());
            *alloc = other as u32;
            *offset = rng.u64(..allocs[other].bytes.max(1));
        }
    }
}
