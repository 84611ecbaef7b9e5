//! Whatever fails underneath, a job ends with the results of a bare run, or with an error of its own
//! about a call that it made and that failed; it neither hangs nor crashes. A hundred seeds each
//! choose a job, what fails and a plan, and run it recorded and replayed.
//!
//! A failing seed is named with the command that repeats it. More seeds:
//! `TRANSIT_FAULT_SEEDS=1000 cargo test -p transit-tests --test integration seeded_faults`.

mod jobs;
mod outcome;
mod plans;
mod scenario;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use jobs::Prepared;

/// Seeds of a usual run.
const SEEDS: u64 = 100;
/// Runs at a time.
const WORKERS: usize = 2;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: no number")),
    )
}

#[test]
fn seeded_faults_end_in_the_right_results_or_the_jobs_own_error() {
    let one = number("TRANSIT_FAULT_SEED");
    let count = number("TRANSIT_FAULT_SEEDS").unwrap_or(SEEDS);
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let wrong = Mutex::new(Vec::new());
    let jobs = Prepared::all();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    if let Err(why) = scenario::run(seed, &jobs, one.is_some()) {
                        // At once: a run of many seeds may be ended before its end.
                        eprintln!("{why}\n");
                        wrong.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "failing seeds, told above: {wrong:?}");
}
