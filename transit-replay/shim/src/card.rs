//! Who governs the emulated card: the plan while its iteration is followed from its first op, the
//! live settle-read-evict loop of the capture crate otherwise. The plan takes over at the start of
//! an iteration, when everything it does not expect on the card has been moved to the host.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use transit_capture::Capture;
use transit_hook::card::{CHUNK_BYTES, Chunk};
use transit_hook::observer::OpCall;

use crate::follow::Verdict;
use crate::follow::bind::{Bindings, UNBOUND};
use crate::follow::script::Script;
use transit_format::ids::AllocId;

/// The emulated card of a plan that has one.
#[derive(Debug)]
pub(crate) struct Card {
    capture: &'static Capture,
    /// The plan governs.
    directed: AtomicBool,
    /// The live loop runs after the present op.
    settles: AtomicBool,
}

impl Card {
    /// The live loop governs until an iteration is followed.
    pub(crate) fn new(capture: &'static Capture) -> Self {
        Self {
            capture,
            directed: AtomicBool::new(false),
            settles: AtomicBool::new(true),
        }
    }

    /// Decides for the op about to be issued; whether the plan's steps may be issued. `ready`: the
    /// bindings are settled and whatever the plan says once has been said.
    pub(crate) fn governed_by_plan(
        &self,
        call: &OpCall<'_>,
        verdict: &Verdict,
        ready: impl FnOnce() -> bool,
        expected: impl FnOnce() -> HashSet<Chunk>,
    ) -> bool {
        let mut directed = self.directed.load(Ordering::Acquire);
        if !verdict.tracking {
            directed = false;
        } else if !directed && verdict.handover && ready() {
            let expected = expected();
            self.capture
                .evict_unless(call.device, &|chunk| expected.contains(&chunk));
            directed = true;
        }
        self.directed.store(directed, Ordering::Release);
        // Once an iteration, and wherever steps may have been passed over, the live loop sees that
        // the card is kept to.
        let settles = !directed || !verdict.in_order || verdict.iteration;
        self.settles.store(settles, Ordering::Release);
        directed
    }

    /// The op was issued, when `issued` says.
    pub(crate) fn after_op(&self, call: &OpCall<'_>, issued: u64) {
        if self.settles.load(Ordering::Acquire) {
            self.capture.settle(call, issued);
        }
    }
}

/// The chunks the plan expects on the card when an iteration begins, of the live allocations.
pub(crate) fn expected(script: &Script, bindings: &Bindings) -> HashSet<Chunk> {
    let mut chunks = HashSet::new();
    for range in &script.start_resident {
        let live = bindings.live(range.alloc);
        let Some((address, bytes)) = bindings.resolve(range).filter(|_| live != UNBOUND) else {
            continue;
        };
        let base = address.saturating_sub(range.offset) / CHUNK_BYTES;
        let (first, last) = (address / CHUNK_BYTES, (address + bytes - 1) / CHUNK_BYTES);
        chunks.extend((first..=last).filter_map(|chunk| {
            let index = u32::try_from(chunk - base).ok()?;
            Some(Chunk {
                alloc: AllocId(live),
                index,
            })
        }));
    }
    chunks
}

#[cfg(test)]
mod tests {
    use transit_format::ids::{FunctionId, OpSeq, StreamId};
    use transit_format::plan::model::{Plan, PlanAlloc, Range};
    use transit_format::trace::model::OpKind;
    use transit_hook::observer::Allocation;

    use super::*;
    use crate::follow::ledger::Ledger;

    static CAPTURE: Capture = Capture::new();

    fn op() -> OpCall<'static> {
        OpCall {
            seq: OpSeq(0),
            kind: OpKind::Kernel,
            stream: StreamId(0),
            stream_handle: 0,
            device: 0,
            function: FunctionId(0),
            name_hash: 0,
            shape: 0,
            records: transit_hook::DeviceRecords::default(),
            payload_bytes: 0,
            pointers: &[],
            capturing: false,
            excluded: false,
        }
    }

    #[test]
    fn the_plan_takes_over_at_an_iterations_start_and_loses_with_the_place() {
        let card = Card::new(&CAPTURE);
        let tracking = Verdict {
            tracking: true,
            in_order: true,
            ..Verdict::default()
        };
        let start = Verdict {
            iteration: true,
            handover: true,
            ..tracking
        };
        let govern = |verdict: &Verdict, ready: bool| {
            let planned = card.governed_by_plan(&op(), verdict, || ready, HashSet::new);
            (planned, card.settles.load(Ordering::Acquire))
        };
        assert_eq!(govern(&Verdict::default(), true), (false, true));
        assert_eq!(
            govern(&tracking, true),
            (false, true),
            "not in the middle of an iteration"
        );
        assert_eq!(
            govern(&start, false),
            (false, true),
            "not before the bindings are settled"
        );
        assert_eq!(govern(&start, true), (true, true));
        assert_eq!(govern(&tracking, true), (true, false));
        let jumped = Verdict {
            in_order: false,
            ..tracking
        };
        assert_eq!(
            govern(&jumped, true),
            (true, true),
            "steps were passed over"
        );
        assert_eq!(govern(&Verdict::default(), true), (false, true));
        assert_eq!(govern(&tracking, true), (false, true));
    }

    #[test]
    fn chunks_are_counted_in_address_space_from_the_allocations_base() {
        let range = |offset, bytes| Range {
            alloc: 0,
            offset,
            bytes,
        };
        let plan = Plan {
            allocs: vec![PlanAlloc {
                bytes: 5 * CHUNK_BYTES,
                ..PlanAlloc::default()
            }],
            start_resident: vec![
                range(CHUNK_BYTES, CHUNK_BYTES),
                range(3 * CHUNK_BYTES, 4096),
            ],
            ..Plan::default()
        };
        let script = Script::new(&plan);
        let bindings = Bindings::new(1);
        assert!(expected(&script, &bindings).is_empty());
        let allocation = Allocation {
            id: AllocId(0),
            // Not on a chunk boundary: the second chunk of address space starts after 1 MiB.
            address: (1 << 40) + CHUNK_BYTES / 2,
            bytes: 5 * CHUNK_BYTES,
            managed: true,
            ..Allocation::default()
        };
        Ledger::new(&script).allocated(&script, &bindings, &allocation);
        let mut indices: Vec<u32> = expected(&script, &bindings)
            .iter()
            .map(|chunk| chunk.index)
            .collect();
        indices.sort_unstable();
        assert_eq!(indices, [1, 2, 3]);
    }
}
