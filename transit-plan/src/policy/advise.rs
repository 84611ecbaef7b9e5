//! Advise: at the midpoint of one iteration, all memory is advised `SetAccessedBy` the GPU. What is
//! on the host then is read there from then on, what is on the card stays: nothing migrates again.
//!
//! So the card should hold then what is touched most. Left to faults it holds what migrated last,
//! temporaries among it; beyond the paper, what is touched most in an iteration is fetched right
//! before the advice (not with `--paper-literal`). Later iterations find it there.
//!
//! Memory of stream-ordered pools takes no advice (the driver refuses it), so what of it is not on the
//! card goes on migrating: it comes first among what is fetched.

use std::collections::HashSet;

use transit_format::plan::model::Action;

use crate::num::index;
use crate::ranges::{Span, coalesce};
use crate::space::{Touch, mask_bytes};

use super::walk::Walk;
use super::{Deed, Inputs, Outcome, ROUNDS, base};

pub(super) fn plan(inputs: &Inputs<'_>) -> Outcome {
    let midpoint = inputs.unrolled.main_ops() / 2;
    let middle = inputs.unrolled.place_of_main(midpoint).unwrap_or(0);
    // Iterations before the advice are Base's.
    let mut walk = Walk::new(inputs);
    for _ in 0..ROUNDS {
        let before = walk.card.state_hash();
        walk.iteration(&mut base::step);
        if walk.card.state_hash() == before {
            break;
        }
    }
    let start: Vec<u32> = walk.card.contents().collect();
    let last_touch = last_touches(inputs, middle);
    let hot = if inputs.paper_literal {
        Vec::new()
    } else {
        hottest(inputs)
    };
    walk.iteration(&mut |walk: &mut Walk<'_>, place| {
        if place < middle {
            before_advice(walk, place, &last_touch, &hot);
        } else if place == middle {
            fetch_hot(walk, place, &hot);
        }
    });
    let first_peak = walk.counts.peak_chunks;
    let deeds = std::mem::take(&mut walk.deeds);
    // Steps are repeated at each iteration: what they evict no longer comes back.
    let evictions = deeds
        .iter()
        .filter(|deed| deed.action == Action::EvictToHost);
    for span in evictions
        .filter(|deed| deed.place < middle)
        .flat_map(|deed| &deed.spans)
    {
        for touch in inputs.space.touches(*span) {
            walk.card.evict(touch.chunk);
        }
    }
    walk.iteration(&mut in_place);
    walk.counts.peak_chunks = walk.counts.peak_chunks.max(first_peak);
    let mut notes = Vec::new();
    if !walk.too_large.is_empty() {
        notes.push(format!(
            "{} ops before the midpoint touch more than the card holds by themselves",
            walk.too_large.len()
        ));
    }
    if walk.counts.demand_bytes > 0 {
        notes.push(
            "memory of stream-ordered pools takes no advice, and not all of it fits: the rest goes on \
             migrating"
                .to_owned(),
        );
    }
    Outcome {
        plans_evictions: inputs.emulate,
        deeds,
        start_resident: if inputs.emulate { start } else { Vec::new() },
        counts: walk.counts,
        midpoint: Some(midpoint),
        converged: true,
        notes,
    }
}

/// After the advice: what an op touches off the card is reached in place, or migrates if it is of a
/// pool.
fn in_place(walk: &mut Walk<'_>, place: usize) {
    for touch in walk.inputs.touches.touched(place) {
        let remote = mask_bytes(touch.mask & !walk.card.mask(touch.chunk));
        if walk.inputs.space.is_pooled(touch.chunk) {
            // It takes the place of its like, which go for it.
            walk.counts.demand_bytes += remote;
            walk.counts.evicted_bytes += remote;
        } else {
            walk.counts.zero_copy_bytes += remote;
        }
    }
}

/// One past the place of the last op before the midpoint that touches each chunk, 0 if none does.
fn last_touches(inputs: &Inputs<'_>, middle: usize) -> Vec<usize> {
    let mut last = vec![0; index(inputs.space.chunks())];
    for place in 0..middle {
        for touch in inputs.touches.touched(place) {
            if let Some(entry) = last.get_mut(index(touch.chunk)) {
                *entry = place + 1;
            }
        }
    }
    last
}

/// Which chunks are worth their place, by bytes touched per iteration: as many as fit. Empty if all
/// fit.
fn hottest(inputs: &Inputs<'_>) -> Vec<bool> {
    let mut heat = vec![0_u64; index(inputs.space.chunks())];
    for touch in inputs.touches.touched.iter().flatten() {
        if let Some(heat) = heat.get_mut(index(touch.chunk)) {
            let bytes = mask_bytes(touch.mask);
            *heat = heat.saturating_add(if inputs.space.is_pooled(touch.chunk) {
                u64::MAX / 2
            } else {
                bytes
            });
        }
    }
    let mut order: Vec<usize> = (0..heat.len())
        .filter(|chunk| heat.get(*chunk) > Some(&0))
        .collect();
    if order.len() <= index(inputs.capacity_chunks) {
        return Vec::new();
    }
    order.sort_by_key(|chunk| std::cmp::Reverse(heat.get(*chunk).copied()));
    let mut hot = vec![false; heat.len()];
    for chunk in order.into_iter().take(index(inputs.capacity_chunks)) {
        if let Some(hot) = hot.get_mut(chunk) {
            *hot = true;
        }
    }
    hot
}

/// Fetches the hot chunks that are absent. Hot chunks that the fetch would evict, first in line as
/// they are, are fetched again before; twice as far down the line as the simulation says, since a
/// real card's line is not known.
fn fetch_hot(walk: &mut Walk<'_>, place: usize, hot: &[bool]) {
    let is_hot = |chunk: u32| hot.get(index(chunk)) == Some(&true);
    let chunks = 0..walk.inputs.space.chunks();
    let absent: Vec<u32> = chunks
        .filter(|c| is_hot(*c) && !walk.card.holds(*c))
        .collect();
    let frames = crate::num::narrow(absent.len());
    if walk.inputs.emulate {
        let touches: Vec<Touch> = walk
            .card
            .contents()
            .filter(|c| is_hot(*c))
            .map(|chunk| whole(walk, chunk))
            .collect();
        walk.mark(&touches);
        walk.make_room(place, frames);
        fetch(walk, place, absent);
        return;
    }
    let mut victims = frames.saturating_mul(2);
    let mut at_risk = Vec::new();
    for chunk in walk.card.line().take_while(|_| frames > 0) {
        if victims == 0 {
            break;
        }
        if is_hot(chunk) {
            at_risk.push(chunk);
        } else {
            victims -= 1;
        }
    }
    fetch(walk, place, at_risk);
    fetch(walk, place, absent);
}

fn whole(walk: &Walk<'_>, chunk: u32) -> Touch {
    let span = walk.inputs.space.chunk_span(chunk);
    walk.inputs
        .space
        .touches(span)
        .next()
        .unwrap_or(Touch { chunk, mask: 0 })
}

/// Fetches whole chunks, as one step.
fn fetch(walk: &mut Walk<'_>, place: usize, chunks: Vec<u32>) {
    let mut spans: Vec<Span> = chunks
        .iter()
        .map(|chunk| walk.inputs.space.chunk_span(*chunk))
        .collect();
    for chunk in chunks {
        if !walk.card.holds(chunk) && walk.card.free() == 0 {
            walk.driver_evicts();
        }
        let touch = whole(walk, chunk);
        walk.card.bring(chunk, touch.mask);
    }
    coalesce(&mut spans, 0);
    if !spans.is_empty() {
        walk.deeds.push(Deed {
            place,
            action: Action::PrefetchToDevice,
            spans,
        });
    }
}

/// Base before the midpoint. On an emulated card the plan's evictions are repeated after the advice,
/// when nothing comes back: so they take what is not touched again before the midpoint, first in
/// line first, and only then what is.
fn before_advice(walk: &mut Walk<'_>, place: usize, last_touch: &[usize], hot: &[bool]) {
    let touched = walk.inputs.touches.touched(place);
    if !walk.inputs.emulate {
        walk.fault_in(touched);
        return;
    }
    walk.mark(touched);
    let frames = walk.new_frames(touched);
    let over = frames.saturating_sub(walk.card.free());
    let done = |chunk: &u32| {
        last_touch
            .get(index(*chunk))
            .is_none_or(|last| *last <= place)
    };
    let line = walk.card.line().filter(|chunk| !walk.is_marked(*chunk));
    let mut cold: Vec<u32> = line.filter(done).collect();
    // Stable: first in line first among equals.
    cold.sort_by_key(|chunk| hot.get(index(*chunk)) == Some(&true));
    let cold: HashSet<u32> = cold.into_iter().take(index(over)).collect();
    let mut spans = Vec::new();
    let victims: Vec<u32> = walk
        .card
        .line()
        .filter(|chunk| cold.contains(chunk))
        .collect();
    for chunk in victims {
        walk.counts.evicted_bytes += mask_bytes(walk.card.evict(chunk));
        spans.push(walk.inputs.space.chunk_span(chunk));
    }
    if !spans.is_empty() {
        walk.deeds.push(Deed {
            place,
            action: Action::EvictToHost,
            spans,
        });
    }
    walk.make_room(place, frames);
    walk.fault_in(touched);
}
