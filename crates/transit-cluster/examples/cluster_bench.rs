//! How fast the simulator is: 450,000 Seren-like jobs on 72 racks, one core, each queue discipline.
//! `cargo run --release -p transit-cluster --example cluster_bench`

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
    for queue in [Queue::Fifo, Queue::Greedy, Queue::Easy] {
        let scenario = Scenario {
            queue,
            ..Scenario::default()
        };
        let since = Instant::now();
        let run = simulate::run(&seren, &scenario, None)?;
        let seconds = since.elapsed().as_secs_f64();
        let rate = seren.jobs.len() as f64 / seconds;
        let wait = run.metrics.all.queue.mean_s;
        println!("{queue:?}  {seconds:>8.2} s  {rate:>10.0} jobs/s  mean wait {wait:.1} s");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or("peak memory unknown"));
    Ok(())
}
