//! The live allocations and which of the plan's they stand for: by ordinal and size, then by size
//! and turn, confirmed or corrected by use. Runs off the launch path, except for
//! [`Ledger::resolve`] and [`Ledger::take_unadvised`], which allocate nothing.

use std::collections::HashMap;

use transit_hook::observer::Allocation;

use super::bind::{Bindings, UNBOUND};
use super::matching::device_fits;
use super::script::Script;
use super::votes::Votes;

/// A live tracked allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) id: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: u32,
    /// Made managed by us, so that the job has no wishes about its place.
    pub(crate) converted: bool,
    /// Of a managed pool: such memory takes prefetches, and no advice (H200, driver 580.159.04:
    /// `cuMemAdvise` answers `NOT_SUPPORTED`, `fixtures/gpu/managed_pool.cu`).
    pub(crate) pooled: bool,
    /// The device has been told to reach it in place.
    pub(crate) advised: bool,
}

/// How sure a binding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// By ordinal, size or turn only.
    #[default]
    Assumed,
    /// The ops that use it say so.
    Confirmed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    trust: Trust,
    /// Some op of the plan has a pointer into it.
    used: bool,
    /// Bound before, and its allocation freed since.
    vacated: bool,
}

/// Live allocations and bindings.
#[derive(Debug)]
pub(crate) struct Ledger {
    live: Vec<Live>,
    entries: Vec<Entry>,
    by_size: HashMap<u64, Vec<u32>>,
    turns: HashMap<u64, u32>,
    one_device: bool,
    planned_bytes: u64,
    bound_bytes: u64,
    /// Highest sum of bound plan bytes at once.
    pub(crate) bound_peak_bytes: u64,
    /// Bindings changed because use said otherwise.
    pub(crate) rebound: u64,
    /// Bindings taken away because no use confirmed them.
    pub(crate) undone: u64,
}

/// What [`Ledger::resolve`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Every used plan allocation is confirmed.
    pub(crate) settled: bool,
    /// Bindings that changed.
    pub(crate) changed: u32,
}

impl Ledger {
    /// Nothing allocated yet.
    pub(crate) fn new(script: &Script) -> Self {
        let mut entries = vec![Entry::default(); script.allocs.len()];
        for pointer in &script.pointers {
            if let Some(entry) = entries.get_mut(pointer.alloc as usize) {
                entry.used = true;
            }
        }
        let mut by_size: HashMap<u64, Vec<u32>> = HashMap::new();
        for (index, alloc) in (0_u32..).zip(&script.allocs) {
            by_size.entry(alloc.bytes).or_default().push(index);
        }
        let first = script.allocs.first().map(|alloc| alloc.device);
        Self {
            live: Vec::with_capacity(1024),
            entries,
            by_size,
            turns: HashMap::new(),
            one_device: script
                .allocs
                .iter()
                .all(|alloc| Some(alloc.device) == first),
            planned_bytes: script
                .allocs
                .iter()
                .fold(0, |sum, alloc| sum.saturating_add(alloc.bytes)),
            bound_bytes: 0,
            bound_peak_bytes: 0,
            rebound: 0,
            undone: 0,
        }
    }

    /// Bytes of all allocations the plan speaks of.
    pub(crate) fn planned_bytes(&self) -> u64 {
        self.planned_bytes
    }

    /// Whether plan allocation `alloc` is bound and its use has confirmed it.
    pub(crate) fn confirmed(&self, alloc: u32) -> bool {
        self.entries
            .get(alloc as usize)
            .is_some_and(|entry| entry.trust == Trust::Confirmed)
    }

    /// Notes an allocation; the plan allocation it is taken for, if any.
    pub(crate) fn allocated(
        &mut self,
        script: &Script,
        bindings: &Bindings,
        allocation: &Allocation,
    ) -> Option<u32> {
        let turn = self.turns.entry(allocation.bytes).or_insert(0);
        let this_turn = *turn;
        *turn += 1;
        if !allocation.managed {
            return None;
        }
        let live = Live {
            id: allocation.id.0,
            address: allocation.address,
            bytes: allocation.bytes,
            device: allocation.device,
            converted: allocation.converted,
            pooled: allocation.pool != 0,
            advised: false,
        };
        let place = self.live.partition_point(|other| other.id < live.id);
        self.live.insert(place, live);
        let plan = self.fitting(script, bindings, &live, this_turn)?;
        self.bind(bindings, plan, &live);
        Some(plan)
    }

    fn fitting(&self, script: &Script, bindings: &Bindings, live: &Live, turn: u32) -> Option<u32> {
        let fits = |plan: u32, test: &dyn Fn(u32, u32, bool) -> bool| {
            let alloc = script.allocs.get(plan as usize)?;
            let entry = self.entries.get(plan as usize)?;
            let free = bindings.live(plan) == UNBOUND;
            let same = free && device_fits(self.one_device, alloc, live.device);
            (same && test(alloc.ordinal, alloc.turn, entry.vacated)).then_some(plan)
        };
        let same_size = self.by_size.get(&live.bytes)?;
        let find = |test: &dyn Fn(u32, u32, bool) -> bool| {
            same_size.iter().find_map(|&plan| fits(plan, test))
        };
        find(&|ordinal, _, _| ordinal == live.id)
            .or_else(|| find(&|_, planned, _| planned == turn))
            .or_else(|| find(&|_, _, vacated| vacated))
    }

    fn bind(&mut self, bindings: &Bindings, plan: u32, live: &Live) {
        if bindings.live(plan) == UNBOUND {
            self.bound_bytes += live.bytes;
            self.bound_peak_bytes = self.bound_peak_bytes.max(self.bound_bytes);
        }
        bindings.set(plan, live.id, live.address, live.bytes);
        bindings.mark_unconfirmed();
        if let Some(entry) = self.entries.get_mut(plan as usize) {
            *entry = Entry {
                trust: Trust::Assumed,
                used: entry.used,
                vacated: false,
            };
        }
    }

    fn unbind(&mut self, bindings: &Bindings, plan: u32, bytes: u64) {
        bindings.set(plan, UNBOUND, 0, 0);
        self.bound_bytes = self.bound_bytes.saturating_sub(bytes);
        if let Some(entry) = self.entries.get_mut(plan as usize) {
            entry.trust = Trust::Assumed;
        }
    }

    /// The plan allocation that live allocation `id` stands for.
    fn plan_of(&self, bindings: &Bindings, id: u32, bytes: u64) -> Option<u32> {
        let same_size = self.by_size.get(&bytes)?;
        same_size
            .iter()
            .copied()
            .find(|&plan| bindings.live(plan) == id)
    }

    /// Forgets an allocation about to be freed.
    pub(crate) fn freeing(&mut self, bindings: &Bindings, allocation: &Allocation) {
        let Ok(place) = self
            .live
            .binary_search_by_key(&allocation.id.0, |live| live.id)
        else {
            return;
        };
        self.live.remove(place);
        if let Some(plan) = self.plan_of(bindings, allocation.id.0, allocation.bytes) {
            self.unbind(bindings, plan, allocation.bytes);
            if let Some(entry) = self.entries.get_mut(plan as usize) {
                entry.vacated = true;
            }
        }
    }

    /// The live allocation `id`.
    pub(crate) fn find(&self, id: u32) -> Option<&Live> {
        let place = self.live.binary_search_by_key(&id, |live| live.id).ok()?;
        self.live.get(place)
    }

    /// Takes up to `out.len()` allocations not taken before that take advice; how many.
    pub(crate) fn take_unadvised(&mut self, out: &mut [Live]) -> usize {
        let mut count = 0;
        let fresh = self
            .live
            .iter_mut()
            .filter(|live| !live.advised && !live.pooled);
        for (slot, live) in out.iter_mut().zip(fresh) {
            live.advised = true;
            *slot = *live;
            count += 1;
        }
        count
    }

    /// Confirms, corrects or takes back bindings by one iteration's votes. `whole`: the iteration
    /// was seen from its first op, so that silence about a used allocation counts against it.
    pub(crate) fn resolve(
        &mut self,
        script: &Script,
        bindings: &Bindings,
        votes: &Votes,
        whole: bool,
    ) -> Resolved {
        let mut result = Resolved {
            settled: true,
            changed: 0,
        };
        for plan in 0..u32::try_from(script.allocs.len()).unwrap_or(UNBOUND) {
            let entry = self.entries.get(plan as usize).copied().unwrap_or_default();
            if !entry.used {
                continue;
            }
            if self.settle(script, bindings, votes, plan) {
                result.changed += 1;
            }
            let bound = bindings.live(plan);
            let denied = votes.count(plan, bound) == 0;
            if denied && whole && bound != UNBOUND && !self.confirmed(plan) {
                let bytes = script
                    .allocs
                    .get(plan as usize)
                    .map_or(0, |alloc| alloc.bytes);
                self.unbind(bindings, plan, bytes);
                self.undone += 1;
                result.changed += 1;
            }
            result.settled &= self.confirmed(plan);
        }
        result
    }

    /// Settles one plan allocation by its votes; whether its binding changed.
    fn settle(&mut self, script: &Script, bindings: &Bindings, votes: &Votes, plan: u32) -> bool {
        let Some(winner) = votes.winner(plan) else {
            return false;
        };
        let bound = bindings.live(plan);
        if winner.live == bound {
            self.confirm(plan);
            return false;
        }
        let Some(alloc) = script.allocs.get(plan as usize) else {
            return false;
        };
        let Some(live) = self.find(winner.live).copied() else {
            return false;
        };
        let fits = live.bytes == alloc.bytes && device_fits(self.one_device, alloc, live.device);
        if !fits || winner.count < 2 * votes.count(plan, bound) {
            return false;
        }
        if let Some(other) = self.plan_of(bindings, live.id, live.bytes) {
            if votes.count(other, live.id) >= winner.count {
                return false;
            }
            self.unbind(bindings, other, live.bytes);
        }
        self.bind(bindings, plan, &live);
        self.confirm(plan);
        self.rebound += 1;
        true
    }

    fn confirm(&mut self, plan: u32) {
        if let Some(entry) = self.entries.get_mut(plan as usize) {
            entry.trust = Trust::Confirmed;
        }
    }
}
