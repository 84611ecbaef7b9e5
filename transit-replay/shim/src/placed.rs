//! Placements: applied when their allocation is bound (at best the moment it is made, when advice
//! costs next to nothing), moved along when use corrects the binding, undone when use denies it.
//! Memory of pools takes no advice: what is placed there stays unplaced.

use std::sync::{Mutex, TryLockError};

use transit_format::plan::model::Action;

use crate::follow::bind::{Bindings, UNBOUND};
use crate::follow::ledger::Ledger;
use crate::follow::script::Script;
use crate::issue::{Issuer, Target};

/// Changes looked for in one go; the lock is given back before any driver call.
const BATCH: usize = 32;

/// Where a placement stands now.
#[derive(Clone, Copy, Debug)]
struct Place {
    live: u32,
    address: u64,
}

/// A change to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    action: Action,
    bytes: u64,
    undo_at: Option<u64>,
    apply_at: Option<u64>,
}

/// The state of each of the plan's placements.
#[derive(Debug)]
pub(crate) struct Placed {
    places: Mutex<Vec<Place>>,
}

impl Placed {
    /// None applied.
    pub(crate) fn new(script: &Script) -> Self {
        let nowhere = Place {
            live: UNBOUND,
            address: 0,
        };
        Self {
            places: Mutex::new(vec![nowhere; script.placements.len()]),
        }
    }

    /// Brings every placement to where its allocation is bound now. Called off the launch path,
    /// and on it only after use has changed a binding. `ledger` says which allocations live.
    pub(crate) fn follow(&self, issuer: &Issuer<'_>, ledger: &Mutex<Ledger>, device: u32) {
        if issuer.script.placements.is_empty() {
            return;
        }
        loop {
            let mut batch = [Change::default(); BATCH];
            let count = match (self.places.try_lock(), ledger.try_lock()) {
                (Ok(mut places), Ok(ledger)) => changes(
                    &mut places,
                    issuer.script,
                    issuer.bindings,
                    &ledger,
                    &mut batch,
                ),
                (Err(TryLockError::Poisoned(_)), _) | (_, Err(TryLockError::Poisoned(_))) => return,
                // Another thread is at it; the next binding brings us back.
                _ => return,
            };
            for change in batch.iter().take(count) {
                if let Some(address) = change.undo_at {
                    issuer.undo(change.action, address, change.bytes, device);
                }
                if let Some(address) = change.apply_at {
                    let target = Target { device, stream: 0 };
                    issuer.act(change.action, address, change.bytes, target);
                }
            }
            if count < BATCH {
                return;
            }
        }
    }
}

fn changes(
    places: &mut [Place],
    script: &Script,
    bindings: &Bindings,
    ledger: &Ledger,
    batch: &mut [Change],
) -> usize {
    let mut count = 0;
    for (place, placement) in places.iter_mut().zip(&script.placements) {
        let bound = bindings.live(placement.range.alloc);
        if bound == place.live {
            continue;
        }
        let Some(slot) = batch.get_mut(count) else {
            break;
        };
        let before = ledger.find(place.live).map(|_| place.address);
        let pooled = ledger.find(bound).is_some_and(|live| live.pooled);
        let now = bindings
            .resolve(&placement.range)
            .filter(|_| !pooled)
            .map(|(address, _)| address);
        *place = Place {
            live: bound,
            address: now.unwrap_or(0),
        };
        *slot = Change {
            action: placement.action,
            bytes: placement.range.bytes,
            undo_at: before.filter(|&address| address != 0),
            apply_at: now,
        };
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use transit_format::ids::AllocId;
    use transit_format::plan::model::{Placement, Plan, PlanAlloc, Range};
    use transit_hook::observer::Allocation;

    use super::*;

    #[test]
    fn a_placement_goes_with_its_allocation_and_never_touches_freed_memory() {
        let range = Range {
            alloc: 0,
            offset: 4096,
            bytes: 8192,
        };
        let plan = Plan {
            allocs: vec![PlanAlloc {
                bytes: 1 << 21,
                ..PlanAlloc::default()
            }],
            placements: vec![Placement {
                action: Action::AdvisePreferHost,
                range,
            }],
            ..Plan::default()
        };
        let script = Script::new(&plan);
        let bindings = Arc::new(Bindings::new(1));
        let mut ledger = Ledger::new(&script);
        let placed = Placed::new(&script);
        let look = |ledger: &Ledger| {
            let mut batch = [Change::default(); 4];
            let places = &mut placed.places.lock().unwrap();
            let count = changes(places, &script, &bindings, ledger, &mut batch);
            batch[..count]
                .iter()
                .map(|change| (change.undo_at, change.apply_at))
                .collect::<Vec<_>>()
        };
        assert!(look(&ledger).is_empty());
        let allocation = |id: u32| Allocation {
            id: AllocId(id),
            address: u64::from(id + 1) << 30,
            bytes: 1 << 21,
            managed: true,
            ..Allocation::default()
        };
        ledger.allocated(&script, &bindings, &allocation(0));
        assert_eq!(look(&ledger), [(None, Some((1 << 30) + 4096))]);
        assert!(look(&ledger).is_empty());
        ledger.freeing(&bindings, &allocation(0));
        assert_eq!(look(&ledger), [(None, None)]);
        ledger.allocated(&script, &bindings, &allocation(5));
        assert_eq!(look(&ledger), [(None, Some((6 << 30) + 4096))]);
        ledger.freeing(&bindings, &allocation(5));
        assert_eq!(look(&ledger), [(None, None)]);
        let of_a_pool = Allocation {
            pool: 1,
            ..allocation(6)
        };
        ledger.allocated(&script, &bindings, &of_a_pool);
        assert_eq!(look(&ledger), [(None, None)]);
    }
}
