//! Small clusters whose schedules were worked out on paper.

use transit_cluster::cluster::Placement;
use transit_cluster::engine::Fate;
use transit_cluster::scenario::{Queue, Scenario};

use crate::{cluster, simulate, starts, trace};

/// Four nodes. A takes three until 10, B wants all four, C takes one for 5, D one for 20, E one for 10.
const FIVE: [(u64, u64, u32); 5] = [(0, 10, 24), (1, 10, 32), (2, 5, 8), (3, 20, 8), (4, 10, 8)];

#[test]
fn fifo_lets_the_head_block() {
    // B starts when A ends; C, D, E wait for B though a node is free from the start.
    let run = simulate(&trace(&FIVE), &cluster(4, Queue::Fifo));
    assert_eq!(starts(&run), [0, 10, 20, 20, 20]);
    // Waits 0, 9, 18, 17, 16; the last end is D's at 40.
    assert_eq!(run.metrics.all.queue.mean_s, 12.0);
    assert_eq!(run.metrics.all.makespan_hours, 40.0 / 3600.0);
    // 24 x 10 + 32 x 10 + 8 x 5 + 8 x 20 + 8 x 10 = 840 of 32 x 40 GPU seconds.
    assert!((run.metrics.utilisation - 840.0 / 1280.0).abs() < 1e-12);
}

#[test]
fn greedy_starts_what_fits_and_starves_the_large_job() {
    // C at 2 on the fourth node until 7; D at 7 until 27; A ends at 10, so E starts at 10; B at 27.
    let run = simulate(&trace(&FIVE), &cluster(4, Queue::Greedy));
    assert_eq!(starts(&run), [0, 27, 2, 7, 10]);
}

#[test]
fn easy_backfills_only_what_ends_before_the_head_can_start() {
    // B is reserved at 10. C (2 to 7) ends before; D would end at 27 and E, from 7, at 17: both wait.
    let run = simulate(&trace(&FIVE), &cluster(4, Queue::Easy));
    assert_eq!(starts(&run), [0, 10, 2, 20, 20]);
}

#[test]
fn easy_also_backfills_beside_the_head() {
    // Five nodes: A takes four until 10, B wants four at 10; the fifth is spare, so C may run past 10.
    let jobs = [(0, 10, 32), (1, 10, 32), (2, 100, 8), (3, 100, 8)];
    let run = simulate(&trace(&jobs), &cluster(5, Queue::Easy));
    assert_eq!(starts(&run), [0, 10, 2, 20]);
}

#[test]
fn conservative_keeps_every_promise_where_easy_keeps_the_first() {
    // Two nodes. A: one node until 10. B: two nodes, promised 10 to 20. C: two nodes, promised 20.
    // D: one node for 15. EASY lets D pass C only if B is not delayed: D would hold a node until 16 at
    // the earliest, so not before B; once B runs, C is the head. E: one node for 8 fits before 10.
    let jobs = [(0, 10, 8), (1, 10, 16), (1, 10, 16), (1, 15, 8), (2, 8, 8)];
    let run = simulate(&trace(&jobs), &cluster(2, Queue::Conservative));
    assert_eq!(starts(&run), [0, 10, 20, 30, 2]);
    // Four nodes. A: three until 10. B: four, so at 10. C: two. D: one for 30.
    // EASY knows only B's promise: at 20 C and D start together. Conservative gives the same here,
    // and lets F, one node for 8, pass all of them.
    let jobs = [(0, 10, 24), (1, 10, 32), (1, 10, 16), (1, 30, 8), (2, 8, 8)];
    let run = simulate(&trace(&jobs), &cluster(4, Queue::Conservative));
    assert_eq!(starts(&run), [0, 10, 20, 20, 2]);
}

#[test]
fn small_jobs_share_a_node_or_do_not() {
    let jobs = [(0, 10, 3), (0, 10, 5), (0, 10, 1)];
    let shared = cluster(1, Queue::Fifo);
    assert_eq!(starts(&simulate(&trace(&jobs), &shared)), [0, 0, 10]);
    let whole = shared.changed("sub-node=whole").unwrap();
    assert_eq!(starts(&simulate(&trace(&jobs), &whole)), [0, 10, 20]);
}

#[test]
fn a_job_prefers_one_rack_and_falls_back_to_several() {
    // Two racks. Packed, the two-node jobs fill the first rack; spread, they take one each, so that the
    // four-node job finds no whole rack.
    let jobs = [(0, 100, 16), (0, 100, 16), (1, 10, 32)];
    let racks = |placement| {
        let scenario = Scenario {
            placement,
            ..cluster(8, Queue::Fifo)
        };
        let run = simulate(&trace(&jobs), &scenario);
        assert_eq!(starts(&run), [0, 0, 1]);
        run.outcomes[2].racks
    };
    assert_eq!(racks(Placement::Pack), 1);
    assert_eq!(racks(Placement::Spread), 2);
}

#[test]
fn scale_in_halves_nodes_doubles_time_and_moves_the_class() {
    // Two racks; 64 GPUs over both become 32 in one: 100 s x 2 / 1.25 = 160 s.
    let base = cluster(8, Queue::Fifo);
    let scenario = base.changed("reduction=50% speedup=25% same=0%").unwrap();
    let run = simulate(
        &trace(&[(0, 100, 64), (0, 100, 32), (0, 100, 8)]),
        &scenario,
    );
    let ends: Vec<u64> = run
        .outcomes
        .iter()
        .map(|outcome| outcome.end.0 / 1000)
        .collect();
    assert_eq!(ends, [160, 200, 100]);
    let m = &run.metrics;
    assert_eq!(
        (m.shrunk, m.eligible.jobs, m.eligible.traffic.racks),
        (2, 2, 2)
    );
    // 64 x 100 over 32 x 160, and 32 x 100 over 16 x 200.
    assert_eq!(m.eligible.speed, f64::midpoint(1.25, 1.0));
}

#[test]
fn too_large_jobs_are_told_and_hold_nobody_back() {
    let run = simulate(&trace(&[(0, 10, 64), (0, 10, 8)]), &cluster(4, Queue::Fifo));
    assert_eq!(run.outcomes[0].fate, Fate::TooLarge);
    assert_eq!((run.metrics.all.too_large, starts(&run)[1]), (1, 0));
}

#[test]
fn a_run_cut_at_the_last_submission_counts_what_waits() {
    let jobs = [(0, 100, 32), (10, 100, 32), (20, 5, 32)];
    let scenario = cluster(4, Queue::Fifo)
        .changed("until=last-submit")
        .unwrap();
    let m = simulate(&trace(&jobs), &scenario).metrics.all;
    assert_eq!((m.done, m.running, m.waiting), (0, 1, 2));
    // Waits so far: 0, 10, 0.
    assert!((m.queue.mean_s - 10.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_failed_node_costs_what_was_not_saved() {
    let base = cluster(4, Queue::Fifo);
    let failing = base
        .changed("mtbf-hours=2 repair-hours=1 checkpoint-hours=0.5")
        .unwrap();
    let jobs: Vec<(u64, u64, u32)> = (0..20).map(|n| (n * 600, 3600, 16)).collect();
    let run = simulate(&trace(&jobs), &failing);
    let restarts: u32 = run.outcomes.iter().map(|outcome| outcome.restarts).sum();
    assert!(restarts > 0);
    for (task, outcome) in run.tasks.iter().zip(&run.outcomes) {
        assert_eq!(outcome.fate, Fate::Done);
        let lost = outcome.held.0 - task.run_before.0;
        assert!(
            lost <= u64::from(outcome.restarts) * 1_800_000,
            "{outcome:?}"
        );
        assert!(outcome.restarts > 0 || lost == 0);
    }
    // The same seed fails the same nodes at the same times.
    assert_eq!(run.outcomes, simulate(&trace(&jobs), &failing).outcomes);
    let given_up = failing.changed("max-restarts=0").unwrap();
    assert!(simulate(&trace(&jobs), &given_up).metrics.all.given_up > 0);
}
