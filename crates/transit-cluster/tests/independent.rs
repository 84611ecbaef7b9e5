//! Agreement with an independent simulator, hpcsim 0.3.1 from PyPI, on clusters of whole nodes:
//!
//! ```console
//! $ python3 -m venv venv && venv/bin/pip install hpcsim==0.3.1
//! $ TRANSIT_HPCSIM_PYTHON=venv/bin/python cargo test -p transit-cluster independent -- --nocapture
//! ```
//!
//! Without hpcsim the test says that it was skipped. Its EASY lets nobody run past the moment at which the
//! first job starts; ours also those who leave it room. So EASY is compared on jobs of one node and of
//! all nodes, where nobody can leave room.

use std::io::Write;
use std::process::{Command, Stdio};

use transit_cluster::scenario::Queue;

use crate::{cluster, simulate, trace};

const NODES: u32 = 12;

/// Jobs of whole nodes from a small generator of our own: submission, run time, nodes.
fn jobs(seed: u64, easy: bool) -> Vec<(u64, u64, u32)> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut at = 0;
    (0..150)
        .map(|_| {
            at += 1 + draw(40);
            let nodes = match (easy, draw(8)) {
                (true, 0) => NODES,
                (true, _) => 1,
                (false, _) => 1 + draw(u64::from(NODES)) as u32,
            };
            // Odd ends and even submissions never coincide, so no order of events is at stake.
            (at * 2, 1 + 2 * draw(150), nodes)
        })
        .collect()
}

/// When hpcsim starts each job, in seconds; `None` where it is not installed.
fn hpcsim(queue: &str, jobs: &[(u64, u64, u32)]) -> Option<Vec<u64>> {
    let python = std::env::var("TRANSIT_HPCSIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import hpcsim"])
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut child = Command::new(&python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/hpcsim/schedule.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = serde_json::json!({ "nodes": NODES, "queue": queue, "jobs": jobs });
    child
        .stdin
        .take()
        .unwrap()
        .write_all(asked.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "hpcsim failed");
    let starts: Vec<f64> = serde_json::from_slice(&output.stdout).unwrap();
    Some(
        starts
            .into_iter()
            .map(|start| (start + 0.001) as u64)
            .collect(),
    )
}

#[test]
fn an_independent_simulator_starts_every_job_at_the_same_second() {
    for (name, queue) in [
        ("fifo", Queue::Fifo),
        ("greedy", Queue::Greedy),
        ("easy", Queue::Easy),
    ] {
        for seed in 1..4 {
            let jobs = jobs(seed, queue == Queue::Easy);
            let gpus: Vec<(u64, u64, u32)> = jobs
                .iter()
                .map(|&(submit, run, nodes)| (submit, run, nodes * 8))
                .collect();
            let run = simulate(&trace(&gpus), &cluster(NODES, queue));
            let waited = run.metrics.all.queue.waited_share;
            assert!(waited > 0.3, "{name}: only {waited} of the jobs wait");
            let Some(theirs) = hpcsim(name, &jobs) else {
                println!(
                    "skipped: no hpcsim for python3; the head of this file tells how to get it"
                );
                return;
            };
            assert_eq!(crate::starts(&run), theirs, "{name}, seed {seed}");
        }
    }
}
