//! What a user of the simulator relies on: schedules worked by hand, invariants of random runs, tables
//! of all kinds and of none, the verbs' output, mistakes of all kinds, and agreement with an independent
//! simulator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod by_hand;
mod independent;
mod invariants;
mod mistakes;
mod tables;
mod verbs;

use transit_cluster::scenario::{Queue, Scenario};
use transit_cluster::simulate::{self, Run};
use transit_cluster::trace::{Job, State, Trace};
use transit_cluster::units::Millis;

/// A trace of jobs (submission in seconds, run time in seconds, GPUs), in this order.
fn trace(jobs: &[(u64, u64, u32)]) -> Trace {
    let mut trace = Trace::default();
    let kind = trace.kinds.place("any");
    for (number, &(submit_s, run_s, gpus)) in jobs.iter().enumerate() {
        trace.names.push(&format!("job{number}"));
        trace.jobs.push(Job {
            submit: Millis(submit_s * 1000),
            run: Millis(run_s * 1000),
            gpus,
            nodes: 0,
            state: State::Completed,
            kind,
        });
    }
    trace
}

/// A cluster of so many nodes of 8 GPUs, four to a rack.
fn cluster(nodes: u32, queue: Queue) -> Scenario {
    Scenario {
        racks: Some(f64::from(nodes) / 4.0),
        queue,
        ..Scenario::default()
    }
}

fn simulate(trace: &Trace, scenario: &Scenario) -> Run {
    simulate::run(trace, scenario, None, &|_| {}).unwrap()
}

/// When each job starts, in seconds.
fn starts(run: &Run) -> Vec<u64> {
    run.outcomes
        .iter()
        .map(|outcome| outcome.start.0 / 1000)
        .collect()
}
