//! What the frozen samples of version 1 hold: every kind of event, every value of every enum.
//! Never change it: a new version gets samples of its own.
#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    reason = "a part of tests, which clippy takes for none"
)]

use transit_format::ids::{AllocId, FunctionId, Nanos, OpSeq, Ordinal, StreamId};
use transit_format::plan::model::{
    Action, Meta, Placement, Plan, PlanAlloc, PlanOp, PlanStream, Range, Shape, Step,
};
use transit_format::plan::name_hash;
use transit_format::trace::Trace;
use transit_format::trace::check::{Check, Counted};
use transit_format::trace::model::{
    Alloc, Cause, Direction, Drops, Event, Fault, FaultKind, Free, Function, Header, Mark,
    MarkKind, Migration, Op, OpKind, Pointer, Stream, StreamKind, Totals,
};

pub fn header() -> Header {
    Header {
        tool_version: "0.1.0".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        host: "node17".to_owned(),
        pid: 4711,
        rank: Some(3),
        local_rank: None,
        start_unix_s: 1_790_000_000,
        device_name: "NVIDIA H200".to_owned(),
        device_total_bytes: 150_754_820_096,
        driver_version: 13000,
        cupti_version: 26,
        emulated_card_bytes: Some(80 << 30),
        faults_recorded: true,
        replayed_policy: Some("hybrid".to_owned()),
        min_convert_bytes: 2 << 20,
        notes: vec![("allocator".to_owned(), "caching".to_owned())],
    }
}

const OP_KINDS: [OpKind; 4] = [
    OpKind::Kernel,
    OpKind::Graph,
    OpKind::Memset,
    OpKind::Memcpy,
];
const STREAM_KINDS: [StreamKind; 3] = [
    StreamKind::Legacy,
    StreamKind::PerThread,
    StreamKind::Created,
];
const DIRECTIONS: [Direction; 3] = [Direction::HtoD, Direction::DtoH, Direction::DtoD];
const CAUSES: [Cause; 6] = [
    Cause::Unknown,
    Cause::User,
    Cause::Coherence,
    Cause::Prefetch,
    Cause::Eviction,
    Cause::AccessCounters,
];
const FAULTS: [FaultKind; 4] = [
    FaultKind::Read,
    FaultKind::Write,
    FaultKind::RemoteMap,
    FaultKind::Cpu,
];
const MARKS: [MarkKind; 6] = [
    MarkKind::WindowBegin,
    MarkKind::Sync,
    MarkKind::CaptureBegin,
    MarkKind::CaptureEnd,
    MarkKind::Iteration,
    MarkKind::WindowEnd,
];
const ACTIONS: [Action; 5] = [
    Action::PrefetchToDevice,
    Action::EvictToHost,
    Action::AdviseAccessedBy,
    Action::AdvisePreferHost,
    Action::AdviseReadMostly,
];

fn function(number: u32) -> Function {
    Function {
        name: format!("_Z7kernel_{number}Pfi"),
        params: number,
    }
}

fn alloc(number: u32) -> Alloc {
    Alloc {
        address: 0x7f00_0000_0000 + (u64::from(number) << 25),
        bytes: (u64::from(number) + 2) << 20,
        device: number % 2,
        converted: number != 1,
        managed: number != 2,
        pooled: false,
        caller: if number == 2 {
            String::new()
        } else {
            "libc10_cuda.so".to_owned()
        },
        at_op: OpSeq(u64::from(number)),
        at_ns: Nanos(u64::from(number) * 1_000),
    }
}

fn pointers(op: u32) -> Vec<Pointer> {
    let pointer = |turn: u32| Pointer {
        alloc: AllocId((op + turn) % 3),
        offset: u64::from(turn) * 4_096,
        bytes: if op % 4 < 2 { 0 } else { 65_536 },
    };
    (0..op % 4).map(pointer).collect()
}

fn op(number: u32) -> Op {
    Op {
        kind: OP_KINDS[number as usize % 4],
        stream: StreamId(number % 3),
        function: FunctionId(number % 2),
        shape: 0xdead_0000 + number % 2,
        issued_ns: Nanos(10_000 + u64::from(number) * 777),
        ..Op::default()
    }
}

/// Device times of all ops but the last.
fn span(number: u32) -> (Nanos, Nanos) {
    let start = 20_000 + u64::from(number) * 1_024;
    (Nanos(start), Nanos(start + 96 + 32 * u64::from(number)))
}

fn migration(number: u32) -> Migration {
    Migration {
        alloc: AllocId(number % 3),
        offset: u64::from(number) << 16,
        bytes: 65_536,
        direction: DIRECTIONS[number as usize % 3],
        cause: CAUSES[number as usize % 6],
        device: number % 2,
        start_ns: Nanos(30_000 + u64::from(number) * 64),
        end_ns: Nanos(30_032 + u64::from(number) * 64),
        op: number.is_multiple_of(2).then_some(OpSeq(u64::from(number))),
    }
}

fn fault(number: u32) -> Fault {
    Fault {
        alloc: AllocId(number % 3),
        offset: u64::from(number) << 12,
        value: u64::from(number) + 1,
        kind: FAULTS[number as usize % 4],
        start_ns: Nanos(40_000 + u64::from(number)),
        end_ns: Nanos(40_500 + u64::from(number)),
        op: (number == 3).then_some(OpSeq(7)),
    }
}

fn mark(number: u32) -> Mark {
    Mark {
        kind: MARKS[number as usize % 6],
        at_op: OpSeq(u64::from(number)),
        at_ns: Nanos(50_000 + u64::from(number)),
    }
}

fn free(number: u32) -> Free {
    Free {
        alloc: AllocId(number),
        at_op: OpSeq(8),
        at_ns: Nanos(60_000 + u64::from(number)),
    }
}

fn counted(hooked: u64) -> Counted {
    Counted {
        hooked,
        confirmed: hooked - 1,
        unseen: hooked + 10,
    }
}

fn totals() -> Totals {
    Totals {
        ops: 8,
        cupti_ops: 7,
        hooked_ops: 9,
        converted_peak_bytes: 6 << 20,
        unconverted_peak_bytes: 3 << 20,
        drops: Drops {
            ops: 1,
            cupti: 2,
            unplaced: 3,
            bad_times: 4,
        },
        check: Some(Check {
            kernels: counted(5),
            memsets: counted(6),
            memcpys: counted(7),
            open_launches: 2,
            unseen_kernels: vec![("_Z6hiddenPf".to_owned(), 3)],
        }),
        unasked_ops: 0,
    }
}

/// Events of the two blocks.
pub fn events() -> [Vec<Event>; 2] {
    let mut first = vec![Event::Function(function(0)), Event::Function(function(1))];
    let stream = |turn: u32| Stream {
        kind: STREAM_KINDS[turn as usize],
        device: turn % 2,
        turn,
    };
    first.extend((0..3).map(stream).map(Event::Stream));
    first.extend((0..3).map(alloc).map(Event::Alloc));
    first.extend((0..5).map(|number| Event::Op(op(number), pointers(number))));
    first.extend((0..6).map(migration).map(Event::Migration));
    first.extend((0..6).map(mark).map(Event::Mark));
    first.push(Event::Totals(Totals::default()));
    let mut second: Vec<Event> = (5..8)
        .map(|number| Event::Op(op(number), pointers(number)))
        .collect();
    second.extend((0..7).map(|number| {
        let (start_ns, end_ns) = span(number);
        Event::OpTime {
            op: OpSeq(u64::from(number)),
            start_ns,
            end_ns,
        }
    }));
    second.extend((0..4).map(fault).map(Event::Fault));
    second.extend((0..2).map(free).map(Event::Free));
    second.push(Event::Totals(totals()));
    [first, second]
}

/// What reading them gives.
pub fn trace() -> Trace {
    let mut trace = Trace {
        header: header(),
        functions: (0..2).map(function).collect(),
        streams: (0..3)
            .map(|turn| Stream {
                kind: STREAM_KINDS[turn as usize],
                device: turn % 2,
                turn,
            })
            .collect(),
        allocs: (0..3).map(alloc).collect(),
        frees: (0..2).map(free).collect(),
        migrations: (0..6).map(migration).collect(),
        faults: (0..4).map(fault).collect(),
        marks: (0..6).map(mark).collect(),
        totals: totals(),
        ..Trace::default()
    };
    let mut lists: Vec<(Vec<Pointer>, u64)> = Vec::new();
    for number in 0..8 {
        let list = pointers(number);
        let known = lists
            .iter()
            .find(|(known, _)| *known == list)
            .map(|(_, first)| *first);
        let first_pointer = known.unwrap_or_else(|| {
            let first = trace.pointers.len() as u64;
            lists.push((list.clone(), first));
            trace.pointers.extend_from_slice(&list);
            first
        });
        let (start_ns, end_ns) = if number < 7 {
            span(number)
        } else {
            (Nanos(0), Nanos(0))
        };
        let pointers = list.len() as u32;
        trace.ops.push(Op {
            start_ns,
            end_ns,
            first_pointer,
            pointers,
            ..op(number)
        });
    }
    trace
}

fn meta() -> Meta {
    Meta {
        tool_version: "0.1.0".to_owned(),
        policy: "hybrid".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        rank: Some(3),
        device_name: "NVIDIA H200".to_owned(),
        trace_hash: "0badcafe".to_owned(),
        boundary_evidence: "optimizer kernel names".to_owned(),
        confidence: 0.875,
        choices: vec![("gap".to_owned(), "128 KiB".to_owned())],
    }
}

/// The sample plan.
pub fn plan() -> Plan {
    let names: Vec<String> = (0..2).map(|number| function(number).name).collect();
    let range = |number: u32| Range {
        alloc: number % 2,
        offset: u64::from(number) << 16,
        bytes: 65_536 + u64::from(number),
    };
    let op = |number: u32| PlanOp {
        kind: OP_KINDS[number as usize % 4],
        name_hash: name_hash(names[number as usize % 2].as_bytes()),
        shape: 0xdead_0000 + number,
        name: number % 2,
        pointers: (0..number % 3)
            .map(|turn| (turn % 2, u64::from(number) * 512))
            .collect(),
    };
    let stream = |turn: u32| PlanStream {
        stream: Stream {
            kind: STREAM_KINDS[turn as usize],
            device: turn % 2,
            turn,
        },
        ops: (0..4 + turn).map(op).collect(),
    };
    let step = |number: u32| Step {
        stream: StreamId(number / 3),
        ordinal: Ordinal(number % 3),
        action: ACTIONS[number as usize % 5],
        ranges: (0..number % 4).map(range).collect(),
    };
    Plan {
        meta: meta(),
        shape: Shape {
            capacity_bytes: 80 << 30,
            card_bytes: 64 << 30,
            main_stream: StreamId(1),
            anchor_ops: 3,
            midpoint: Ordinal(2),
            advise_all_at_midpoint: true,
            min_convert_bytes: 2 << 20,
        },
        allocs: (0..2)
            .map(|number| PlanAlloc {
                ordinal: number * 3,
                turn: number,
                bytes: (u64::from(number) + 4) << 20,
                device: number,
            })
            .collect(),
        streams: (0..3).map(stream).collect(),
        steps: (0..9).map(step).collect(),
        placements: (0..5)
            .map(|number| Placement {
                action: ACTIONS[number as usize],
                range: range(number),
            })
            .collect(),
        start_resident: (0..3).map(range).collect(),
        names,
    }
}
