//! Noise: ops dropped, added and renamed. A step may go to a wrong op only near the noise itself
//! (within the resync bound), and most steps still go where they belong.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use transit_format::plan::model::Plan;

use crate::follow::core::Phase;
use crate::follow::resync::{ASTRAY, LOOK_AHEAD};
use crate::follow::tests::programs::{Bench, Issued, Random, SMALL, Size, iteration, plan};

/// Percentages of ops dropped, added and renamed.
#[derive(Clone, Copy, Debug)]
struct Noise {
    dropped: u64,
    added: u64,
    renamed: u64,
}

fn noisy(plan: &Plan, random: &mut Random, noise: Noise) -> Vec<Issued> {
    let mut ops = Vec::new();
    let mut dirty = vec![false; plan.streams.len()];
    for mut op in iteration(plan, random) {
        let stream = op.stream as usize;
        if random.chance(noise.dropped) {
            dirty[stream] = true;
            continue;
        }
        if random.chance(noise.added) {
            // Something of the job's own kernels, on some of its data.
            let source = &plan.streams[0].ops;
            let like = &source[usize::try_from(random.below(source.len() as u64)).unwrap()];
            ops.push(Issued {
                name: like.name_hash,
                pointers: like.pointers.clone(),
                truth: None,
                noise: true,
                ..op.clone()
            });
        }
        if random.chance(noise.renamed) {
            op.name += 1_000_000;
            op.noise = true;
        }
        op.noise |= std::mem::take(&mut dirty[stream]);
        ops.push(op);
    }
    ops
}

/// What came of a run: steps on the right op, on a wrong op near noise, on a wrong op elsewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    right: usize,
    near: usize,
    wrong: usize,
    expected: usize,
}

fn run(seed: u64, size: &Size, noise: Noise, rounds: u32) -> (Outcome, Bench) {
    let plan = plan(seed, size);
    let mut bench = Bench::new(&plan);
    let mut random = Random(seed ^ 0xabcd);
    bench.run(&iteration(&plan, &mut random));
    let mut outcome = Outcome::default();
    let mut since_noise = vec![u32::MAX; plan.streams.len()];
    for _ in 0..rounds {
        outcome.expected += plan.steps.len();
        for op in noisy(&plan, &mut random, noise) {
            // Counted in ops of the stream. Noise on the main stream moves the iteration's start,
            // and so the others'.
            let own = op.stream as usize;
            since_noise[own] = since_noise[own].saturating_add(1);
            match (op.noise, own) {
                (true, 0) => since_noise.fill(0),
                (true, own) => since_noise[own] = 0,
                (false, _) => {}
            }
            let since = since_noise[own];
            let verdict = bench.issue(&op);
            let Some((stream, ordinal)) = bench.step_owner(&plan, &verdict) else {
                continue;
            };
            let planned = &plan.streams[stream as usize].ops[ordinal as usize];
            let twin = planned.name_hash == op.name && planned.pointers == op.pointers;
            if op.truth == Some(ordinal) && op.stream == stream || twin {
                outcome.right += 1;
            } else if since <= ASTRAY + LOOK_AHEAD {
                outcome.near += 1;
            } else {
                outcome.wrong += 1;
            }
        }
    }
    (outcome, bench)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        // The same programs each time; `PROPTEST_CASES` makes it more of them.
        rng_seed: RngSeed::Fixed(15),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_step_goes_to_a_wrong_op_beyond_the_resync_bound(
        seed in any::<u64>(),
        dropped in 0_u64..4,
        added in 0_u64..4,
        renamed in 0_u64..8,
        ops in 40_u64..400,
        side_streams in 0_u32..3,
    ) {
        let size = Size { ops, side_streams, side_ops: 3 + ops / 10, ..SMALL };
        let (outcome, _) = run(seed, &size, Noise { dropped, added, renamed }, 6);
        prop_assert_eq!(outcome.wrong, 0, "{:?}", outcome);
        prop_assert!(outcome.near * 10 <= outcome.expected.max(100), "{:?}", outcome);
    }
}

#[test]
fn a_little_noise_costs_few_steps() {
    for seed in 0..8 {
        let noise = Noise {
            dropped: 1,
            added: 1,
            renamed: 1,
        };
        let (outcome, bench) = run(seed, &SMALL, noise, 20);
        assert!(
            outcome.right * 10 >= outcome.expected * 8,
            "seed {seed}: {outcome:?}"
        );
        assert_ne!(bench.follower.phase(), Phase::Lost);
    }
}

#[test]
fn five_percent_of_kernels_renamed_is_no_divergence() {
    for seed in 0..8 {
        let noise = Noise {
            dropped: 0,
            added: 0,
            renamed: 5,
        };
        let (outcome, bench) = run(seed, &SMALL, noise, 20);
        assert!(
            outcome.right * 10 >= outcome.expected * 9,
            "seed {seed}: {outcome:?}"
        );
        assert_eq!(bench.follower.counters().divergences, 0, "seed {seed}");
    }
}

#[test]
fn one_kernel_under_another_name_everywhere_is_matched_by_its_role() {
    // Another autotuned tile: every launch of one kernel has a new name.
    let plan = plan(2, &SMALL);
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    let victim = plan.streams[0]
        .ops
        .iter()
        .find(|op| op.pointers.len() == 3)
        .unwrap()
        .name_hash;
    for _ in 0..6 {
        let mut ops = iteration(&plan, &mut random);
        ops.iter_mut()
            .filter(|op| op.name == victim)
            .for_each(|op| op.name += 5_000_000);
        bench.run(&ops);
    }
    let counters = bench.follower.counters();
    assert!(counters.by_role > 0);
    assert!(
        counters.by_name + counters.by_role >= counters.ops_since_start * 9 / 10,
        "{counters:?}"
    );
    assert_eq!(counters.divergences, 0);
}

#[test]
fn a_dropped_launch_among_equals_is_seen_by_its_pointers() {
    // Ten launches of one kernel in a row, on other data each: the fourth is left out.
    let mut plan = plan(2, &SMALL);
    for (at, op) in plan.streams[0].ops.iter_mut().enumerate().skip(50).take(10) {
        op.name_hash = 42;
        op.pointers = vec![(1, at as u64 * 4096), (2, at as u64 * 4096)];
    }
    let mut bench = Bench::new(&plan);
    let mut random = Random(2);
    bench.run(&iteration(&plan, &mut random));
    let ops: Vec<Issued> = iteration(&plan, &mut random)
        .into_iter()
        .filter(|op| op.stream != 0 || op.truth != Some(53))
        .collect();
    for op in &ops {
        let verdict = bench.issue(op);
        if let Some((stream, ordinal)) = bench.step_owner(&plan, &verdict) {
            assert_eq!((stream, Some(ordinal)), (op.stream, op.truth));
        }
    }
    assert_eq!(bench.follower.counters().divergences, 0);
    assert_eq!(bench.follower.counters().completed, 2);
}
