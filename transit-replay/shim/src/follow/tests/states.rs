//! Prologue, tracking, diverged, lost: when they begin and end.

use crate::follow::core::{FAILURES, Phase};
use crate::follow::tests::programs::{Bench, Issued, Random, SMALL, iteration, plan};

/// Ops no plan knows.
pub(super) fn strange(count: u32, seed: u64) -> Vec<Issued> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| Issued {
            stream: 0,
            name: 5_000_000 + random.below(50),
            kind: transit_format::trace::model::OpKind::Kernel,
            pointers: Vec::new(),
            truth: None,
            noise: true,
        })
        .collect()
}

#[test]
fn after_a_prologue_every_step_of_the_plan_is_handed_out_in_every_iteration() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    bench.run(&strange(300, 3));
    assert_eq!(bench.follower.phase(), Phase::Prologue);
    bench.run(&iteration(&plan, &mut random));
    for _ in 0..5 {
        let ops = iteration(&plan, &mut random);
        let verdicts = bench.run(&ops);
        let mut handed: Vec<_> = verdicts
            .iter()
            .filter_map(|verdict| bench.step_owner(&plan, verdict))
            .collect();
        handed.sort_unstable();
        let planned: Vec<_> = plan
            .steps
            .iter()
            .map(|s| (s.stream.0, s.ordinal.0))
            .collect();
        assert_eq!(handed, planned);
        assert_eq!(
            verdicts.iter().filter(|verdict| verdict.iteration).count(),
            1
        );
        assert!(verdicts[0].iteration);
    }
    assert_eq!(bench.follower.phase(), Phase::Tracking);
    let counters = bench.follower.counters();
    assert_eq!(
        (
            counters.iterations,
            counters.completed,
            counters.divergences
        ),
        (6, 6, 0)
    );
}

#[test]
fn the_midpoint_is_told_once_an_iteration_and_never_in_the_first() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    for round in 0..4 {
        let ops = iteration(&plan, &mut random);
        let verdicts = bench.run(&ops);
        let at: Vec<_> = (0..ops.len()).filter(|&at| verdicts[at].midpoint).collect();
        if round == 0 {
            assert!(at.is_empty());
        } else {
            assert_eq!(at.len(), 1);
            assert_eq!((ops[at[0]].stream, ops[at[0]].truth), (0, Some(60)));
        }
    }
}

#[test]
fn another_jobs_plan_never_tracks_and_hands_out_nothing() {
    let plan_here = plan(1, &SMALL);
    let mut job = plan(99, &SMALL);
    for op in job.streams.iter_mut().flat_map(|stream| &mut stream.ops) {
        op.name_hash += 777;
    }
    let mut bench = Bench::new(&plan_here);
    let mut random = Random(5);
    for _ in 0..20 {
        let verdicts = bench.run(&iteration(&job, &mut random));
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.steps_of.is_none() && !verdict.tracking)
        );
    }
    assert_eq!(bench.follower.phase(), Phase::Prologue);
    assert_eq!(bench.follower.counters().iterations, 0);
}

#[test]
fn evaluation_between_iterations_is_no_divergence() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    for round in 0..30 {
        bench.run(&iteration(&plan, &mut random));
        if round % 3 == 0 {
            bench.run(&strange(500, round));
        }
    }
    assert_eq!(bench.follower.phase(), Phase::Tracking);
    assert_eq!(bench.follower.counters().divergences, 0);
    assert_eq!(bench.follower.counters().completed, 30);
}

#[test]
fn a_lost_place_waits_for_the_boundary_and_is_found_there() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    bench.run(&iteration(&plan, &mut random));
    let ops = iteration(&plan, &mut random);
    bench.run(&ops[..ops.len() / 2]);
    let verdicts = bench.run(&strange(200, 8));
    assert!(verdicts.iter().all(|verdict| verdict.steps_of.is_none()));
    assert_eq!(bench.follower.phase(), Phase::Diverged);
    assert_eq!(bench.follower.counters().divergences, 1);
    bench.run(&iteration(&plan, &mut random));
    assert_eq!(bench.follower.phase(), Phase::Tracking);
    let verdicts = bench.run(&iteration(&plan, &mut random));
    let handed = verdicts
        .iter()
        .filter(|verdict| verdict.steps_of.is_some())
        .count();
    assert_eq!(handed, plan.steps.len());
}

#[test]
fn too_many_losses_in_a_row_end_all_steps_for_good() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    for round in 0..FAILURES {
        assert_ne!(bench.follower.phase(), Phase::Lost);
        let ops = iteration(&plan, &mut random);
        bench.run(&ops[..ops.len() / 2]);
        bench.run(&strange(200, u64::from(round)));
    }
    assert_eq!(bench.follower.phase(), Phase::Lost);
    let verdicts = bench.run(&iteration(&plan, &mut random));
    assert!(verdicts.iter().all(|verdict| verdict.steps_of.is_none()));
}

#[test]
fn a_completed_iteration_forgives_the_losses_before_it() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    for round in 0..3 * FAILURES {
        let ops = iteration(&plan, &mut random);
        bench.run(&ops[..ops.len() / 2]);
        bench.run(&strange(200, u64::from(round)));
        bench.run(&iteration(&plan, &mut random));
    }
    assert_eq!(bench.follower.phase(), Phase::Tracking);
}

#[test]
fn ops_under_capture_are_not_the_iterations_ops() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    bench.run(&iteration(&plan, &mut random));
    for op in iteration(&plan, &mut random) {
        let mut captured = super::programs::call(&op, &[], 0);
        captured.capturing = true;
        assert!(bench.op(&captured).steps_of.is_none());
        bench.issue(&op);
    }
    assert_eq!(bench.follower.counters().completed, 2);
    assert_eq!(bench.follower.counters().strays, 0);
}

#[test]
fn excluded_callers_ops_are_followed_but_nothing_is_done_for_them() {
    let plan = plan(1, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    bench.run(&iteration(&plan, &mut random));
    for op in iteration(&plan, &mut random) {
        let mut call = super::programs::call(&op, &[], 0);
        call.excluded = true;
        assert!(bench.op(&call).steps_of.is_none());
    }
    assert_eq!(bench.follower.counters().completed, 2);
}

#[test]
fn an_anchor_that_the_layers_repeat_is_made_longer_until_it_is_the_only_one() {
    let mut plan = plan(1, &SMALL);
    let ops = &mut plan.streams[0].ops;
    for (at, op) in ops.iter_mut().enumerate() {
        // Layers of six, alike by name but for one op in the third.
        op.name_hash = if at == 16 { 7 } else { at as u64 % 6 };
        op.pointers.clear();
    }
    let mut bench = Bench::new(&plan);
    assert!(bench.script.anchor.unique && bench.script.anchor.ops > 16);
    let mut random = Random(2);
    (0..3).for_each(|_| drop(bench.run(&iteration(&plan, &mut random))));
    assert_eq!(bench.follower.counters().iterations, 3);
    assert_eq!(bench.follower.counters().completed, 3);
}

#[test]
fn a_job_of_the_same_kernels_in_other_numbers_gets_no_steps() {
    let plan_here = plan(1, &SMALL);
    // More layers: the same ops, the middle part twice.
    let mut job = plan_here.clone();
    let ops = &mut job.streams[0].ops;
    let layers: Vec<_> = ops[30..80].to_vec();
    ops.splice(80..80, layers);
    let mut bench = Bench::new(&plan_here);
    let mut random = Random(5);
    for _ in 0..8 {
        let mut issued = iteration(&job, &mut random);
        issued.iter_mut().for_each(|op| op.truth = None);
        let verdicts = bench.run(&issued);
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.steps_of.is_none() && !verdict.midpoint)
        );
    }
    assert!(matches!(
        bench.follower.phase(),
        Phase::Prologue | Phase::Lost
    ));
}
