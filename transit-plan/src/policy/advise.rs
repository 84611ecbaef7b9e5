//! Advise: at the midpoint of one iteration, all memory is advised `SetAccessedBy` the GPU. What is
//! on the host then is read there from then on, what is on the card stays: nothing migrates again.

use std::collections::HashSet;

use transit_format::plan::model::Action;

use crate::num::index;
use crate::space::mask_bytes;

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
    walk.iteration(&mut |walk: &mut Walk<'_>, place| {
        if place < middle {
            before_advice(walk, place, &last_touch);
        }
    });
    let first_peak = walk.counts.peak_chunks;
    let deeds = std::mem::take(&mut walk.deeds);
    // Steps are repeated at each iteration: what they evict no longer comes back.
    for span in deeds.iter().flat_map(|deed| &deed.spans) {
        for touch in inputs.space.touches(*span) {
            walk.card.evict(touch.chunk);
        }
    }
    walk.iteration(&mut |walk: &mut Walk<'_>, place| {
        for touch in walk.inputs.touches.touched(place) {
            let remote = touch.mask & !walk.card.mask(touch.chunk);
            walk.counts.zero_copy_bytes += mask_bytes(remote);
        }
    });
    walk.counts.peak_chunks = walk.counts.peak_chunks.max(first_peak);
    let mut notes = Vec::new();
    if !walk.too_large.is_empty() {
        notes.push(format!(
            "{} ops before the midpoint touch more than the card holds by themselves",
            walk.too_large.len()
        ));
    }
    Outcome {
        deeds,
        start_resident: if inputs.emulate { start } else { Vec::new() },
        counts: walk.counts,
        midpoint: Some(midpoint),
        converged: true,
        notes,
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

/// Base before the midpoint. On an emulated card the plan's evictions are repeated after the advice,
/// when nothing comes back: so they take what is not touched again before the midpoint, first in
/// line first, and only then what is.
fn before_advice(walk: &mut Walk<'_>, place: usize, last_touch: &[usize]) {
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
    let cold: HashSet<u32> = line.filter(done).take(index(over)).collect();
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
