//! Allocations: by ordinal and size, by size and turn, and by use above all.

use transit_format::plan::model::{Plan, Range};
use transit_format::trace::model::{Stream, StreamKind};

use crate::follow::bind::UNBOUND;
use crate::follow::core::Phase;
use crate::follow::tests::programs::{Bench, MIB, Random, SMALL, iteration, plan};

fn used(plan: &Plan, alloc: u32) -> bool {
    let mut ops = plan.streams.iter().flat_map(|stream| &stream.ops);
    ops.any(|op| op.pointers.iter().any(|pointer| pointer.0 == alloc))
}

/// Every plan allocation the program uses is bound to its true counterpart.
fn all_right(bench: &Bench, plan: &Plan) {
    for alloc in 0..u32::try_from(plan.allocs.len()).unwrap() {
        if used(plan, alloc) {
            assert_eq!(
                bench.bindings.live(alloc),
                bench.live_of[alloc as usize],
                "alloc {alloc}"
            );
            assert!(bench.ledger.confirmed(alloc));
        }
    }
}

#[test]
fn the_same_process_again_binds_at_allocation_and_use_confirms_it() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    assert!((0..10).all(|alloc| bench.bindings.live(alloc) == alloc));
    let mut random = Random(1);
    (0..3).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    all_right(&bench, &plan);
    assert!(!bench.bindings.unconfirmed());
    assert_eq!(bench.ledger.bound_peak_bytes, bench.ledger.planned_bytes());
}

#[test]
fn a_resumed_job_with_more_allocations_before_is_bound_right_by_use() {
    let plan = plan(1, &SMALL);
    for extra in [1, 2, 5] {
        let mut bench = Bench::bare(&plan);
        for (id, stream) in (0..).zip(&plan.streams) {
            bench.stream(id, stream.stream);
        }
        // Loading the checkpoint: buffers of the same sizes, still alive when training starts.
        for id in 0..extra {
            bench.allocate(id, if id % 2 == 0 { 2 * MIB } else { 20 * MIB });
        }
        for alloc in &plan.allocs {
            bench.allocate(extra + alloc.ordinal, alloc.bytes);
            bench.live_of.push(extra + alloc.ordinal);
        }
        let mut random = Random(4);
        (0..4).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
        all_right(&bench, &plan);
        assert!(bench.ledger.rebound > 0);
    }
}

#[test]
fn segments_handed_out_in_another_order_are_bound_right_by_use() {
    let plan = plan(3, &SMALL);
    let mut bench = Bench::new(&plan);
    // The caching allocator picked its 2 MiB segments the other way round.
    let small: Vec<u32> = (0..10)
        .filter(|&alloc| plan.allocs[alloc].bytes == 2 * MIB)
        .map(|alloc| u32::try_from(alloc).unwrap())
        .collect();
    for (at, alloc) in small.iter().enumerate() {
        bench.live_of[*alloc as usize] = small[small.len() - 1 - at];
    }
    let mut random = Random(4);
    (0..4).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    all_right(&bench, &plan);
}

/// A job's first iteration puts its temporaries elsewhere: the allocator has no free blocks yet.
#[test]
fn the_first_iteration_of_a_job_has_no_vote() {
    let plan = plan(3, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(4);
    bench.live_of.swap(1, 2);
    bench.live_of.swap(4, 5);
    bench.run(&iteration(&plan, &mut random));
    bench.live_of.swap(1, 2);
    bench.live_of.swap(4, 5);
    for _ in 0..3 {
        bench.run(&iteration(&plan, &mut random));
    }
    all_right(&bench, &plan);
    assert_eq!(bench.ledger.rebound, 0);
}

#[test]
fn a_binding_that_no_use_confirms_is_taken_back() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    // The job uses other memory (which the ledger does not know) in place of allocation 3.
    bench.live_of[3] = 4_000;
    assert!(used(&plan, 3));
    let mut random = Random(4);
    (0..6).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    assert!(!bench.ledger.confirmed(3));
    assert_eq!(bench.bindings.live(3), UNBOUND);
    assert_eq!(bench.ledger.undone, 1);
}

#[test]
fn freed_memory_is_never_named_again_and_its_successor_takes_its_place() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(4);
    (0..3).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    bench.free(4);
    let range = Range {
        alloc: 4,
        offset: 0,
        bytes: 4096,
    };
    assert_eq!(bench.bindings.resolve(&range), None);
    assert_eq!(bench.allocate(50, 2 * MIB), Some(4));
    bench.live_of[4] = 50;
    (0..2).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    all_right(&bench, &plan);
    assert_eq!(bench.bindings.live(4), 50);
}

#[test]
fn a_range_beyond_the_live_allocation_is_not_resolved() {
    let plan = plan(1, &SMALL);
    let bench = Bench::new(&plan);
    let resolve = |offset, bytes| {
        bench.bindings.resolve(&Range {
            alloc: 1,
            offset,
            bytes,
        })
    };
    assert_eq!(resolve(0, 2 * MIB), Some(((1 << 40) + 64 * MIB, 2 * MIB)));
    assert_eq!(resolve(MIB, MIB + 1), None);
    assert_eq!(resolve(u64::MAX, 2), None);
    assert_eq!(resolve(0, 0), None);
    assert_eq!(
        bench.bindings.resolve(&Range {
            alloc: 99,
            offset: 0,
            bytes: 1
        }),
        None
    );
    assert_eq!(bench.bindings.live(99), UNBOUND);
}

#[test]
fn streams_created_in_another_order_are_known_by_their_ops() {
    let plan = plan(6, &SMALL);
    let mut bench = Bench::bare(&plan);
    // One more created stream than when recorded: turns shift by one.
    bench.stream(0, plan.streams[0].stream);
    bench.stream(
        1,
        Stream {
            kind: StreamKind::Created,
            device: 0,
            turn: 0,
        },
    );
    bench.stream(
        2,
        Stream {
            kind: StreamKind::Created,
            device: 0,
            turn: 1,
        },
    );
    for alloc in &plan.allocs {
        bench.allocate(alloc.ordinal, alloc.bytes);
        bench.live_of.push(alloc.ordinal);
    }
    let mut random = Random(4);
    let mut handed = 0;
    for _ in 0..4 {
        let mut ops = iteration(&plan, &mut random);
        ops.iter_mut()
            .filter(|op| op.stream == 1)
            .for_each(|op| op.stream = 2);
        let verdicts = bench.run(&ops);
        handed = verdicts
            .iter()
            .filter(|verdict| verdict.steps_of.is_some())
            .count();
    }
    assert_eq!(handed, plan.steps.len());
    assert_eq!(bench.follower.phase(), Phase::Tracking);
}
