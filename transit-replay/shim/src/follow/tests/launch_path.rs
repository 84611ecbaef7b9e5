//! The budget of the launch path: no allocation, and few nanoseconds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use transit_hook::observer::PointerArg;

use crate::follow::tests::programs::{Bench, Random, SMALL, Size, call, iteration, plan};

/// The system's allocator, counting this thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every request is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocator calls of this thread while `work` runs.
pub(crate) fn allocator_calls(work: impl FnOnce()) -> u64 {
    let before = CALLS.with(Cell::get);
    work();
    CALLS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocator_calls(|| drop(std::hint::black_box(Box::new(1)))) >= 2);
}

#[test]
fn no_op_allocates_whatever_the_state() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    let mut ops = super::states::strange(100, 1);
    (0..3).for_each(|_| ops.extend(iteration(&plan, &mut random)));
    ops.extend(super::states::strange(100, 2));
    (0..2).for_each(|_| ops.extend(iteration(&plan, &mut random)));
    ops.remove(300);
    let pointers: Vec<Vec<PointerArg>> = ops
        .iter()
        .map(|op| {
            let pointer = |&(alloc, offset): &(u32, u64)| PointerArg {
                alloc: transit_format::ids::AllocId(alloc),
                offset,
                bytes: 0,
            };
            op.pointers.iter().map(pointer).collect()
        })
        .collect();
    let calls = allocator_calls(|| {
        for (op, pointers) in ops.iter().zip(&pointers) {
            let verdict = bench.op(&call(op, pointers, 0));
            if let Some(whole) = verdict.settle {
                let Bench {
                    ledger,
                    script,
                    bindings,
                    follower,
                    ..
                } = &mut bench;
                let resolved = ledger.resolve(script, bindings, &follower.votes, whole);
                follower.votes_settled(resolved.settled);
            }
        }
    });
    assert_eq!(calls, 0);
    assert!(bench.follower.counters().completed >= 3);
}

/// Prints nanoseconds per op with `--nocapture`; asserts only what holds in any build.
#[test]
fn an_op_without_steps_is_cheap() {
    let mut plan = plan(1, &Size { ops: 2000, ..SMALL });
    plan.steps.clear();
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    (0..3).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    let ops = iteration(&plan, &mut random);
    let pointers: Vec<Vec<PointerArg>> = ops
        .iter()
        .map(|op| {
            let pointer = |&(alloc, offset): &(u32, u64)| PointerArg {
                alloc: transit_format::ids::AllocId(alloc),
                offset,
                bytes: 0,
            };
            op.pointers.iter().map(pointer).collect()
        })
        .collect();
    let mut alone = 0;
    let mut times: Vec<f64> = (0..41)
        .map(|_| {
            let start = std::time::Instant::now();
            for (op, pointers) in ops.iter().zip(&pointers) {
                let mut verdict = None;
                bench
                    .follower
                    .op(&call(op, pointers, 0), false, &mut verdict);
                alone += usize::from(verdict.is_some());
            }
            start.elapsed().as_secs_f64() * 1e9 / ops.len() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "follower: {:.1} ns per op without steps (median)",
        times[times.len() / 2]
    );
    assert!(
        alone < 41 * ops.len() / 20,
        "{alone} ops were in no stretch"
    );
    assert_eq!(bench.follower.counters().strays, 0);
}
