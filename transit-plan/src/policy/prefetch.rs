//! Prefetch: what migrated for an op is fetched before it, in few large requests.
//!
//! Fetching changes what is on the card: whole ranges come in at once, and each fetch of resident
//! memory moves it to the end of the line. So memory that stayed by chance when recording may be
//! gone when replaying. Beyond the paper, the plan's own residency is simulated, and whatever an op
//! touches that the simulation says is absent is fetched too (not with `--paper-literal`).
//!
//! A list that repeats on a first-in-first-out card moves at least the whole card each iteration, or
//! nothing: what comes in once an iteration must have left within one. So there are two plans: one
//! lets the driver evict, one evicts what is needed last (see [`super::farthest`]). The latter moves
//! little more than what does not fit, but its evictions are slow; the cheaper one by prediction is
//! taken. On an emulated card every plan evicts by itself, so that it is always the latter.

use transit_format::plan::model::Action;

use crate::num::{narrow, wide};
use crate::ranges::{Span, coalesce};
use crate::space::{Touch, mask_bytes};
use crate::touch;

use super::farthest::Farthest;
use super::walk::Walk;
use super::{Deed, Inputs, Outcome, fixpoint};

pub(super) fn plan(inputs: &Inputs<'_>, cost_ns: impl Fn(&Outcome) -> u64) -> Outcome {
    if inputs.paper_literal {
        return driver_evicts(inputs);
    }
    let planned = plan_evicts(inputs);
    if inputs.emulate || planned.deeds.is_empty() {
        return planned;
    }
    let left = driver_evicts(inputs);
    if cost_ns(&planned) <= cost_ns(&left) {
        planned
    } else {
        left
    }
}

/// The plan evicts what is needed last.
fn plan_evicts(inputs: &Inputs<'_>) -> Outcome {
    let mut farthest = Farthest::new(inputs);
    let mut capped = std::collections::HashSet::new();
    let mut walk = Walk::new(inputs);
    walk.plans_evictions = true;
    walk.ordered = false;
    let mut outcome = walk.run(|walk, place| {
        let touched = inputs.touches.touched(place);
        let mut spans = inputs.touches.demanded(place).to_vec();
        add_absent(walk, touched, &mut spans);
        coalesce(&mut spans, inputs.gap_bytes);
        if cap(walk, &mut spans) {
            capped.insert(place);
        }
        let needed = needed(walk, &spans, touched);
        walk.mark(&needed);
        let frames = walk.new_frames(&needed);
        farthest.make_room(walk, place, frames);
        fetch(walk, place, spans);
        walk.fault_in(touched);
        farthest.used(place, &needed);
    });
    note_capped(&mut outcome, capped.len());
    outcome
}

fn needed(walk: &Walk<'_>, spans: &[Span], touched: &[Touch]) -> Vec<Touch> {
    let space = walk.inputs.space;
    let mut needed: Vec<Touch> = spans.iter().flat_map(|s| space.touches(*s)).collect();
    needed.extend_from_slice(touched);
    touch::merge(&mut needed);
    needed
}

fn note_capped(outcome: &mut Outcome, ops: usize) {
    if ops > 0 {
        outcome.notes.push(format!(
            "{ops} ops need more than the card holds; their prefetch stops short of it, the rest faults"
        ));
    }
}

/// The driver evicts, first in first out.
fn driver_evicts(inputs: &Inputs<'_>) -> Outcome {
    let mut capped = std::collections::HashSet::new();
    let fetches = if inputs.paper_literal {
        Vec::new()
    } else {
        fixpoint::fetches(inputs)
    };
    let mut outcome = Walk::new(inputs).run(|walk, place| {
        if step(walk, place, fixpoint::of(&fetches, place)) {
            capped.insert(place);
        }
    });
    note_capped(&mut outcome, capped.len());
    outcome
}

/// One op under Prefetch. Whether its prefetch had to be capped.
fn step(walk: &mut Walk<'_>, place: usize, listed: &[Touch]) -> bool {
    let inputs = walk.inputs;
    let touched = inputs.touches.touched(place);
    let mut spans = inputs.touches.demanded(place).to_vec();
    if !inputs.paper_literal {
        for touch in listed {
            spans.extend(inputs.space.spans(*touch));
        }
        add_absent(walk, touched, &mut spans);
    }
    coalesce(&mut spans, inputs.gap_bytes);
    let capped = cap(walk, &mut spans);
    if inputs.emulate {
        let needed = needed(walk, &spans, touched);
        walk.mark(&needed);
        let frames = walk.new_frames(&needed);
        walk.make_room(place, frames);
    } else if !inputs.paper_literal {
        let resident = take_resident(walk, &mut spans);
        fetch(walk, place, resident);
    }
    fetch(walk, place, spans);
    walk.fault_in(touched);
    capped
}

/// Adds what the op touches and the card does not hold.
fn add_absent(walk: &Walk<'_>, touched: &[Touch], spans: &mut Vec<Span>) {
    for touch in touched {
        let mask = touch.mask & !walk.card.mask(touch.chunk);
        spans.extend(walk.inputs.space.spans(Touch {
            chunk: touch.chunk,
            mask,
        }));
    }
}

/// Splits off what lies in chunks the card holds, where that is not everything: it is fetched first
/// (some microseconds for each 2 MiB), which moves it to the end of the line, so that the fetch of
/// the rest does not evict it.
fn take_resident(walk: &Walk<'_>, spans: &mut Vec<Span>) -> Vec<Span> {
    let space = walk.inputs.space;
    let (mut resident, mut absent) = (Vec::new(), Vec::new());
    for span in spans.iter() {
        for touch in space.touches(*span) {
            let chunk = space.chunk_span(touch.chunk);
            let start = span.start.max(chunk.start);
            let part = Span {
                start,
                end: span.end.min(chunk.end),
                ..*span
            };
            let held = walk.card.holds(touch.chunk);
            if held {
                resident.push(part)
            } else {
                absent.push(part)
            }
        }
    }
    if absent.is_empty() || resident.is_empty() {
        return Vec::new();
    }
    coalesce(&mut resident, 0);
    coalesce(&mut absent, 0);
    *spans = absent;
    resident
}

/// Keeps one op's request below the card: beyond it, the request's tail would evict its head.
fn cap(walk: &Walk<'_>, spans: &mut Vec<Span>) -> bool {
    let capacity = walk.card.capacity();
    // The reserve is kept on top of this.
    let limit = capacity - (capacity / 64).max(1).min(capacity);
    let space = walk.inputs.space;
    let mut chunks = 0;
    for (place, span) in spans.iter().enumerate() {
        chunks += narrow(space.touches(*span).count());
        if chunks <= limit {
            continue;
        }
        let over = u64::from(chunks - limit) * crate::space::CHUNK_BYTES;
        let end = span.end.saturating_sub(over).max(span.start);
        let kept = Span { end, ..*span };
        spans.truncate(place);
        spans.extend((kept.bytes() > 0).then_some(kept));
        return true;
    }
    false
}

/// Fetches spans in order, the driver evicting where there is no room.
fn fetch(walk: &mut Walk<'_>, place: usize, spans: Vec<Span>) {
    if spans.is_empty() {
        return;
    }
    for span in &spans {
        for touch in walk.inputs.space.touches(*span) {
            let absent = touch.mask & !walk.card.mask(touch.chunk);
            if !walk.card.holds(touch.chunk) && walk.card.free() == 0 && !walk.plans_evictions {
                walk.driver_evicts();
            }
            walk.counts.prefetch_bytes += mask_bytes(absent);
            walk.counts.refreshed_bytes += mask_bytes(touch.mask & !absent);
            walk.card.bring(touch.chunk, touch.mask);
        }
    }
    walk.counts.prefetch_calls += wide(spans.len());
    walk.deeds.push(Deed {
        place,
        action: Action::PrefetchToDevice,
        spans,
    });
}
