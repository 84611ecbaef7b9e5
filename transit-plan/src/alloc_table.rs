//! The plan's table of allocations: only those it speaks of, each as the replayer finds it again, by
//! ordinal and size or by size and turn.

use std::collections::HashMap;

use transit_format::ids::AllocId;
use transit_format::plan::model::PlanAlloc;
use transit_format::trace::Trace;

use crate::num::narrow;

/// Allocations spoken of so far.
pub struct AllocTable<'t> {
    trace: &'t Trace,
    /// For each allocation of the trace, how many of its size came before.
    turns: Vec<u32>,
    place: HashMap<AllocId, u32>,
    allocs: Vec<PlanAlloc>,
}

impl<'t> AllocTable<'t> {
    /// An empty table.
    #[must_use]
    pub fn new(trace: &'t Trace) -> Self {
        let mut seen: HashMap<u64, u32> = HashMap::new();
        let turns = trace.allocs.iter().map(|alloc| {
            let turn = seen.entry(alloc.bytes).or_insert(0);
            *turn += 1;
            *turn - 1
        });
        let turns = turns.collect();
        Self {
            trace,
            turns,
            place: HashMap::new(),
            allocs: Vec::new(),
        }
    }

    /// The place of an allocation in the plan's table, where it is put if it is new. `None` for
    /// one that the trace does not hold.
    pub fn place(&mut self, alloc: AllocId) -> Option<u32> {
        if let Some(place) = self.place.get(&alloc) {
            return Some(*place);
        }
        let entry = self.trace.allocs.get(alloc.index())?;
        let place = narrow(self.allocs.len());
        self.allocs.push(PlanAlloc {
            ordinal: alloc.0,
            turn: self.turns.get(alloc.index()).copied().unwrap_or(0),
            bytes: entry.bytes,
            device: entry.device,
        });
        self.place.insert(alloc, place);
        Some(place)
    }

    /// The table.
    #[must_use]
    pub fn finish(self) -> Vec<PlanAlloc> {
        self.allocs
    }
}

#[cfg(test)]
mod tests {
    use transit_format::trace::model::Alloc;

    use super::*;

    #[test]
    fn allocations_are_told_apart_by_ordinal_and_by_turn_among_their_size() {
        let alloc = |bytes| Alloc {
            bytes,
            ..Alloc::default()
        };
        let trace = Trace {
            allocs: vec![alloc(8), alloc(16), alloc(8), alloc(8)],
            ..Trace::default()
        };
        let mut table = AllocTable::new(&trace);
        assert_eq!(table.place(AllocId(3)), Some(0));
        assert_eq!(table.place(AllocId(1)), Some(1));
        assert_eq!(table.place(AllocId(3)), Some(0));
        assert_eq!(table.place(AllocId(9)), None);
        let entries = table.finish();
        let found: Vec<_> = entries
            .iter()
            .map(|e| (e.ordinal, e.turn, e.bytes))
            .collect();
        assert_eq!(found, [(3, 2, 8), (1, 0, 16)]);
    }
}
