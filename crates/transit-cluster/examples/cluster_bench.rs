//! How fast the simulator is: 450,000 Seren-like jobs on 72 racks, on one core, by queue discipline. The
//! first is run twice and must give the same outcome.
//!
//! ```console
//! $ cargo build --release -p transit-cluster --example cluster_bench
//! $ taskset -c 0 target/release/examples/cluster_bench
//! ```
//!
//! On 2026-12-01, on one core of a virtual machine (AMD EPYC) whose two cores others used too, three
//! times: FIFO 0.28 to 0.50 s, so 0.9 to 1.6 million jobs a second; greedy 0.27 to 0.56 s, EASY 0.56 to
//! 0.89 s; drawing the trace 0.87 to 1.94 s; at most 107 MiB. `transit-cluster paper --seed 1` took 20
//! and 25 s on both cores, 54 s while others used them.

use std::time::Instant;

use transit_cluster::generate::{Cluster, Recipe, trace};
use transit_cluster::scenario::{Queue, Scenario};
use transit_cluster::simulate;

fn main() -> Result<(), String> {
    let since = Instant::now();
    let recipe = Recipe {
        jobs: 450_000,
        ..Recipe::new(Cluster::Seren, 1)
    };
    let seren = trace(&recipe);
    println!("generate  {:>8.2} s", since.elapsed().as_secs_f64());
    let mut first = None;
    for queue in [Queue::Fifo, Queue::Fifo, Queue::Greedy, Queue::Easy] {
        let scenario = Scenario {
            queue,
            racks: Some(72.0),
            ..Scenario::default()
        };
        let since = Instant::now();
        let run = simulate::run(&seren, &scenario, None, &|_| {})?;
        let seconds = since.elapsed().as_secs_f64();
        let rate = seren.jobs.len() as f64 / seconds;
        let wait = run.metrics.all.queue.mean_s;
        println!("{queue:?}  {seconds:>8.2} s  {rate:>10.0} jobs/s  mean wait {wait:.1} s");
        let before = first.get_or_insert_with(|| run.outcomes.clone());
        if queue == Queue::Fifo && *before != run.outcomes {
            return Err("the same run gave another outcome".to_owned());
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or("peak memory unknown"));
    Ok(())
}
