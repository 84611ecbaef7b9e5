//! The simulation all policies share: op by op, room is made, memory comes in, the card's state is
//! compared with that of the iteration before.

use std::collections::HashSet;

use transit_format::plan::model::Action;

use crate::num::index;
use crate::ranges::{Span, coalesce};
use crate::residency::Card;
use crate::space::{Touch, mask_bytes};

use super::{Counts, Deed, Inputs, Outcome, ROUNDS};

/// A simulated run of steady iterations.
pub(super) struct Walk<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) card: Card,
    pub(super) counts: Counts,
    pub(super) deeds: Vec<Deed>,
    /// Ops that need more than the card by themselves.
    pub(super) too_large: HashSet<usize>,
    /// Whether the plan makes room itself; else the driver does.
    pub(super) plans_evictions: bool,
    /// Whether the line's order is part of the card's state: not where the plan picks what leaves.
    pub(super) ordered: bool,
    /// Chunks that are not evicted while there are others; may be shorter than the table of chunks.
    pub(super) pinned: Vec<bool>,
    /// Chunks of the current op, marked by its number.
    marks: Vec<u32>,
    mark: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn new(inputs: &'a Inputs<'a>) -> Self {
        Self::on(inputs, inputs.capacity_chunks)
    }

    /// On a card of so many chunks.
    pub(super) fn on(inputs: &'a Inputs<'a>, capacity: u32) -> Self {
        let chunks = inputs.space.chunks();
        Self {
            inputs,
            card: Card::new(chunks, capacity),
            counts: Counts::default(),
            deeds: Vec::new(),
            too_large: HashSet::new(),
            plans_evictions: inputs.emulate,
            ordered: true,
            pinned: Vec::new(),
            marks: vec![0; index(chunks)],
            mark: 0,
        }
    }

    /// Runs iterations until the card's state at their start repeats. `op` does what happens for
    /// the op at a place, after memory freed before it has left the card.
    pub(super) fn run(mut self, mut op: impl FnMut(&mut Self, usize)) -> Outcome {
        let mut converged = false;
        let mut start: Vec<u32> = Vec::new();
        for _ in 0..ROUNDS {
            let before = self.state_hash();
            start = self.card.contents().collect();
            self.iteration(&mut op);
            if self.state_hash() == before {
                converged = true;
                break;
            }
        }
        if self.plans_evictions && !converged {
            start = self.close(&mut op);
        }
        self.finish(start, converged)
    }

    /// A number equal for equal states of the card.
    pub(super) fn state_hash(&self) -> u64 {
        if self.ordered {
            self.card.state_hash()
        } else {
            self.card.contents_hash()
        }
    }

    /// Takes chunks off the start until what is on the card then is still there at the end: the
    /// rest is evicted at the next start, and the plan repeats exactly. The start only shrinks, so
    /// this ends.
    fn close(&mut self, op: &mut impl FnMut(&mut Self, usize)) -> Vec<u32> {
        let mut start: Vec<u32> = self.card.contents().collect();
        loop {
            let known: HashSet<u32> = start.iter().copied().collect();
            let extra: Vec<u32> = self
                .card
                .contents()
                .filter(|c| !known.contains(c))
                .collect();
            for chunk in extra {
                self.card.evict(chunk);
            }
            self.iteration(op);
            let kept: Vec<u32> = start
                .iter()
                .copied()
                .filter(|c| self.card.holds(*c))
                .collect();
            if kept.len() == start.len() {
                return start;
            }
            start = kept;
        }
    }

    /// One iteration with fresh counts and deeds.
    pub(super) fn iteration(&mut self, op: &mut impl FnMut(&mut Self, usize)) {
        self.counts = Counts::default();
        self.deeds.clear();
        self.card.reset_peak();
        let mut freed = self.inputs.freed.iter().peekable();
        for place in 0..self.inputs.unrolled.ops.len() {
            while let Some((_, chunk)) = freed.next_if(|(at, _)| *at <= place) {
                self.card.evict(*chunk);
            }
            op(self, place);
        }
        for (_, chunk) in freed {
            self.card.evict(*chunk);
        }
        self.counts.peak_chunks = self.card.peak();
    }

    fn finish(mut self, start: Vec<u32>, converged: bool) -> Outcome {
        let mut notes = Vec::new();
        if !converged && !self.plans_evictions && !self.counts_are_steady() {
            notes.push(format!(
                "the card's state did not repeat within {ROUNDS} iterations"
            ));
        }
        if !self.too_large.is_empty() {
            notes.push(format!(
                "{} ops touch more than the card holds by themselves: they fault, and what they \
                 hold exceeds the card while they run",
                self.too_large.len()
            ));
        }
        let mut start_resident = Vec::new();
        if self.plans_evictions {
            self.close_cycle(&start);
        }
        if self.inputs.emulate {
            start_resident = start;
        }
        Outcome {
            plans_evictions: self.plans_evictions,
            deeds: self.deeds,
            start_resident,
            counts: self.counts,
            midpoint: None,
            converged,
            notes,
        }
    }

    /// A card's order may go on turning while nothing faults.
    fn counts_are_steady(&self) -> bool {
        self.counts.demand_bytes == 0
    }

    /// If the state at the end is not that of the start, the next iteration starts by evicting
    /// what the steps do not know of: from there on the card never holds more than simulated.
    fn close_cycle(&mut self, start: &[u32]) {
        let known: HashSet<u32> = start.iter().copied().collect();
        let held = self.card.contents();
        let extra: Vec<u32> = held.filter(|chunk| !known.contains(chunk)).collect();
        for chunk in &extra {
            self.counts.evicted_bytes += mask_bytes(self.card.mask(*chunk));
        }
        let space = self.inputs.space;
        let mut extra: Vec<Span> = extra.iter().map(|c| space.chunk_span(*c)).collect();
        coalesce(&mut extra, 0);
        if !extra.is_empty() {
            self.deeds.insert(
                0,
                Deed {
                    place: 0,
                    action: Action::EvictToHost,
                    spans: extra,
                },
            );
        }
    }

    /// Marks chunks as those of the current op.
    pub(super) fn mark(&mut self, touches: &[Touch]) {
        self.mark += 1;
        for touch in touches {
            if let Some(mark) = self.marks.get_mut(index(touch.chunk)) {
                *mark = self.mark;
            }
        }
    }

    /// Whether a chunk is one of the current op's.
    pub(super) fn is_marked(&self, chunk: u32) -> bool {
        self.marks.get(index(chunk)) == Some(&self.mark)
    }

    /// Frames that touches need beyond those their chunks hold.
    pub(super) fn new_frames(&self, touches: &[Touch]) -> u32 {
        let missing = touches
            .iter()
            .filter(|touch| !self.card.holds(touch.chunk))
            .count();
        crate::num::narrow(missing)
    }

    /// Evicts the first in line until so many frames are free, sparing the current op's chunks.
    /// Where the plan makes room itself the evictions become a step.
    pub(super) fn make_room(&mut self, place: usize, frames: u32) {
        let mut evicted = Vec::new();
        while self.card.free() < frames {
            let Self {
                card,
                marks,
                mark,
                pinned,
                ..
            } = self;
            let marked = |chunk: u32| marks.get(index(chunk)) == Some(mark);
            let kept = |chunk: u32| marked(chunk) || pinned.get(index(chunk)) == Some(&true);
            let first = card.first_in_line(kept);
            let Some(chunk) = first.or_else(|| card.first_in_line(marked)) else {
                self.too_large.insert(place);
                break;
            };
            self.counts.evicted_bytes += mask_bytes(self.card.evict(chunk));
            evicted.push(self.inputs.space.chunk_span(chunk));
        }
        if self.plans_evictions && !evicted.is_empty() {
            self.deeds.push(Deed {
                place,
                action: Action::EvictToHost,
                spans: evicted,
            });
        }
    }

    /// What an op's accesses bring in by themselves: whatever of its touches is absent.
    pub(super) fn fault_in(&mut self, touches: &[Touch]) {
        for touch in touches {
            let absent = touch.mask & !self.card.mask(touch.chunk);
            if absent == 0 {
                continue;
            }
            if !self.card.holds(touch.chunk) && self.card.free() == 0 && !self.plans_evictions {
                self.driver_evicts();
            }
            self.counts.demand_bytes += mask_bytes(absent);
            self.card.bring(touch.chunk, absent);
        }
    }

    /// The driver makes room for one chunk: the first in line goes, whoever needs it.
    pub(super) fn driver_evicts(&mut self) {
        if let Some(chunk) = self.card.first_in_line(|_| false) {
            self.counts.evicted_bytes += mask_bytes(self.card.evict(chunk));
        }
    }
}
