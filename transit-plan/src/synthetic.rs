//! A made-up training run under an emulated card, as a trace: the shape of the real thing (layers
//! forward and backward, an optimizer whose state appears in the first step, a first-in first-out
//! card of 2 MiB chunks) without a device. Tests of every verb use it; nothing else does.

use std::collections::{HashSet, VecDeque};

use transit_format::ids::{AllocId, FunctionId, Nanos, OpSeq, StreamId};
use transit_format::trace::model::{
    Alloc, Cause, Direction, Drops, Fault, FaultKind, Function, Header, Mark, MarkKind, Migration,
    Op, OpKind, Pointer, Stream, StreamKind, Totals,
};
use transit_format::trace::{End, Trace};

const MIB: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 2 * MIB;
/// What the run holds beside its managed memory.
const UNCONVERTED_BYTES: u64 = 24 * MIB;

/// How the made-up run was directed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directed {
    /// By page faults.
    Base,
    /// By a prefetch before each op.
    Prefetch,
    /// Optimizer state stays on the host and is mapped remotely.
    Advise,
}

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Layers of the model.
    pub layers: u32,
    /// Training steps.
    pub steps: u32,
    /// The emulated card.
    pub card_bytes: u64,
    /// How the run was directed.
    pub directed: Directed,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            layers: 6,
            steps: 4,
            card_bytes: 256 * MIB,
            directed: Directed::Base,
        }
    }
}

const FUNCTIONS: [&str; 7] = [
    "memset",
    "_ZN5model6matmulEPfPKfS2_jjj",
    "_ZN5model3actEPfPKfm",
    "_ZN5model4lossEPfPKfPKjjj",
    "_ZN5model8act_backEPfPKfS2_m",
    "_ZN5model11matmul_backEPfPKfS2_jjj",
    "_ZN9optimizer10multi_adamENS_6ChunksE",
];

impl Synthetic {
    /// Makes the trace. The same values always make the same trace.
    #[must_use]
    pub fn trace(self) -> Trace {
        let mut run = Run::new(self);
        for step in 0..self.steps {
            run.step(step);
        }
        run.finish()
    }
}

struct Run {
    made: Synthetic,
    trace: Trace,
    now_ns: u64,
    next_address: u64,
    resident: HashSet<(u32, u64)>,
    fifo: VecDeque<(u32, u64)>,
    mapped: HashSet<u32>,
}

/// Places of a layer's allocations: params, gradient and activation come first for all layers, then
/// the loss, then two states per layer.
impl Run {
    fn new(made: Synthetic) -> Self {
        let functions = FUNCTIONS.iter().map(|name| Function {
            name: (*name).into(),
            params: 4,
        });
        let trace = Trace {
            header: header(made),
            functions: functions.collect(),
            streams: vec![Stream {
                kind: StreamKind::Created,
                device: 0,
                turn: 0,
            }],
            allocs: Vec::new(),
            frees: Vec::new(),
            ops: Vec::new(),
            pointers: Vec::new(),
            migrations: Vec::new(),
            faults: Vec::new(),
            marks: vec![Mark {
                kind: MarkKind::WindowBegin,
                at_op: OpSeq(0),
                at_ns: Nanos(0),
            }],
            totals: Totals::default(),
            end: End::Clean,
        };
        let mut run = Self {
            made,
            trace,
            now_ns: 1_000_000,
            next_address: 0x7f20_0000_0000,
            resident: HashSet::new(),
            fifo: VecDeque::new(),
            mapped: HashSet::new(),
        };
        for _ in 0..made.layers {
            run.alloc(16 * MIB);
            run.alloc(16 * MIB);
            run.alloc(8 * MIB);
        }
        run.alloc(2 * MIB);
        run
    }

    fn alloc(&mut self, bytes: u64) {
        self.trace.allocs.push(Alloc {
            address: self.next_address,
            bytes,
            converted: true,
            managed: true,
            pooled: false,
            caller: "libtrainer.so".into(),
            at_op: OpSeq(self.trace.ops.len() as u64),
            at_ns: Nanos(self.now_ns),
            ..Alloc::default()
        });
        self.next_address += bytes
            + if self.trace.allocs.len().is_multiple_of(4) {
                64 * MIB
            } else {
                0
            };
    }

    fn step(&mut self, step: u32) {
        let layers = self.made.layers;
        let (params, grads, acts) = (|l| l * 3, |l| l * 3 + 1, |l| l * 3 + 2);
        let loss = layers * 3;
        for layer in 0..layers {
            self.op(OpKind::Memset, 0, &[grads(layer)], 20_000);
        }
        for layer in 0..layers {
            let input = if layer == 0 { loss } else { acts(layer - 1) };
            self.op(
                OpKind::Kernel,
                1,
                &[acts(layer), input, params(layer)],
                900_000,
            );
            self.op(OpKind::Kernel, 2, &[acts(layer)], 60_000);
        }
        self.op(OpKind::Kernel, 3, &[loss, acts(layers - 1)], 30_000);
        for layer in (0..layers).rev() {
            self.op(OpKind::Kernel, 4, &[acts(layer), loss], 60_000);
            self.op(
                OpKind::Kernel,
                5,
                &[grads(layer), acts(layer), params(layer)],
                1_800_000,
            );
        }
        if step == 0 {
            for _ in 0..2 * layers {
                self.alloc(16 * MIB);
            }
        }
        for layer in 0..layers {
            let state = loss + 1 + 2 * layer;
            let all = [params(layer), grads(layer), state, state + 1];
            self.op(OpKind::Kernel, 6, &all, 120_000);
        }
        self.now_ns += 300_000;
    }

    fn op(&mut self, kind: OpKind, function: u32, allocs: &[u32], busy_ns: u64) {
        let issued_ns = self.now_ns;
        let start_ns = issued_ns + 6_000;
        self.now_ns = start_ns;
        let first_pointer = self.trace.pointers.len() as u64;
        for alloc in allocs {
            let bytes = if kind == OpKind::Memset {
                self.bytes_of(*alloc)
            } else {
                0
            };
            self.trace.pointers.push(Pointer {
                alloc: AllocId(*alloc),
                offset: 0,
                bytes,
            });
            self.touch(*alloc);
        }
        self.now_ns += busy_ns;
        self.trace.ops.push(Op {
            kind,
            stream: StreamId(0),
            function: FunctionId(function),
            shape: function * 77 + 5,
            issued_ns: Nanos(issued_ns),
            start_ns: Nanos(start_ns),
            end_ns: Nanos(self.now_ns),
            first_pointer,
            pointers: u32::try_from(allocs.len()).unwrap_or(0),
        });
        self.make_room(0);
        self.now_ns += 4_000;
    }

    fn bytes_of(&self, alloc: u32) -> u64 {
        self.trace
            .allocs
            .get(alloc as usize)
            .map_or(0, |entry| entry.bytes)
    }

    /// Whether the advice keeps an allocation on the host: the states, after the first step.
    fn is_cold(&self, alloc: u32) -> bool {
        self.made.directed == Directed::Advise && alloc > self.made.layers * 3
    }

    fn touch(&mut self, alloc: u32) {
        let bytes = self.bytes_of(alloc);
        if self.is_cold(alloc) {
            if self.mapped.insert(alloc) {
                self.fault(alloc, 0, bytes, FaultKind::RemoteMap);
            }
            return;
        }
        for chunk in 0..bytes.div_ceil(CHUNK_BYTES) {
            if self.resident.contains(&(alloc, chunk)) {
                continue;
            }
            if self.made.directed == Directed::Prefetch {
                self.make_room(1);
            }
            self.resident.insert((alloc, chunk));
            self.fifo.push_back((alloc, chunk));
            let start = chunk * CHUNK_BYTES;
            if self.made.directed == Directed::Prefetch {
                self.migrate(alloc, start, CHUNK_BYTES, Direction::HtoD, Cause::User, 45);
                continue;
            }
            // One fault, then the tree prefetch doubles what it brings: 64 KiB to 1 MiB.
            self.fault(alloc, start, 1 + chunk % 3, FaultKind::Write);
            let mut offset = 0;
            for (turn, kib) in [4_u64, 60, 64, 128, 256, 512, 1024].into_iter().enumerate() {
                let cause = if turn == 0 {
                    Cause::Coherence
                } else {
                    Cause::Prefetch
                };
                let rate = if kib < 256 { 4 } else { 14 };
                self.migrate(
                    alloc,
                    start + offset,
                    kib << 10,
                    Direction::HtoD,
                    cause,
                    rate,
                );
                offset += kib << 10;
            }
        }
    }

    /// Evicts until so many chunks are free.
    fn make_room(&mut self, free: u64) {
        let limit = (self.made.card_bytes - UNCONVERTED_BYTES) / CHUNK_BYTES;
        while self.fifo.len() as u64 + free > limit {
            let Some((alloc, chunk)) = self.fifo.pop_front() else {
                break;
            };
            self.resident.remove(&(alloc, chunk));
            let start = chunk * CHUNK_BYTES;
            self.migrate(alloc, start, CHUNK_BYTES, Direction::DtoH, Cause::User, 10);
        }
    }

    /// One transfer at `rate` bytes per nanosecond and 2 us more.
    fn migrate(
        &mut self,
        alloc: u32,
        offset: u64,
        bytes: u64,
        direction: Direction,
        cause: Cause,
        rate: u64,
    ) {
        let start_ns = self.now_ns;
        self.now_ns += 2_000 + bytes / rate;
        let ops = self.trace.ops.len() as u64;
        self.trace.migrations.push(Migration {
            alloc: AllocId(alloc),
            offset,
            bytes,
            direction,
            cause,
            device: 0,
            start_ns: Nanos(start_ns),
            end_ns: Nanos(self.now_ns),
            // An eviction follows the op that was just pushed; the rest precedes it.
            op: Some(OpSeq(if direction == Direction::DtoH {
                ops - 1
            } else {
                ops
            })),
        });
    }

    fn fault(&mut self, alloc: u32, offset: u64, value: u64, kind: FaultKind) {
        self.trace.faults.push(Fault {
            alloc: AllocId(alloc),
            offset,
            value,
            kind,
            start_ns: Nanos(self.now_ns),
            end_ns: Nanos(self.now_ns + 20_000),
            op: Some(OpSeq(self.trace.ops.len() as u64)),
        });
        self.now_ns += 20_000;
    }

    fn finish(mut self) -> Trace {
        let ops = self.trace.ops.len() as u64;
        let at = (OpSeq(ops), Nanos(self.now_ns));
        self.trace.marks.push(Mark {
            kind: MarkKind::WindowEnd,
            at_op: at.0,
            at_ns: at.1,
        });
        self.trace.totals = Totals {
            ops,
            cupti_ops: ops,
            hooked_ops: ops,
            converted_peak_bytes: self.trace.allocs.iter().map(|alloc| alloc.bytes).sum(),
            unconverted_peak_bytes: UNCONVERTED_BYTES,
            drops: Drops::default(),
            check: None,
            unasked_ops: 0,
        };
        self.trace
    }
}

fn header(made: Synthetic) -> Header {
    let policy = match made.directed {
        Directed::Base => None,
        Directed::Prefetch => Some("prefetch".to_owned()),
        Directed::Advise => Some("advise".to_owned()),
    };
    Header {
        tool_version: "0.1.0".into(),
        command: ["trainer", "--layers", &made.layers.to_string()]
            .map(str::to_owned)
            .to_vec(),
        host: "synthetic".into(),
        pid: 4242,
        start_unix_s: 1_795_995_060,
        device_name: "Synthetic H200".into(),
        device_total_bytes: 1 << 30,
        driver_version: 13_000,
        cupti_version: 26,
        emulated_card_bytes: Some(made.card_bytes),
        faults_recorded: true,
        replayed_policy: policy,
        min_convert_bytes: CHUNK_BYTES,
        notes: vec![("made by".into(), "transit_plan::synthetic".into())],
        ..Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_kept_and_the_policies_differ() {
        let base = Synthetic::default().trace();
        let prefetch = Synthetic {
            directed: Directed::Prefetch,
            ..Synthetic::default()
        }
        .trace();
        let advise = Synthetic {
            directed: Directed::Advise,
            ..Synthetic::default()
        }
        .trace();
        assert!(base.migrations.len() > 3 * prefetch.migrations.len());
        assert!(prefetch.faults.is_empty() && !base.faults.is_empty());
        let moved = |trace: &Trace| trace.migrations.iter().map(|one| one.bytes).sum::<u64>();
        assert!(moved(&advise) < moved(&base));
        assert_eq!(base, Synthetic::default().trace());
    }
}
