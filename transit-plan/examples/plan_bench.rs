//! The planning budget: 10 million events in at most 3 seconds on two cores, 1 GiB in all.
//! `cargo run -p transit-plan --example plan_bench [STEPS] [unnamed]`

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a bench fails by panicking"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use support::{CHUNK, Job};
use transit_format::trace::Trace;
use transit_plan::build::{Options, study};

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    digits
        .and_then(|digits| digits.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

fn main() {
    let steps = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(610);
    let optimizer_named = std::env::args().nth(2).is_none();
    let job = Job {
        layers: 32,
        weight_chunks: 8,
        activation_chunks: 4,
        micro_batches: 4,
        small_ops: 20,
        steps,
        optimizer_named,
        log_every: 10,
        renamed_percent: 2,
        records_per_chunk: 8,
        second_stream: true,
        ..Job::default()
    };
    let card = job.total_chunks() * 100 / 141;
    let made = Job {
        card_chunks: Some(card as usize),
        ..job
    }
    .make();
    let trace = &made.trace;
    println!(
        "{} ops, {} pointers, {} migrations; peak {} MiB with the trace alone",
        trace.ops.len(),
        trace.pointers.len(),
        trace.migrations.len(),
        peak_mib()
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    trace
        .write_to(std::io::BufWriter::new(file.as_file()))
        .unwrap();
    drop(made);
    let start = Instant::now();
    let trace = &Trace::open(file.path()).unwrap();
    println!("{:6} ms  read", start.elapsed().as_millis());
    let hbm = card * CHUNK * 100 / 97;
    let options = Options {
        hbm_bytes: Some(hbm),
        emulate: false,
        ..Options::default()
    };
    let found = study(trace, "", &options, |doing| {
        println!("{:6} ms  {doing}", start.elapsed().as_millis());
    })
    .unwrap();
    println!(
        "{:6} ms  done; peak {} MiB",
        start.elapsed().as_millis(),
        peak_mib()
    );
    println!(
        "{}",
        transit_plan::summary::text("made up".as_ref(), &found, &[])
    );
}
