//! Evicting what is needed last. The iteration repeats, so when each chunk is used next is known; to
//! evict the one whose next use is farthest moves the least (Belady, 1966).

use std::collections::BinaryHeap;

use transit_format::plan::model::Action;

use crate::num::{index, narrow, wide};
use crate::ranges::coalesce;
use crate::space::{Touch, mask_bytes};

use super::walk::Walk;
use super::{Deed, Inputs};

/// When each chunk is used next. Times count ops over all simulated iterations.
pub(super) struct Farthest {
    /// Places that touch each chunk, chunk after chunk.
    places: Vec<u32>,
    /// Where a chunk's places begin, and one past the end.
    first: Vec<usize>,
    next: Vec<u64>,
    /// By time of next use; stale where `next` says otherwise or the chunk has left.
    heap: BinaryHeap<(u64, u32)>,
    ops: u64,
    /// When the present iteration began.
    began: u64,
}

impl Farthest {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let chunks = index(inputs.space.chunks());
        let mut first = vec![0_usize; chunks + 1];
        for touch in inputs.touches.touched.iter().flatten() {
            if let Some(count) = first.get_mut(index(touch.chunk) + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        let mut places = vec![0; sum];
        let mut fill = first.clone();
        for (place, touches) in (0_u32..).zip(&inputs.touches.touched) {
            for touch in touches {
                let Some(at) = fill.get_mut(index(touch.chunk)) else {
                    continue;
                };
                if let Some(slot) = places.get_mut(*at) {
                    *slot = place;
                }
                *at += 1;
            }
        }
        Self {
            places,
            first,
            next: vec![u64::MAX; chunks],
            heap: BinaryHeap::new(),
            ops: wide(inputs.unrolled.ops.len()),
            began: 0,
        }
    }

    /// The op at a place has used chunks.
    pub(super) fn used(&mut self, place: usize, touches: &[Touch]) {
        for touch in touches {
            let time = self.next_use(place, touch.chunk);
            if let Some(next) = self.next.get_mut(index(touch.chunk)) {
                *next = time;
                self.heap.push((time, touch.chunk));
            }
        }
        // The last op of an iteration is followed by the first of the next.
        if wide(place) + 1 == self.ops {
            self.began += self.ops;
        }
    }

    fn next_use(&self, place: usize, chunk: u32) -> u64 {
        let bound = |at: usize| self.first.get(at).copied().unwrap_or(0);
        let range = bound(index(chunk))..bound(index(chunk) + 1);
        let uses = self.places.get(range).unwrap_or(&[]);
        let later = uses.partition_point(|other| *other <= narrow(place));
        match (uses.get(later), uses.first()) {
            (Some(use_), _) => self.began + u64::from(*use_),
            (None, Some(use_)) => self.began + self.ops + u64::from(*use_),
            (None, None) => u64::MAX,
        }
    }

    /// Evicts until so many frames are free, sparing the current op's chunks.
    pub(super) fn make_room(&mut self, walk: &mut Walk<'_>, place: usize, frames: u32) {
        let (mut spared, mut evicted) = (Vec::new(), Vec::new());
        while walk.card.free() < frames {
            let Some((time, chunk)) = self.heap.pop() else {
                walk.too_large.insert(place);
                break;
            };
            if self.next.get(index(chunk)) != Some(&time) || !walk.card.holds(chunk) {
                continue;
            }
            if walk.is_marked(chunk) {
                spared.push((time, chunk));
                continue;
            }
            walk.counts.evicted_bytes += mask_bytes(walk.card.evict(chunk));
            evicted.push(walk.inputs.space.chunk_span(chunk));
        }
        self.heap.extend(spared);
        coalesce(&mut evicted, 0);
        if !evicted.is_empty() {
            walk.deeds.push(Deed {
                place,
                action: Action::EvictToHost,
                spans: evicted,
            });
        }
    }
}
