//! Makes traces that look like training: iterations of the same launches with the same pointers,
//! noisy times, device clock ticks of 32 ns, migrations in bursts.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "each test binary uses its part, and clippy takes only #[test] functions for tests"
)]

pub mod plans;

use transit_format::ids::{AllocId, FunctionId, Nanos, OpSeq, StreamId};
use transit_format::trace::Writer;
use transit_format::trace::model::{
    Alloc, Cause, Direction, Event, Function, Header, Mark, MarkKind, Migration, Op, OpKind,
    Pointer, Stream, StreamKind, Totals,
};

/// A trace and what was put into it.
pub struct Made {
    pub bytes: Vec<u8>,
    pub events: u64,
    pub header: Header,
    pub functions: Vec<Function>,
    pub allocs: Vec<Alloc>,
    pub ops: Vec<(Op, Vec<Pointer>)>,
    pub migrations: Vec<Migration>,
}

/// xorshift64*, so that a seed means the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % bound
    }
}

pub fn header() -> Header {
    Header {
        tool_version: "0.1.0".into(),
        command: vec!["python".into(), "train.py".into(), "--batch=8".into()],
        host: "node17".into(),
        pid: 4711,
        rank: Some(1),
        local_rank: Some(1),
        start_unix_s: 1_790_000_000,
        device_name: "NVIDIA H200".into(),
        device_total_bytes: 150_754_820_096,
        driver_version: 13000,
        cupti_version: 26,
        emulated_card_bytes: Some(80 << 30),
        faults_recorded: false,
        replayed_policy: None,
        min_convert_bytes: 2 << 20,
        notes: vec![("allocator".into(), "caching".into())],
    }
}

/// A launch of the iteration that repeats.
struct Launch {
    function: u32,
    shape: u32,
    pointers: Vec<Pointer>,
    host_ns: u64,
    device_ns: u64,
}

fn iteration(random: &mut Random, launches: usize, allocs: &[Alloc]) -> Vec<Launch> {
    let mut recent: Vec<Pointer> = Vec::new();
    (0..launches)
        .map(|_| {
            let count = 1 + random.below(5) as usize;
            let pointers = (0..count)
                .map(|_| {
                    if random.below(10) < 6 && !recent.is_empty() {
                        let back = recent.len().min(30) as u64;
                        return recent[recent.len() - 1 - random.below(back) as usize];
                    }
                    let alloc = random.below(allocs.len() as u64) as u32;
                    let offset = random.below(allocs[alloc as usize].bytes / 512) * 512;
                    let pointer = Pointer {
                        alloc: AllocId(alloc),
                        offset,
                        bytes: 0,
                    };
                    recent.push(pointer);
                    pointer
                })
                .collect();
            let function = random.below(60) as u32;
            Launch {
                function,
                shape: (function * 7919 + random.below(3) as u32).wrapping_mul(0x9e37_79b1),
                pointers,
                host_ns: 3_000 + random.below(9_000),
                device_ns: 2_000 + random.below(400_000),
            }
        })
        .collect()
}

/// Whether the values put into a trace are kept beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Values,
    Nothing,
}

/// About `events` events: 4,000 launches an iteration, one migration for each two ops.
pub fn training(events: u64, seed: u64) -> Made {
    made(events, seed, Keep::Values)
}

/// [`training`], with the values or without.
pub fn made(events: u64, seed: u64, keep: Keep) -> Made {
    let mut random = Random(seed);
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut made = Made {
        bytes: Vec::new(),
        events: 0,
        header: header(),
        functions: Vec::new(),
        allocs: Vec::new(),
        ops: Vec::new(),
        migrations: Vec::new(),
    };
    for number in 0..60 {
        let name = format!("_ZN2at6native{number}vectorized_elementwise_kernelILi4EEEvT_");
        let function = Function {
            name,
            params: number % 7,
        };
        made.functions.push(function.clone());
        writer.push(Event::Function(function)).unwrap();
    }
    for turn in 0..2 {
        let stream = Stream {
            kind: StreamKind::Created,
            device: 1,
            turn,
        };
        writer.push(Event::Stream(stream)).unwrap();
    }
    for number in 0..300_u64 {
        let alloc = Alloc {
            address: 0x7f00_0000_0000 + number * (64 << 20),
            bytes: (2 + random.below(31)) << 20,
            device: 1,
            converted: true,
            managed: true,
            pooled: false,
            caller: "libc10_cuda.so".into(),
            at_op: OpSeq(0),
            at_ns: Nanos(number * 50_000),
        };
        made.allocs.push(alloc.clone());
        writer.push(Event::Alloc(alloc)).unwrap();
    }
    let launches = iteration(&mut random, 4_000, &made.allocs);
    let (ops, migrations) = steps(
        &mut writer,
        &mut made,
        &mut random,
        &launches,
        (events, keep),
    );
    writer
        .push(Event::Totals(Totals {
            ops,
            ..Totals::default()
        }))
        .unwrap();
    made.events = ops + migrations + made.allocs.len() as u64;
    made.bytes = writer.finish().unwrap();
    made
}

fn steps(
    writer: &mut Writer<Vec<u8>>,
    made: &mut Made,
    random: &mut Random,
    launches: &[Launch],
    (events, keep): (u64, Keep),
) -> (u64, u64) {
    let (mut host_ns, mut device_ns) = (20_000_000_u64, 20_000_032_u64);
    let mut late: Vec<(OpSeq, Nanos, Nanos)> = Vec::new();
    let (mut ops, mut migrations) = (0_u64, 0_u64);
    while ops + migrations < events {
        for launch in launches {
            let seq = OpSeq(ops);
            ops += 1;
            host_ns += launch.host_ns + random.below(1_500);
            device_ns = device_ns.max(host_ns / 32 * 32) + 960 + 32 * random.below(20);
            let start_ns = Nanos(device_ns);
            device_ns += launch.device_ns / 32 * 32 + 32 * random.below(30);
            let op = Op {
                kind: OpKind::Kernel,
                stream: StreamId(u32::from(launch.function % 16 == 0)),
                function: FunctionId(launch.function),
                shape: launch.shape,
                issued_ns: Nanos(host_ns),
                ..Op::default()
            };
            writer.push(Event::Op(op, launch.pointers.clone())).unwrap();
            late.push((seq, start_ns, Nanos(device_ns)));
            let timed = Op {
                start_ns,
                end_ns: Nanos(device_ns),
                ..op
            };
            if keep == Keep::Values {
                made.ops.push((timed, launch.pointers.clone()));
            }
            if random.below(2) == 0 {
                let migration = migration(random, launch, device_ns);
                migrations += 1;
                if keep == Keep::Values {
                    made.migrations.push(migration);
                }
                writer.push(Event::Migration(migration)).unwrap();
            }
            // CUPTI hands over buffers of many records at a time.
            if late.len() == 1_000 {
                push_times(writer, late.drain(..));
            }
        }
        let mark = Mark {
            kind: MarkKind::Sync,
            at_op: OpSeq(ops),
            at_ns: Nanos(host_ns),
        };
        writer.push(Event::Mark(mark)).unwrap();
    }
    push_times(writer, late.into_iter());
    (ops, migrations)
}

fn push_times(writer: &mut Writer<Vec<u8>>, late: impl Iterator<Item = (OpSeq, Nanos, Nanos)>) {
    for (op, start_ns, end_ns) in late {
        let time = Event::OpTime {
            op,
            start_ns,
            end_ns,
        };
        writer.push(time).unwrap();
    }
}

fn migration(random: &mut Random, launch: &Launch, now_ns: u64) -> Migration {
    let pointer = launch.pointers[0];
    let chunk = pointer.offset >> 21 << 21;
    let eviction = random.below(3) == 0;
    Migration {
        alloc: pointer.alloc,
        offset: chunk + (random.below(8) << 16),
        bytes: (1 + random.below(8)) << 16,
        direction: if eviction {
            Direction::DtoH
        } else {
            Direction::HtoD
        },
        cause: if eviction {
            Cause::Eviction
        } else {
            Cause::Coherence
        },
        device: 1,
        start_ns: Nanos(now_ns - 32 * random.below(1000)),
        end_ns: Nanos(now_ns + 32 * random.below(100)),
        op: None,
    }
}
