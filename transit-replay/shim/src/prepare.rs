//! Large copies and sets that the plan does not direct: loading a checkpoint, saving one, whatever
//! comes before the first iteration. Onto memory that lies elsewhere such a copy waits for its copy
//! engine's faults, about one per 2 MiB block and 0.4 ms each, so before it its range is sent where
//! the copy should find it, on the copy's own stream: to the host where the plan has placed it
//! there, else to the device. What the device reaches in place (`SetAccessedBy`) stays where it is:
//! it does not fault, and moving it would undo the placement.

use transit_format::plan::model::Action;
use transit_format::trace::model::OpKind;
use transit_hook::observer::OpCall;

use crate::follow::bind::Bindings;
use crate::follow::script::Script;

/// Least copy that is prepared. On an H200 (driver 580, `fixtures/gpu/selftest.cu`) copies onto 8
/// to 64 MiB that lay on the host took 0.24 ns a byte (4.2 GB/s, where the link does 55), and a
/// prefetch call costs 40 us at most and 4.6 us in vain: by the byte they break even at 180 KiB. But
/// the time goes by the fault, 330 to 410 us each, and a smaller copy waits for one just so. How
/// small was not measured; 64 KiB is the least that the driver moves for a fault.
pub(crate) const LEAST_BYTES: u64 = 64 << 10;

/// Whether the plan may have memory on the host, where a copy would meet it. If not, and if there is no
/// more memory than the devices hold, nothing is prepared: it is populated on its device when it is
/// made (`transit_hook::birth`), and a copy finds it there as bare (10.5 ms for 512 MiB from pinned
/// memory; into memory that nobody had touched 33 to 58; H200, driver 580, 2026-12-01). So of the
/// two one is done: memory is populated, or copies into it are prepared.
pub(crate) fn sends_to_host(script: &Script) -> bool {
    let host = |action: Action| {
        matches!(
            action,
            Action::EvictToHost | Action::AdvisePreferHost | Action::AdviseAccessedBy
        )
    };
    script.shape.card_bytes > 0
        || script
            .placements
            .iter()
            .any(|placement| host(placement.action))
        || script.steps.iter().any(|step| host(step.action))
}

/// Whether an op is a copy or set worth a look.
pub(crate) fn wanted(call: &OpCall<'_>) -> bool {
    matches!(call.kind, OpKind::Memcpy | OpKind::Memset)
        && !call.capturing
        && !call.excluded
        && call
            .pointers
            .iter()
            .any(|pointer| pointer.bytes >= LEAST_BYTES)
}

/// An address range: first byte and the one after the last.
pub(crate) type Span = (u64, u64);

/// What the plan has placed, by address.
#[derive(Clone, Copy)]
pub(crate) struct Placements<'a> {
    pub(crate) script: &'a Script,
    pub(crate) bindings: &'a Bindings,
}

impl Placements<'_> {
    /// Cuts `span` into what `action` is said of and what it is not.
    fn cut(
        &self,
        span: Span,
        action: Action,
        inside: &mut dyn FnMut(Span),
        outside: &mut dyn FnMut(Span),
    ) {
        let (mut at, end) = span;
        while at < end {
            let Some((from, to)) = self.next(action, (at, end)) else {
                break;
            };
            if at < from {
                outside((at, from));
            }
            inside((from, to));
            at = to;
        }
        if at < end {
            outside((at, end));
        }
    }

    /// The first piece of `span` that `action` is said of.
    fn next(&self, action: Action, (at, end): Span) -> Option<Span> {
        let said = self
            .script
            .placements
            .iter()
            .filter(|placement| placement.action == action);
        said.filter_map(|placement| self.bindings.resolve(&placement.range))
            .map(|(address, bytes)| (address.max(at), address.saturating_add(bytes).min(end)))
            .filter(|(from, to)| from < to)
            .min()
    }

    /// Calls `send` for each piece of `span` that should be elsewhere when a copy comes, with
    /// where. `reached`: the device reaches all of the allocation in place.
    pub(crate) fn each(&self, span: Span, reached: bool, send: &mut dyn FnMut(Action, Span)) {
        let mut rest: [Option<Span>; 8] = [None; 8];
        let mut left = rest.iter_mut();
        self.cut(
            span,
            Action::AdvisePreferHost,
            &mut |piece| send(Action::EvictToHost, piece),
            // More pieces than that are no large copies.
            &mut |piece| {
                if let Some(slot) = left.next() {
                    *slot = Some(piece);
                }
            },
        );
        for piece in rest.into_iter().flatten().filter(|_| !reached) {
            let mut stays = |_: Span| {};
            self.cut(piece, Action::AdviseAccessedBy, &mut stays, &mut |piece| {
                send(Action::PrefetchToDevice, piece);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use transit_format::ids::AllocId;
    use transit_format::plan::model::{Placement, Plan, PlanAlloc, Range};
    use transit_hook::observer::Allocation;

    use super::*;
    use crate::follow::ledger::Ledger;

    const BASE: u64 = 1 << 40;

    /// What is sent where of the bytes from 0 to 100 of an allocation with these placements.
    fn sent(placements: &[(Action, u64, u64)], reached: bool) -> Vec<(Action, u64, u64)> {
        let placement = |&(action, from, to): &(Action, u64, u64)| Placement {
            action,
            range: Range {
                alloc: 0,
                offset: from,
                bytes: to - from,
            },
        };
        let plan = Plan {
            allocs: vec![PlanAlloc {
                bytes: 1000,
                ..PlanAlloc::default()
            }],
            placements: placements.iter().map(placement).collect(),
            ..Plan::default()
        };
        let script = Script::new(&plan);
        let bindings = Bindings::new(1);
        let allocation = Allocation {
            id: AllocId(0),
            address: BASE,
            bytes: 1000,
            managed: true,
            ..Allocation::default()
        };
        Ledger::new(&script).allocated(&script, &bindings, &allocation);
        let placed = Placements {
            script: &script,
            bindings: &bindings,
        };
        let mut seen = Vec::new();
        placed.each((BASE, BASE + 100), reached, &mut |action, (from, to)| {
            seen.push((action, from - BASE, to - BASE));
        });
        seen
    }

    #[test]
    fn each_piece_goes_where_the_plan_has_it() {
        use Action::{AdviseAccessedBy, AdvisePreferHost, EvictToHost, PrefetchToDevice};
        assert_eq!(sent(&[], false), [(PrefetchToDevice, 0, 100)]);
        assert_eq!(sent(&[], true), [], "advised as a whole");
        let host = [(AdviseAccessedBy, 40, 400), (AdvisePreferHost, 40, 400)];
        assert_eq!(
            sent(&host, false),
            [(EvictToHost, 40, 100), (PrefetchToDevice, 0, 40)]
        );
        assert_eq!(
            sent(&[(AdviseAccessedBy, 20, 30)], false),
            [(PrefetchToDevice, 0, 20), (PrefetchToDevice, 30, 100)]
        );
        assert_eq!(sent(&[(AdvisePreferHost, 500, 600)], true), []);
    }
}
