//! What holds of every run, tried on random traces, clusters and disciplines.

use std::collections::BTreeMap;

use proptest::prelude::*;
use transit_cluster::cluster::Placement;
use transit_cluster::engine::{Fate, Outcome};
use transit_cluster::jobs_csv;
use transit_cluster::scenario::{Queue, Scenario};
use transit_cluster::simulate::Run;
use transit_cluster::trace::Trace;

use crate::{cluster, simulate, trace};

fn jobs() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    let job = (0_u64..200, 1_u64..100, prop_oneof![1_u32..9, 8_u32..70]);
    prop::collection::vec(job, 1..60).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.0);
        jobs
    })
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let queues = [Queue::Fifo, Queue::Greedy, Queue::Easy, Queue::Conservative];
    let placements = [Placement::Pack, Placement::Spread, Placement::SpreadRacks];
    let choices = (
        2_u32..12,
        prop::sample::select(queues.to_vec()),
        prop::sample::select(placements.to_vec()),
        prop::sample::select(vec![
            "",
            "gpus-per-node=4",
            "last-node=share",
            "sub-node=whole",
        ]),
        prop::sample::select(vec![
            "",
            "reduction=25% speedup=0..137%",
            "reduction=50%",
            "reduction=50% rounding=down class-before=at-start",
        ]),
    );
    choices.prop_map(
        |(nodes, queue, placement, cluster_options, scale_in)| Scenario {
            placement,
            ..cluster(nodes, queue)
                .changed(&format!("{cluster_options} {scale_in}"))
                .unwrap()
        },
    )
}

/// Options that any scenario may have besides.
const MORE: [&str; 12] = [
    "until=last-submit",
    "warmup-days=0.001",
    "load=7.5",
    "nodes-from=trace",
    "backfill-depth=0",
    "stretch=nominal",
    "single-node=neutral",
    "slowdown-form=slower",
    "ended=as-recorded",
    "class-before=ideal",
    "mtbf-hours=0.02 repair-hours=0.05",
    "max-restarts=2 checkpoint-hours=0",
];

/// GPUs held at every moment, by sweeping over starts and ends: never more than there are.
fn never_over_allocated(run: &Run) -> Result<(), TestCaseError> {
    let mut changes: BTreeMap<(u64, bool), i64> = BTreeMap::new();
    for (task, outcome) in run.tasks.iter().zip(&run.outcomes) {
        if outcome.fate == Fate::Done {
            let gpus = i64::from(task.demand.gpus(run.shape.gpus_per_node));
            // At one moment ends come before starts.
            *changes.entry((outcome.end.0, false)).or_default() -= gpus;
            *changes.entry((outcome.start.0, true)).or_default() += gpus;
        }
    }
    let mut held = 0;
    for change in changes.into_values() {
        held += change;
        prop_assert!(
            (0..=run.shape.gpus() as i64).contains(&held),
            "{held} GPUs held"
        );
    }
    prop_assert_eq!(held, 0);
    Ok(())
}

/// Every job that fits ends exactly once, after its time, not before its submission.
fn nothing_lost(run: &Run) -> Result<(), TestCaseError> {
    for (task, outcome) in run.tasks.iter().zip(&run.outcomes) {
        let fits = u64::from(task.demand.nodes()) <= u64::from(run.shape.nodes);
        prop_assert_eq!(outcome.fate == Fate::Done, fits, "{:?}", outcome);
        if !fits {
            continue;
        }
        prop_assert!(outcome.start >= task.submit);
        prop_assert_eq!(outcome.held, outcome.end - outcome.start);
        let times = [task.times.from_intra, task.times.from_inter].concat();
        prop_assert!(times.contains(&outcome.held), "{:?} {:?}", times, outcome);
        let nodes = task.demand.nodes();
        let fewest = run.shape.ideal_racks(nodes);
        prop_assert!((fewest..=nodes).contains(&outcome.racks));
    }
    Ok(())
}

/// The makespan is at least the work over the GPUs and the longest job, and at most all jobs in a row.
fn makespan_bounded(run: &Run) -> Result<(), TestCaseError> {
    let done: Vec<(u64, &Outcome)> = run
        .tasks
        .iter()
        .zip(&run.outcomes)
        .filter(|(_, outcome)| outcome.fate == Fate::Done)
        .map(|(task, outcome)| {
            (
                u64::from(task.demand.gpus(run.shape.gpus_per_node)),
                outcome,
            )
        })
        .collect();
    let work: u64 = done
        .iter()
        .map(|(gpus, outcome)| gpus * outcome.held.0)
        .sum();
    let end = done
        .iter()
        .map(|(_, outcome)| outcome.end.0)
        .max()
        .unwrap_or(0);
    let all: u64 = done.iter().map(|(_, outcome)| outcome.held.0).sum();
    let last = run.tasks.last().map_or(0, |task| task.submit.0);
    prop_assert!(end * run.shape.gpus() >= work);
    prop_assert!(end <= last + all);
    Ok(())
}

fn fifo_in_order(run: &Run) -> Result<(), TestCaseError> {
    let started = run.outcomes.iter().filter(|outcome| outcome.started());
    let starts: Vec<_> = started.map(|outcome| outcome.start).collect();
    prop_assert!(starts.is_sorted(), "{:?}", starts);
    Ok(())
}

/// What stands in the per-job CSV, as its readers add it up.
fn csv_agrees(trace: &Trace, run: &Run) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    jobs_csv::write(&mut bytes, trace, run).unwrap();
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let (mut waits, mut gpu_s, mut racks, mut several, mut done) = (Vec::new(), 0.0, 0, 0, 0);
    let (mut first, mut end) = (f64::INFINITY, 0.0_f64);
    for row in reader.deserialize::<BTreeMap<String, String>>() {
        let row = row.unwrap();
        let number = |name: &str| row[name].parse::<f64>().unwrap_or(f64::NAN);
        first = first.min(number("submit_s"));
        end = end.max(number("submit_s"));
        if row["fate"] != "done" {
            continue;
        }
        done += 1;
        end = end.max(number("end_s"));
        waits.push(number("start_s") - number("submit_s"));
        gpu_s += number("held_s") * number("gpus");
        let touched = number("racks") as u64;
        racks += touched;
        several += if touched > 1 { touched } else { 0 };
    }
    let m = &run.metrics.all;
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1.0);
    let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    prop_assert_eq!(
        (m.done, m.traffic.racks, m.traffic.multi_rack),
        (done, racks, several)
    );
    prop_assert!(close(m.queue.mean_s, mean), "{} {}", m.queue.mean_s, mean);
    prop_assert!(close(m.gpu_hours * 3600.0, gpu_s));
    prop_assert!(close(m.makespan_hours * 3600.0, end - first));
    let capacity = run.shape.gpus() as f64 * (end - first);
    prop_assert!(capacity == 0.0 || close(run.metrics.utilisation, gpu_s / capacity));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_is_sound(jobs in jobs(), scenario in scenarios()) {
        let trace = trace(&jobs);
        let run = simulate(&trace, &scenario);
        never_over_allocated(&run)?;
        nothing_lost(&run)?;
        makespan_bounded(&run)?;
        csv_agrees(&trace, &run)?;
        if scenario.queue == Queue::Fifo {
            fifo_in_order(&run)?;
        }
        prop_assert_eq!(&run.outcomes, &simulate(&trace, &scenario).outcomes);
    }

    /// The first waiting job starts when it would with nobody behind it: whatever is backfilled leaves
    /// it alone. Checked for the first job that has to wait, for it is the head from its submission on;
    /// without scale-in, where run times hang on a baseline run that later jobs change.
    #[test]
    fn easy_never_delays_the_head(jobs in jobs(), scenario in scenarios()) {
        let scenario = Scenario { queue: Queue::Easy, reduction: 0.0, ..scenario };
        let run = simulate(&trace(&jobs), &scenario);
        let waits = |at: &usize| {
            run.outcomes[*at].started() && run.outcomes[*at].start > run.tasks[*at].submit
        };
        if let Some(head) = (0..jobs.len()).find(waits) {
            let alone = simulate(&trace(&jobs[..=head]), &scenario);
            prop_assert_eq!(run.outcomes[head].start, alone.outcomes[head].start);
        }
    }

    /// Conservative: no job starts later than it would if nothing had come after it.
    #[test]
    fn conservative_delays_nobody(jobs in jobs(), scenario in scenarios()) {
        let scenario = Scenario { queue: Queue::Conservative, reduction: 0.0, ..scenario };
        let run = simulate(&trace(&jobs), &scenario);
        let half = jobs.len() / 2;
        let alone = simulate(&trace(&jobs[..half]), &scenario);
        for at in 0..half {
            prop_assert_eq!(run.outcomes[at].start, alone.outcomes[at].start);
        }
    }

    /// Whatever options come together, every job has one fate, the numbers are numbers, and the same run
    /// gives the same outcome.
    #[test]
    fn any_options_together_account_for_every_job(
        jobs in jobs(),
        scenario in scenarios(),
        more in prop::sample::subsequence(MORE.to_vec(), 0..MORE.len()),
    ) {
        let trace = trace(&jobs);
        let scenario = scenario.changed(&more.join(" ")).unwrap();
        let run = simulate(&trace, &scenario);
        for m in [&run.metrics.all, &run.metrics.eligible] {
            let fates = m.done + m.running + m.waiting + m.too_large + m.given_up;
            prop_assert_eq!(fates, m.jobs, "{:?}", scenario);
        }
        let text = serde_json::to_string(&run.metrics).unwrap();
        prop_assert!(!text.contains("null"), "{text}");
        for outcome in &run.outcomes {
            prop_assert!(outcome.end >= outcome.start);
            prop_assert!(outcome.started() || outcome.held.0 == 0, "{:?}", outcome);
        }
        prop_assert_eq!(&run.outcomes, &simulate(&trace, &scenario).outcomes);
    }

    #[test]
    fn failing_nodes_lose_no_job(jobs in jobs(), scenario in scenarios()) {
        let failing = Scenario { mtbf_hours: 0.05, repair_hours: 0.01, checkpoint_hours: 0.001, ..scenario };
        let run = simulate(&trace(&jobs), &failing);
        for (task, outcome) in run.tasks.iter().zip(&run.outcomes) {
            let fits = u64::from(task.demand.nodes()) <= u64::from(run.shape.nodes);
            prop_assert_eq!(outcome.fate == Fate::TooLarge, !fits);
            prop_assert!(matches!(outcome.fate, Fate::Done | Fate::TooLarge | Fate::GivenUp));
        }
    }
}

/// Nodes that are hardly ever up: a job of all of them never starts, and the run ends all the same.
#[test]
fn a_job_whose_nodes_are_never_up_together_is_given_up() {
    let failing = Scenario {
        mtbf_hours: 0.05,
        repair_hours: 10.0,
        max_restarts: u32::MAX,
        ..cluster(16, Queue::Fifo)
    };
    // The first is over before anything fails; between it and the second nobody waits for long.
    let run = simulate(&trace(&[(0, 1, 8), (4_000_000, 100, 128)]), &failing);
    let fates: Vec<Fate> = run.outcomes.iter().map(|outcome| outcome.fate).collect();
    assert_eq!(fates, [Fate::Done, Fate::GivenUp]);
    assert_eq!(
        (run.metrics.all.given_up, run.metrics.all.racks_mean),
        (1, 1.0)
    );
}
