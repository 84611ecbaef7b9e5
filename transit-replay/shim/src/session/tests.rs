//! What reaches the driver: on a driver of the test's own that writes every call down.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;

use transit_format::ids::{AllocId, FunctionId, OpSeq, Ordinal, StreamId};
use transit_format::plan::model::{
    Placement, Plan, PlanAlloc, PlanOp, PlanStream, Range, Shape, Step,
};
use transit_format::trace::model::{OpKind, Stream};
use transit_hook::driver::Location;
use transit_hook::observer::PointerArg;

use super::*;
use crate::follow::tests::launch_path::allocator_calls;

static CAPTURE: Capture = Capture::new();

const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;

/// One driver call: name, offset from [`BASE`] in MiB, MiB, stream.
type Call = (&'static str, u64, u64, usize);

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static ANSWER: Cell<u32> = const { Cell::new(0) };
}

fn note(name: &'static str, address: u64, bytes: usize, stream: usize) -> u32 {
    let call = (name, (address - BASE) / MIB, bytes as u64 / MIB, stream);
    CALLS.with_borrow_mut(|calls| calls.push(call));
    ANSWER.get()
}

unsafe extern "C" fn prefetch(
    address: u64,
    bytes: usize,
    place: Location,
    _: u32,
    stream: usize,
) -> u32 {
    let host = format!("{place:?}").contains("kind: 2");
    note(
        if host { "evict" } else { "prefetch" },
        address,
        bytes,
        stream,
    )
}

unsafe extern "C" fn advise(address: u64, bytes: usize, advice: c_int, _: Location) -> u32 {
    let name = [
        "",
        "mostly",
        "unmostly",
        "prefer",
        "unprefer",
        "accessed",
        "unaccessed",
    ];
    note(name[usize::try_from(advice).unwrap()], address, bytes, 0)
}

fn driver() -> &'static Driver {
    let find = |name: &CStr| match name.to_bytes() {
        b"cuMemPrefetchAsync_v2" => prefetch as *mut c_void,
        b"cuMemAdvise_v2" => advise as *mut c_void,
        _ => std::ptr::null_mut(),
    };
    Box::leak(Box::new(Driver::resolve(&find)))
}

fn taken() -> Vec<Call> {
    CALLS.with_borrow_mut(std::mem::take)
}

/// Six ops on one stream over two allocations of 20 MiB; anchor 2, midpoint 3.
fn plan() -> Plan {
    plan_of(6)
}

fn plan_of(ops: u64) -> Plan {
    let op = |name: u64, alloc: u32| PlanOp {
        name_hash: name,
        pointers: vec![(alloc, 0)],
        ..PlanOp::default()
    };
    let alloc = |ordinal: u32| PlanAlloc {
        ordinal,
        turn: ordinal,
        bytes: 20 * MIB,
        device: 0,
    };
    Plan {
        shape: Shape {
            anchor_ops: 2,
            midpoint: Ordinal(3),
            ..Shape::default()
        },
        allocs: vec![alloc(0), alloc(1)],
        streams: vec![PlanStream {
            stream: Stream::default(),
            ops: (0..ops)
                .map(|at| op(100 + at, u32::from(at % 2 == 1)))
                .collect(),
        }],
        ..Plan::default()
    }
}

fn step(ordinal: u32, action: Action, alloc: u32, offset: u64, bytes: u64) -> Step {
    let ranges = vec![Range {
        alloc,
        offset: offset * MIB,
        bytes: bytes * MIB,
    }];
    Step {
        stream: StreamId(0),
        ordinal: Ordinal(ordinal),
        action,
        ranges,
    }
}

fn session(plan: Plan) -> Session {
    taken();
    ANSWER.set(0);
    let session = Session::new(
        driver(),
        Loaded {
            path: PathBuf::from("t.plan"),
            plan,
        },
        &CAPTURE,
    );
    session.stream(&StreamInfo {
        id: StreamId(0),
        kind: Stream::default().kind,
        device: 0,
        turn: 0,
        context: 1,
        handle: 77,
    });
    allocate(&session, 0);
    allocate(&session, 1);
    session
}

fn allocation(id: u32) -> Allocation {
    Allocation {
        id: AllocId(id),
        address: BASE + u64::from(id) * 100 * MIB,
        bytes: 20 * MIB,
        converted: true,
        managed: true,
        ..Allocation::default()
    }
}

fn allocate(session: &Session, id: u32) {
    session.allocated(&allocation(id));
}

/// Op `at` of the iteration.
fn call(at: u32, pointers: &[PointerArg]) -> OpCall<'_> {
    OpCall {
        seq: OpSeq(0),
        kind: OpKind::Kernel,
        stream: StreamId(0),
        stream_handle: 77,
        device: 0,
        function: FunctionId(0),
        name_hash: u64::from(100 + at),
        shape: 0,
        records: transit_hook::DeviceRecords::default(),
        payload_bytes: 0,
        pointers,
        capturing: false,
        excluded: false,
    }
}

/// Issues op `at` of the iteration.
fn issue(session: &Session, at: u32) -> Vec<Call> {
    let pointers = [PointerArg {
        alloc: AllocId(at % 2),
        offset: 0,
        bytes: 0,
    }];
    session.before_op(&call(at, &pointers));
    taken()
}

fn iteration(session: &Session) -> Vec<Vec<Call>> {
    (0..6).map(|at| issue(session, at)).collect()
}

#[test]
fn prefetches_go_before_their_op_on_its_own_stream() {
    let steps = vec![
        step(4, Action::PrefetchToDevice, 0, 2, 3),
        step(5, Action::PrefetchToDevice, 1, 0, 20),
    ];
    let session = session(Plan { steps, ..plan() });
    // The first iteration only proves that the plan is this job's.
    assert!(iteration(&session).iter().all(Vec::is_empty));
    for _ in 0..2 {
        let calls = iteration(&session);
        assert!(calls[..4].iter().all(Vec::is_empty));
        assert_eq!(calls[4], [("prefetch", 2, 3, 77)]);
        assert_eq!(calls[5], [("prefetch", 100, 20, 77)]);
    }
    let line = session.summary().line(&session.tally);
    assert!(
        line.contains("4 steps issued, 46.0 MiB prefetched"),
        "{line}"
    );
    assert!(
        line.contains("100.0 % of 40.0 MiB planned memory bound"),
        "{line}"
    );
}

#[test]
fn a_tensor_that_lies_elsewhere_now_is_fetched_where_it_lies() {
    let steps = vec![step(4, Action::PrefetchToDevice, 0, 0, 3)];
    let session = session(Plan { steps, ..plan() });
    iteration(&session);
    (0..4).for_each(|at| drop(issue(&session, at)));
    let pointers = [PointerArg {
        alloc: AllocId(0),
        offset: 18 * MIB,
        bytes: 0,
    }];
    session.before_op(&call(4, &pointers));
    // Eighteen of twenty MiB on: two are left of the three.
    assert_eq!(taken(), [("prefetch", 18, 2, 77)]);
}

#[test]
fn evictions_go_in_requests_of_two_mebibytes() {
    let steps = vec![step(4, Action::EvictToHost, 0, 1, 4)];
    let session = session(Plan { steps, ..plan() });
    iteration(&session);
    let calls = iteration(&session);
    assert_eq!(
        calls[4],
        [
            ("evict", 1, 1, 77),
            ("evict", 2, 2, 77),
            ("evict", 4, 1, 77)
        ]
    );
}

#[test]
fn nothing_is_added_while_any_capture_is_open() {
    let steps = vec![step(4, Action::PrefetchToDevice, 0, 2, 3)];
    let shape = Shape {
        advise_all_at_midpoint: true,
        ..plan().shape
    };
    let session = session(Plan {
        steps,
        shape,
        ..plan()
    });
    iteration(&session);
    session.captured(true);
    assert!(iteration(&session).iter().all(Vec::is_empty));
    session.captured(false);
    assert_eq!(iteration(&session)[4], [("prefetch", 2, 3, 77)]);
}

#[test]
fn memory_freed_since_is_left_alone() {
    let steps = vec![step(4, Action::PrefetchToDevice, 0, 2, 3)];
    let session = session(Plan { steps, ..plan() });
    iteration(&session);
    session.freeing(&allocation(0));
    assert!(iteration(&session).iter().all(Vec::is_empty));
}

#[test]
fn advice_comes_at_the_midpoint_of_the_second_iteration_once_for_each_allocation() {
    let shape = Shape {
        advise_all_at_midpoint: true,
        ..plan().shape
    };
    let session = session(Plan { shape, ..plan() });
    assert!(iteration(&session).iter().all(Vec::is_empty));
    let calls = iteration(&session);
    assert_eq!(calls[3], [("accessed", 0, 20, 0), ("accessed", 100, 20, 0)]);
    assert_eq!(calls.iter().flatten().count(), 2);
    allocate(&session, 7);
    let calls = iteration(&session);
    assert_eq!(calls[3], [("accessed", 700, 20, 0)]);
    assert_eq!(iteration(&session).iter().flatten().count(), 0);
    assert!(
        session
            .summary()
            .line(&session.tally)
            .contains("60.0 MiB advised")
    );
}

#[test]
fn a_driver_that_refuses_is_counted_and_not_heard_of() {
    let steps = vec![step(4, Action::PrefetchToDevice, 0, 2, 3)];
    let session = session(Plan { steps, ..plan() });
    iteration(&session);
    ANSWER.set(801);
    assert_eq!(iteration(&session)[4].len(), 1);
    let line = session.summary().line(&session.tally);
    assert!(line.contains("0 B prefetched") && line.contains("1 driver calls failed (last 801)"));
}

#[test]
fn a_placement_is_made_at_allocation_and_moved_when_use_says_otherwise() {
    let range = Range {
        alloc: 0,
        offset: 2 * MIB,
        bytes: 4 * MIB,
    };
    let placements = vec![Placement {
        action: Action::AdvisePreferHost,
        range,
    }];
    let session = session(Plan {
        placements,
        ..plan()
    });
    // `session` has dropped nothing: the call was made when allocation 0 came.
    assert_eq!(taken(), [("prefer", 2, 4, 0)]);
    // The job uses the two the other way round.
    let swapped = |at: u32| {
        let pointers = [PointerArg {
            alloc: AllocId(1 - at % 2),
            offset: 0,
            bytes: 0,
        }];
        session.before_op(&call(at, &pointers));
        taken()
    };
    let calls: Vec<Call> = (0..12).flat_map(|at| swapped(at % 6)).collect();
    assert_eq!(calls, [("unprefer", 2, 4, 0), ("prefer", 102, 4, 0)]);
}

/// All that the shim adds to an op without steps, and what it adds with one. Prints nanoseconds
/// with `--nocapture`; the budget over a no-op stub is 60 ns.
#[test]
fn an_op_costs_the_launch_path_nothing_but_time() {
    let session = session(plan_of(600));
    (0..1800).for_each(|at| drop(issue(&session, at % 600)));
    let pointers = [PointerArg {
        alloc: AllocId(0),
        offset: 0,
        bytes: 0,
    }; 1];
    let others = [PointerArg {
        alloc: AllocId(1),
        offset: 0,
        bytes: 0,
    }; 1];
    let calls: Vec<OpCall<'_>> = (0..600)
        .map(|at| call(at, if at % 2 == 0 { &pointers } else { &others }))
        .collect();
    let mut times = Vec::with_capacity(64);
    let allocations = allocator_calls(|| {
        for _ in 0..51 {
            let start = std::time::Instant::now();
            for call in std::iter::repeat_n(&calls, 5).flatten() {
                std::hint::black_box(session.before_op(call));
                session.after_op(call, 0);
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / 3000.0);
        }
    });
    times.sort_by(f64::total_cmp);
    println!(
        "replay shim: {:.1} ns per op without steps (median of 51)",
        times[25]
    );
    assert_eq!(allocations, 0);
    assert_eq!(session.summary().counters.strays, 0);
    assert!(times[25] < 2000.0);
}
