//! What each op must fetch so that no op faults, whatever state the card starts in.
//!
//! On a first-in-first-out card a fetch changes what is evicted next, and the state at the start of
//! an iteration need not settle. So a fixed list per op is grown until simulated iterations run
//! without a fault, on cards of the planned size, of the size without reserve and of a smaller one.
//! It ends: an op that fetches all it touches does not fault, if it fits at all.

use crate::num::index;
use crate::residency::Card;
use crate::space::Touch;
use crate::touch;

use super::{Inputs, ROUNDS};

/// Times the lists are grown. Each pass adds what the one before displaced.
const PASSES: usize = 16;
/// Iterations before a fault counts: the card fills in them.
const WARM: usize = 2;

/// For each op the groups to fetch before it.
pub(super) fn fetches(inputs: &Inputs<'_>) -> Vec<Vec<Touch>> {
    let places = 0..inputs.unrolled.ops.len();
    let demanded = |place| {
        let spans = inputs.touches.demanded(place).iter();
        let mut list = spans.flat_map(|span| inputs.space.touches(*span)).collect();
        touch::merge(&mut list);
        list
    };
    let mut fetches: Vec<Vec<Touch>> = places.map(demanded).collect();
    let smaller = inputs.capacity_chunks - inputs.capacity_chunks / 32;
    let mut sizes = vec![inputs.capacity_chunks];
    if !inputs.emulate {
        sizes.extend([inputs.card_chunks.max(inputs.capacity_chunks), smaller]);
        sizes.dedup();
    }
    for _ in 0..PASSES {
        let mut grown = false;
        for size in &sizes {
            for (place, missing) in faults(inputs, &fetches, *size) {
                if let Some(list) = fetches.get_mut(place) {
                    list.push(missing);
                    touch::merge(list);
                    grown = true;
                }
            }
        }
        if !grown {
            break;
        }
    }
    fetches
}

/// What is still missing when an op begins, after its fetches.
fn faults(inputs: &Inputs<'_>, fetches: &[Vec<Touch>], size: u32) -> Vec<(usize, Touch)> {
    let mut card = Card::new(inputs.space.chunks(), size);
    let mut missing = Vec::new();
    for round in 0..ROUNDS {
        let before = card.state_hash();
        let mut freed = inputs.freed.iter().peekable();
        for (place, list) in fetches.iter().enumerate() {
            while let Some((_, chunk)) = freed.next_if(|(at, _)| *at <= place) {
                card.evict(*chunk);
            }
            fetch(&mut card, list);
            for touch in inputs.touches.touched(place) {
                let absent = touch.mask & !card.mask(touch.chunk);
                if absent != 0 && round >= WARM {
                    missing.push((place, *touch));
                }
                bring(
                    &mut card,
                    Touch {
                        mask: absent,
                        ..*touch
                    },
                );
            }
        }
        for (_, chunk) in freed {
            card.evict(*chunk);
        }
        if card.state_hash() == before && round >= WARM {
            break;
        }
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Resident chunks are fetched first: that moves them to the end of the line, out of the way of
/// the evictions that the others cause.
fn fetch(card: &mut Card, list: &[Touch]) {
    let resident: Vec<bool> = list.iter().map(|touch| card.holds(touch.chunk)).collect();
    for (touch, held) in list.iter().zip(&resident) {
        if *held {
            bring(card, *touch);
        }
    }
    for (touch, held) in list.iter().zip(&resident) {
        if !*held {
            bring(card, *touch);
        }
    }
}

fn bring(card: &mut Card, touch: Touch) {
    if touch.mask == 0 {
        return;
    }
    let full = !card.holds(touch.chunk) && card.free() == 0;
    if let Some(first) = card.first_in_line(|_| false).filter(|_| full) {
        card.evict(first);
    }
    card.bring(touch.chunk, touch.mask);
}

/// The list of an op.
pub(super) fn of(fetches: &[Vec<Touch>], place: usize) -> &[Touch] {
    fetches
        .get(index(crate::num::narrow(place)))
        .map_or(&[], Vec::as_slice)
}
