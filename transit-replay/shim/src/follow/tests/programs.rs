//! Invented programs: a plan with known steps, and runs of the job it was made of, with whatever
//! noise a test wants. A run's ops carry the truth of which plan op they are.

use std::sync::Arc;

use transit_format::ids::{AllocId, FunctionId, OpSeq, Ordinal, StreamId};
use transit_format::plan::model::{
    Action, Plan, PlanAlloc, PlanOp, PlanStream, Range, Shape, Step,
};
use transit_format::trace::model::{OpKind, Stream, StreamKind};
use transit_hook::observer::{Allocation, OpCall, PointerArg, StreamInfo};

use crate::follow::bind::Bindings;
use crate::follow::core::{Follower, Verdict};
use crate::follow::ledger::Ledger;
use crate::follow::script::Script;

pub(super) const MIB: u64 = 1 << 20;

/// A small generator of random numbers, so that a test's seed says all.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One op as issued, and what it is in truth.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub(super) stream: u32,
    pub(super) name: u64,
    pub(super) kind: OpKind,
    /// (plan allocation, offset): turned into live pointers when issued.
    pub(super) pointers: Vec<(u32, u64)>,
    /// Position in the plan's iteration; `None` for an op the plan does not know.
    pub(super) truth: Option<u32>,
    /// Something was dropped, added or renamed here.
    pub(super) noise: bool,
}

/// Sizes of an invented program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) ops: u64,
    pub(super) side_streams: u32,
    pub(super) side_ops: u64,
    pub(super) allocs: u32,
    pub(super) kernels: u64,
}

pub(super) const SMALL: Size = Size {
    ops: 120,
    side_streams: 1,
    side_ops: 12,
    allocs: 10,
    kernels: 12,
};

/// A layered program, as training is: a pattern of kernels repeated on other data.
fn ops_of(random: &mut Random, count: u64, size: &Size) -> Vec<PlanOp> {
    let layer: Vec<u64> = (0..7).map(|_| random.below(size.kernels)).collect();
    (0..count)
        .map(|at| {
            let layered = random.chance(80);
            let pattern = layer[usize::try_from(at).unwrap() % layer.len()];
            let name = if layered {
                pattern
            } else {
                random.below(size.kernels)
            };
            let pointers = (0..name % 4)
                .map(|_| {
                    let alloc = u32::try_from(random.below(u64::from(size.allocs))).unwrap();
                    (alloc, random.below(8) * 256 * 1024)
                })
                .collect();
            PlanOp {
                kind: OpKind::Kernel,
                name_hash: 1000 + name,
                pointers,
                ..PlanOp::default()
            }
        })
        .collect()
}

/// A plan for an invented program; about a third of its ops have a step.
pub(super) fn plan(seed: u64, size: &Size) -> Plan {
    let random = &mut Random(seed);
    let mut plan = Plan {
        shape: Shape {
            anchor_ops: 12,
            midpoint: Ordinal(60),
            ..Shape::default()
        },
        ..Plan::default()
    };
    for ordinal in 0..size.allocs {
        let bytes = if ordinal % 3 == 0 { 20 * MIB } else { 2 * MIB };
        let same = plan
            .allocs
            .iter()
            .filter(|alloc| alloc.bytes == bytes)
            .count();
        let turn = u32::try_from(same).unwrap();
        plan.allocs.push(PlanAlloc {
            ordinal,
            turn,
            bytes,
            device: 0,
        });
    }
    for turn in 0..=size.side_streams {
        let kind = if turn == 0 {
            StreamKind::Legacy
        } else {
            StreamKind::Created
        };
        let stream = Stream {
            kind,
            device: 0,
            turn: turn.saturating_sub(1),
        };
        let count = if turn == 0 { size.ops } else { size.side_ops };
        plan.streams.push(PlanStream {
            stream,
            ops: ops_of(random, count, size),
        });
    }
    for (stream, ops) in (0..).zip(&plan.streams) {
        for (ordinal, _) in (0..).zip(&ops.ops) {
            if random.chance(33) {
                let alloc = u32::try_from(random.below(u64::from(size.allocs))).unwrap();
                let range = Range {
                    alloc,
                    offset: 0,
                    bytes: 2 * MIB,
                };
                plan.steps.push(Step {
                    stream: StreamId(stream),
                    ordinal: Ordinal(ordinal),
                    action: Action::PrefetchToDevice,
                    ranges: vec![range],
                });
            }
        }
    }
    plan
}

/// One iteration of the plan's program, its side streams issued among the main stream's ops in
/// a way that changes from run to run.
pub(super) fn iteration(plan: &Plan, random: &mut Random) -> Vec<Issued> {
    let mut next = vec![0_usize; plan.streams.len()];
    let mut issued = Vec::new();
    loop {
        let open: Vec<usize> = (0..next.len())
            .filter(|&s| next[s] < plan.streams[s].ops.len())
            .collect();
        // The first op of an iteration is the main stream's: that is how iterations are cut.
        let stream = match open.first() {
            None => return issued,
            Some(0) if next[0] == 0 || random.chance(80) => 0,
            Some(_) => open[usize::try_from(random.below(open.len() as u64)).unwrap()],
        };
        let op = &plan.streams[stream].ops[next[stream]];
        issued.push(Issued {
            stream: u32::try_from(stream).unwrap(),
            name: op.name_hash,
            kind: op.kind,
            pointers: op.pointers.clone(),
            truth: Some(u32::try_from(next[stream]).unwrap()),
            noise: false,
        });
        next[stream] += 1;
    }
}

/// Runs a follower through a job.
pub(super) struct Bench {
    pub(super) follower: Follower,
    /// Told the same, and takes every op by itself: the two must agree.
    plodder: Follower,
    pub(super) script: Arc<Script>,
    pub(super) bindings: Arc<Bindings>,
    pub(super) ledger: Ledger,
    /// Live allocation of each plan allocation, in truth.
    pub(super) live_of: Vec<u32>,
    seq: u64,
}

impl Bench {
    /// A follower of `plan` in a process whose streams and allocations come as recorded.
    pub(super) fn new(plan: &Plan) -> Self {
        let mut bench = Self::bare(plan);
        for (id, stream) in (0..).zip(&plan.streams) {
            bench.stream(id, stream.stream);
        }
        for alloc in &plan.allocs {
            bench.allocate(alloc.ordinal, alloc.bytes);
            bench.live_of.push(alloc.ordinal);
        }
        bench
    }

    /// The same before any stream or allocation.
    pub(super) fn bare(plan: &Plan) -> Self {
        let script = Arc::new(Script::new(plan));
        let bindings = Arc::new(Bindings::new(script.allocs.len()));
        let ledger = Ledger::new(&script);
        let follower = || Follower::new(Arc::clone(&script), Arc::clone(&bindings));
        Self {
            follower: follower(),
            plodder: follower(),
            script,
            bindings,
            ledger,
            live_of: Vec::new(),
            seq: 0,
        }
    }

    pub(super) fn stream(&mut self, id: u32, stream: Stream) {
        let Stream { kind, device, turn } = stream;
        let id = StreamId(id);
        let info = StreamInfo {
            id,
            kind,
            device,
            turn,
            context: 1,
            handle: 7,
        };
        self.follower.stream(&info);
        self.plodder.stream(&info);
    }

    pub(super) fn allocate(&mut self, id: u32, bytes: u64) -> Option<u32> {
        let allocation = Allocation {
            id: AllocId(id),
            address: (1 << 40) + u64::from(id) * 64 * MIB,
            bytes,
            converted: true,
            managed: true,
            ..Allocation::default()
        };
        self.ledger
            .allocated(&self.script, &self.bindings, &allocation)
    }

    pub(super) fn free(&mut self, id: u32) {
        let bytes = self.ledger.find(id).unwrap().bytes;
        let allocation = Allocation {
            id: AllocId(id),
            bytes,
            ..Allocation::default()
        };
        self.ledger.freeing(&self.bindings, &allocation);
    }

    /// Issues one op; settles votes when the follower asks, as the shim does.
    pub(super) fn issue(&mut self, op: &Issued) -> Verdict {
        let pointers: Vec<PointerArg> = op
            .pointers
            .iter()
            .map(|&(alloc, offset)| {
                let live = self.live_of.get(alloc as usize).copied();
                PointerArg {
                    alloc: AllocId(live.unwrap_or(alloc)),
                    offset,
                    bytes: 0,
                }
            })
            .collect();
        self.seq += 1;
        let verdict = self.op(&call(op, &pointers, self.seq));
        if let Some(whole) = verdict.settle {
            let Self {
                ledger,
                script,
                bindings,
                follower,
                plodder,
                ..
            } = self;
            let resolved = ledger.resolve(script, bindings, &follower.votes, whole);
            follower.votes_settled(resolved.settled);
            plodder.votes_settled(resolved.settled);
        }
        verdict
    }

    pub(super) fn op(&mut self, call: &OpCall<'_>) -> Verdict {
        let plodding = self.plodder.op_by_itself(call);
        let mut verdict = None;
        self.follower.op(call, true, &mut verdict);
        let verdict = verdict.unwrap();
        assert_eq!(verdict, plodding, "{call:?}");
        assert_eq!(self.follower.counters(), self.plodder.counters());
        assert_eq!(self.follower.phase(), self.plodder.phase());
        verdict
    }

    pub(super) fn run(&mut self, ops: &[Issued]) -> Vec<Verdict> {
        ops.iter().map(|op| self.issue(op)).collect()
    }

    /// The (stream, ordinal) whose steps a verdict hands out.
    pub(super) fn step_owner(&self, plan: &Plan, verdict: &Verdict) -> Option<(u32, u32)> {
        let op = self.script.ops[verdict.steps_of? as usize];
        let step = &plan.steps[op.first_step as usize];
        Some((step.stream.0, step.ordinal.0))
    }
}

/// The hook's view of an op.
pub(super) fn call<'a>(op: &Issued, pointers: &'a [PointerArg], seq: u64) -> OpCall<'a> {
    OpCall {
        seq: OpSeq(seq),
        kind: op.kind,
        stream: StreamId(op.stream),
        stream_handle: 7,
        device: 0,
        function: FunctionId(0),
        name_hash: op.name,
        shape: 0,
        records: transit_hook::DeviceRecords::default(),
        payload_bytes: 0,
        pointers,
        capturing: false,
        excluded: false,
    }
}
