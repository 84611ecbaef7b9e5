//! Traces of a made-up training job on a card that is too small: forward, backward and Adam over a
//! few layers, migrations and evictions as a first-in-first-out card would have made them. What is
//! written here shares no code with the planner, so that a test of it means something.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{HashSet, VecDeque};

use transit_format::ids::{AllocId, FunctionId, Nanos, OpSeq, StreamId};
use transit_format::trace::Trace;
use transit_format::trace::model::*;

pub(crate) const CHUNK: u64 = 2 << 20;

/// The job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) layers: u32,
    pub(crate) weight_chunks: u64,
    pub(crate) activation_chunks: u64,
    pub(crate) micro_batches: u32,
    pub(crate) steps: u32,
    /// Chunks of the card that migrates; `None` never evicts.
    pub(crate) card_chunks: Option<usize>,
    /// Every so many steps a few extra ops run (a logging step).
    pub(crate) log_every: u32,
    /// Every so many steps a forward pass over all layers runs twice more (evaluation).
    pub(crate) eval_every: u32,
    /// Share of ops launched under another name, in percent.
    pub(crate) renamed_percent: u64,
    /// Whether the optimizer's kernels are called so.
    pub(crate) optimizer_named: bool,
    /// Whether the host stops before each step (reads the loss).
    pub(crate) host_gap: bool,
    /// Records that each migrated chunk is split into.
    pub(crate) records_per_chunk: u64,
    /// Extra kernels without pointers per layer and pass.
    pub(crate) small_ops: u32,
    pub(crate) second_stream: bool,
    /// Whether migrations carry the op they belong to.
    pub(crate) hints: bool,
    /// Whether memory is on the host at first, as a recorder with an emulated card puts it.
    pub(crate) starts_on_host: bool,
    /// Chunks at the end of each allocation that nothing touches.
    pub(crate) slack_chunks: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            layers: 6,
            weight_chunks: 4,
            activation_chunks: 2,
            micro_batches: 1,
            steps: 6,
            card_chunks: None,
            log_every: 0,
            eval_every: 0,
            renamed_percent: 0,
            optimizer_named: true,
            host_gap: false,
            records_per_chunk: 4,
            small_ops: 3,
            second_stream: false,
            hints: false,
            starts_on_host: false,
            slack_chunks: 0,
        }
    }
}

/// A trace and where its iterations truly start.
pub(crate) struct Made {
    pub(crate) trace: Trace,
    /// Sequence number of the first op of each step, and one past the last op.
    pub(crate) step_starts: Vec<u64>,
}

struct Maker {
    job: Job,
    trace: Trace,
    now: u64,
    /// First in first out by last migration; `order` may hold entries that left.
    order: VecDeque<(u32, u64)>,
    resident: HashSet<(u32, u64)>,
    populated: HashSet<(u32, u64)>,
    random: u64,
}

impl Job {
    pub(crate) fn make(&self) -> Made {
        let mut maker = Maker::new(self.clone());
        maker.allocate();
        let mut step_starts = Vec::new();
        maker.initialise();
        for step in 0..self.steps {
            step_starts.push(maker.seq());
            maker.step(step);
        }
        step_starts.push(maker.seq());
        maker.trace.totals.unconverted_peak_bytes = 0;
        Made {
            trace: maker.trace,
            step_starts,
        }
    }

    fn per_layer(&self) -> u32 {
        // weight, gradient, two moments, activation
        5
    }

    /// Chunks of all allocations.
    pub(crate) fn total_chunks(&self) -> u64 {
        u64::from(self.layers) * (4 * self.weight_chunks + self.activation_chunks)
    }
}

impl Maker {
    fn new(job: Job) -> Self {
        let mut trace = Trace::default();
        trace.header.device_total_bytes = 64 << 30;
        trace.header.device_name = "made up".to_owned();
        let stream = |turn| Stream {
            kind: StreamKind::Created,
            device: 0,
            turn,
        };
        trace.streams = vec![stream(0), stream(1)];
        Self {
            job,
            trace,
            now: 1_000,
            order: VecDeque::new(),
            resident: HashSet::new(),
            populated: HashSet::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn seq(&self) -> u64 {
        self.trace.ops.len() as u64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < percent
    }

    fn allocate(&mut self) {
        let mut address = 1 << 40;
        for _ in 0..self.job.layers {
            let (w, a) = (self.job.weight_chunks, self.job.activation_chunks);
            for chunks in [w, w, w, w, a] {
                let bytes = (chunks + self.job.slack_chunks) * CHUNK;
                let at_op = OpSeq(self.seq());
                self.trace.allocs.push(Alloc {
                    address,
                    bytes,
                    converted: true,
                    managed: true,
                    at_op,
                    ..Alloc::default()
                });
                address += bytes;
            }
        }
    }

    fn alloc(&self, layer: u32, what: u32) -> u32 {
        layer * self.job.per_layer() + what
    }

    fn function(&mut self, name: &str) -> FunctionId {
        let renamed = self.chance(self.job.renamed_percent);
        let name = if renamed {
            format!("{name}_tile{}", self.random % 3)
        } else {
            name.into()
        };
        let known = self
            .trace
            .functions
            .iter()
            .position(|function| function.name == name);
        let place = known.unwrap_or_else(|| {
            self.trace.functions.push(Function { name, params: 0 });
            self.trace.functions.len() - 1
        });
        FunctionId(place as u32)
    }

    fn op(&mut self, name: &str, allocs: &[u32]) {
        self.op_on(StreamId(0), OpKind::Kernel, name, allocs);
    }

    fn op_on(&mut self, stream: StreamId, kind: OpKind, name: &str, allocs: &[u32]) {
        let function = self.function(name);
        let seq = self.seq();
        let issued = self.now;
        let start = self.now + 2_000;
        let mut at = start + 100;
        let mut touched: Vec<(u32, u64)> = Vec::new();
        for alloc in allocs {
            let chunks = self.trace.allocs[*alloc as usize].bytes / CHUNK - self.job.slack_chunks;
            touched.extend((0..chunks).map(|chunk| (*alloc, chunk)));
        }
        for chunk in touched {
            if self.resident.contains(&chunk) {
                continue;
            }
            at = self.migrate(chunk, at, seq);
        }
        let end = at + 50_000;
        self.now = end;
        let first_pointer = self.trace.pointers.len() as u64;
        for alloc in allocs {
            let alloc = AllocId(*alloc);
            self.trace.pointers.push(Pointer {
                alloc,
                offset: 0,
                bytes: 0,
            });
        }
        self.trace.ops.push(Op {
            kind,
            stream,
            function,
            shape: 0,
            issued_ns: Nanos(issued),
            start_ns: Nanos(start),
            end_ns: Nanos(end),
            first_pointer,
            pointers: allocs.len() as u32,
        });
    }

    fn migrate(&mut self, chunk: (u32, u64), mut at: u64, seq: u64) -> u64 {
        let op = self.job.hints.then_some(OpSeq(seq));
        let mut push = |alloc, offset, bytes, direction, cause, at: u64| {
            self.trace.migrations.push(Migration {
                alloc: AllocId(alloc),
                offset,
                bytes,
                direction,
                cause,
                device: 0,
                start_ns: Nanos(at),
                end_ns: Nanos(at + 1_000),
                op,
            });
        };
        while self
            .job
            .card_chunks
            .is_some_and(|card| self.resident.len() >= card)
        {
            let victim = self.order.pop_front().unwrap();
            if !self.resident.remove(&victim) {
                continue;
            }
            let offset = victim.1 * CHUNK;
            push(
                victim.0,
                offset,
                CHUNK,
                Direction::DtoH,
                Cause::Eviction,
                at,
            );
            at += 1_000;
        }
        if !self.populated.insert(chunk) || self.job.starts_on_host {
            let part = CHUNK / self.job.records_per_chunk;
            for place in 0..self.job.records_per_chunk {
                let cause = if place == 0 {
                    Cause::Coherence
                } else {
                    Cause::Prefetch
                };
                let offset = chunk.1 * CHUNK + place * part;
                push(chunk.0, offset, part, Direction::HtoD, cause, at);
                at += 1_000;
            }
        }
        self.resident.insert(chunk);
        self.order.push_back(chunk);
        at
    }

    fn initialise(&mut self) {
        for layer in 0..self.job.layers {
            let weight = self.alloc(layer, 0);
            self.op("fill_normal", &[weight]);
            self.op("scale", &[weight]);
        }
    }

    fn forward(&mut self) {
        for layer in 0..self.job.layers {
            let input = self.alloc(layer.saturating_sub(1), 4);
            let (weight, output) = (self.alloc(layer, 0), self.alloc(layer, 4));
            self.op("gemm_forward", &[weight, input, output]);
            self.op("gelu", &[output]);
            for small in 0..self.job.small_ops {
                self.op(&format!("small_{small}"), &[]);
            }
        }
    }

    fn backward(&mut self) {
        for layer in (0..self.job.layers).rev() {
            let input = self.alloc(layer.saturating_sub(1), 4);
            let (weight, output) = (self.alloc(layer, 0), self.alloc(layer, 4));
            let gradient = self.alloc(layer, 1);
            self.op("gelu_backward", &[output]);
            self.op("gemm_backward_data", &[weight, output, input]);
            self.op("gemm_backward_weight", &[gradient, input, output]);
            for small in 0..self.job.small_ops {
                self.op(&format!("small_back_{small}"), &[]);
            }
            if self.job.second_stream {
                self.op_on(StreamId(1), OpKind::Kernel, "all_reduce", &[gradient]);
            }
        }
    }

    fn step(&mut self, step: u32) {
        if self.job.host_gap {
            self.now += 3_000_000;
        }
        for micro in 0..self.job.micro_batches {
            if micro == 0 {
                for layer in 0..self.job.layers {
                    let gradient = self.alloc(layer, 1);
                    self.op_on(StreamId(0), OpKind::Memset, "memset", &[gradient]);
                }
            }
            self.forward();
            self.op("loss", &[]);
            self.backward();
        }
        if self.job.log_every > 0 && step % self.job.log_every == self.job.log_every - 1 {
            self.op("norm_for_the_log", &[]);
            self.op("reduce_for_the_log", &[]);
            self.op("copy_for_the_log", &[]);
        }
        let optimizer = if self.job.optimizer_named {
            "multi_tensor_apply_kernel<FusedAdamMathFunctor>"
        } else {
            "update_kernel"
        };
        for layer in 0..self.job.layers {
            let allocs: Vec<u32> = (0..4).map(|what| self.alloc(layer, what)).collect();
            self.op(optimizer, &allocs);
        }
        if self.job.eval_every > 0 && step % self.job.eval_every == self.job.eval_every - 1 {
            for _ in 0..2 {
                self.forward();
                self.op("eval_loss", &[]);
            }
        }
    }
}
