//! Measures what the budgets speak of: bytes per event, decoding time and memory of a trace of
//! 10 M events, and opening time of a plan.
//!
//! ```text
//! cargo run -p transit-format --example bench_decode             # makes a trace, then reads it
//! cargo run -p transit-format --example bench_decode -- EVENTS   # of another size
//! cargo run -p transit-format --example bench_decode -- FILE     # reads a trace you have
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use transit_format::plan::{View, write};
use transit_format::trace::Trace;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let done = match argument.as_deref().map(|text| (text, text.parse::<u64>())) {
        None => make_and_read(10_000_000),
        Some((_, Ok(events))) => make_and_read(events),
        Some((path, Err(_))) => decode(Path::new(path)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_decode: {error}");
            ExitCode::from(2)
        }
    }
}

/// Makes a trace, then reads it in a process of its own, so that its memory is only the reader's.
fn make_and_read(events: u64) -> Outcome {
    let path = std::env::temp_dir().join(format!("bench-{}.trace.zst", std::process::id()));
    let started = Instant::now();
    let made = common::made(events, 1, common::Keep::Nothing);
    let per_event = made.bytes.len() as f64 / made.events as f64;
    println!(
        "wrote {} events in {:.2} s: {:.2} bytes per event",
        made.events,
        started.elapsed().as_secs_f64(),
        per_event
    );
    std::fs::write(&path, &made.bytes)?;
    let status = Command::new(std::env::current_exe()?).arg(&path).status();
    std::fs::remove_file(&path)?;
    if !status?.success() {
        return Err("the reading process failed".into());
    }
    open_plan()
}

fn decode(path: &Path) -> Outcome {
    let started = Instant::now();
    let trace = Trace::open(path)?;
    let seconds = started.elapsed().as_secs_f64();
    let events = trace.ops.len() + trace.migrations.len() + trace.allocs.len();
    println!(
        "read {events} events in {seconds:.2} s: {:.1} M events/s on {} threads, {} pointers held",
        events as f64 / seconds / 1e6,
        std::thread::available_parallelism()?,
        trace.pointers.len()
    );
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    println!(
        "processor time of the process {:.2} s",
        ticks.sum::<f64>() / 100.0
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or("VmHWM: unknown");
    println!(
        "peak memory of the process {}",
        peak.trim_start_matches("VmHWM:").trim()
    );
    Ok(())
}

fn open_plan() -> Outcome {
    let path = std::env::temp_dir().join(format!("bench-{}.plan", std::process::id()));
    write(
        &common::plans::plan(20_000, 1),
        std::fs::File::create(&path)?,
    )?;
    let mut times: Vec<_> = Vec::new();
    for _ in 0..21 {
        let started = Instant::now();
        View::open(&path)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let bytes = std::fs::metadata(&path)?.len();
    std::fs::remove_file(&path)?;
    println!(
        "opened a plan of 40000 ops, {bytes} bytes, in {:.2} ms (median)",
        times.get(10).copied().unwrap_or_default()
    );
    Ok(())
}
