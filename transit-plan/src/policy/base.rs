//! Base: the driver's own faults and evictions, so the plan holds nothing. On an emulated card it
//! holds the evictions that the driver would have made, since the real card has room and makes none.
//!
//! A first-in-first-out card need not do the same in each iteration, and mostly does not: what comes
//! in must leave before it comes in again, so the same in each iteration would be the whole card or
//! nothing. What is predicted is the mean of several. A plan is the same in each iteration, so the
//! emulated Base is one whose iteration moves what that mean, or the recording of the same card,
//! moved: chunks that the simulation let stay longest stay, the others take turns first in first out.

use crate::num::{index, narrow};

use super::farthest::Farthest;
use super::walk::Walk;
use super::{Counts, Inputs, Outcome};

/// Iterations in which the card fills.
const WARM: u64 = 4;
/// Iterations of which the mean is taken.
const MEASURED: u64 = 8;
/// Halvings of the number of chunks that stay.
const HALVINGS: u32 = 7;

pub(super) fn plan(inputs: &Inputs<'_>) -> Outcome {
    let mut run = Run::new(inputs);
    if !inputs.emulate {
        if let Some(bytes) = inputs.recorded_bytes {
            run.mean.demand_bytes = bytes;
            run.mean.evicted_bytes = bytes;
        }
        return Outcome {
            counts: run.mean,
            converged: run.repeats,
            ..Outcome::default()
        };
    }
    let wanted = inputs.recorded_bytes.unwrap_or(run.mean.demand_bytes);
    let missed = |outcome: &Outcome| outcome.counts.demand_bytes.abs_diff(wanted);
    // Where even turns move more than is wanted, what is needed last leaves.
    let mut best = leaving_farthest(inputs);
    let fifo = staying(inputs, &run.order, 0);
    if missed(&fifo) < missed(&best) {
        best = fifo;
    }
    let (mut low, mut high) = (0, run.order.len());
    for _ in 0..HALVINGS {
        let count = (low + high) / 2;
        let outcome = staying(inputs, &run.order, count);
        if outcome.counts.demand_bytes > wanted {
            low = count;
        } else {
            high = count;
        }
        if missed(&outcome) < missed(&best) {
            best = outcome;
        }
    }
    best
}

/// Base where the first so many chunks of a list stay while there are others to evict.
fn staying(inputs: &Inputs<'_>, order: &[u32], count: usize) -> Outcome {
    let mut walk = Walk::new(inputs);
    walk.pinned = vec![false; index(inputs.space.chunks())];
    for chunk in order.iter().take(count) {
        if let Some(pinned) = walk.pinned.get_mut(index(*chunk)) {
            *pinned = true;
        }
    }
    walk.run(step)
}

/// Base that moves the least.
fn leaving_farthest(inputs: &Inputs<'_>) -> Outcome {
    let mut farthest = Farthest::new(inputs);
    let mut walk = Walk::new(inputs);
    walk.ordered = false;
    walk.run(|walk, place| {
        let touched = inputs.touches.touched(place);
        walk.mark(touched);
        let frames = walk.new_frames(touched);
        farthest.make_room(walk, place, frames);
        walk.fault_in(touched);
        farthest.used(place, touched);
    })
}

/// The driver at work on the whole card.
struct Run {
    mean: Counts,
    repeats: bool,
    /// Chunks in use, those that came in longest ago first.
    order: Vec<u32>,
}

impl Run {
    fn new(inputs: &Inputs<'_>) -> Self {
        let mut walk = Walk::on(inputs, inputs.card_chunks.max(inputs.capacity_chunks));
        walk.plans_evictions = false;
        let mut came = vec![0_u64; index(inputs.space.chunks())];
        let (mut sum, mut rounds, mut repeats) = (Counts::default(), 0, false);
        for round in 1..=WARM + MEASURED {
            let before = walk.state_hash();
            let mut op = |walk: &mut Walk<'_>, place| {
                let touched = inputs.touches.touched(place);
                for touch in touched.iter().filter(|t| !walk.card.holds(t.chunk)) {
                    if let Some(came) = came.get_mut(index(touch.chunk)) {
                        *came = round;
                    }
                }
                walk.fault_in(touched);
            };
            walk.iteration(&mut op);
            repeats = walk.state_hash() == before;
            if repeats {
                (sum, rounds) = (walk.counts.clone(), 1);
                break;
            }
            if round > WARM {
                sum = added(sum, &walk.counts);
                rounds += 1;
            }
        }
        let mut order: Vec<u32> = (0..narrow(came.len()))
            .filter(|chunk| came.get(index(*chunk)) > Some(&0))
            .collect();
        order.sort_by_key(|chunk| came.get(index(*chunk)).copied());
        Self {
            mean: Counts {
                demand_bytes: sum.demand_bytes / rounds.max(1),
                evicted_bytes: sum.evicted_bytes / rounds.max(1),
                ..sum
            },
            repeats,
            order,
        }
    }
}

fn added(sum: Counts, one: &Counts) -> Counts {
    Counts {
        demand_bytes: sum.demand_bytes + one.demand_bytes,
        evicted_bytes: sum.evicted_bytes + one.evicted_bytes,
        peak_chunks: sum.peak_chunks.max(one.peak_chunks),
        ..sum
    }
}

/// One op under Base.
pub(super) fn step(walk: &mut Walk<'_>, place: usize) {
    let touches = walk.inputs.touches;
    let touched = touches.touched(place);
    if walk.plans_evictions {
        walk.mark(touched);
        let frames = walk.new_frames(touched);
        walk.make_room(place, frames);
    }
    walk.fault_in(touched);
}
