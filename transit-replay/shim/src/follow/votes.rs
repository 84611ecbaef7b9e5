//! Evidence from use: each matched op says which live allocations it was given where the plan has
//! which of its own. Counted over one iteration, then handed to the ledger.

use transit_hook::observer::OpCall;

use super::bind::UNBOUND;
use super::script::{OpRecord, Script};

/// Live allocations remembered per plan allocation.
const CANDIDATES: usize = 4;
/// Pointers of one op that vote; multi-tensor kernels carry a hundred and more.
const VOTING_POINTERS: usize = 128;
/// Weight of a pointer at the plan's own offset, against 1 for the allocation alone (a caching
/// allocator may have cut its segment elsewhere).
const EXACT: u32 = 4;

/// A live allocation and its votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its id.
    pub(crate) live: u32,
    /// Votes for it.
    pub(crate) count: u32,
}

const NOBODY: Candidate = Candidate {
    live: UNBOUND,
    count: 0,
};

/// Votes per plan allocation.
#[derive(Debug)]
pub(crate) struct Votes {
    slots: Box<[[Candidate; CANDIDATES]]>,
}

impl Votes {
    /// No votes for any of `count` plan allocations.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: vec![[NOBODY; CANDIDATES]; count].into_boxed_slice(),
        }
    }

    /// Counts what `call`, taken for `record`, says.
    pub(crate) fn hear(&mut self, script: &Script, record: &OpRecord, call: &OpCall<'_>) {
        let planned = script.pointers_of(record);
        if planned.len() != call.pointers.len() {
            return;
        }
        for (plan, live) in planned.iter().zip(call.pointers).take(VOTING_POINTERS) {
            let weight = if plan.offset == live.offset { EXACT } else { 1 };
            self.cast(plan.alloc, live.alloc.0, weight);
        }
    }

    /// Gives `live` a vote; with no room left, the weakest candidate is worn down first.
    fn cast(&mut self, plan: u32, live: u32, weight: u32) {
        let Some(slot) = self.slots.get_mut(plan as usize) else {
            return;
        };
        if let Some(candidate) = slot.iter_mut().find(|candidate| candidate.live == live) {
            candidate.count = candidate.count.saturating_add(weight);
            return;
        }
        let Some(weakest) = slot.iter_mut().min_by_key(|candidate| candidate.count) else {
            return;
        };
        if weakest.count <= weight {
            *weakest = Candidate {
                live,
                count: weight,
            };
        } else {
            weakest.count -= weight;
        }
    }

    /// The live allocation with most votes for `plan`, if any voted.
    pub(crate) fn winner(&self, plan: u32) -> Option<Candidate> {
        let slot = self.slots.get(plan as usize)?;
        slot.iter()
            .copied()
            .filter(|c| c.count > 0)
            .max_by_key(|candidate| candidate.count)
    }

    /// Votes that `live` is `plan`.
    pub(crate) fn count(&self, plan: u32, live: u32) -> u32 {
        let slot = self.slots.get(plan as usize);
        let found = slot.and_then(|slot| slot.iter().find(|candidate| candidate.live == live));
        found.map_or(0, |candidate| candidate.count)
    }

    /// Forgets every vote.
    pub(crate) fn clear(&mut self) {
        self.slots.fill([NOBODY; CANDIDATES]);
    }
}
