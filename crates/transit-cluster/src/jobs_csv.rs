//! The per-job CSV: everything the numbers of a run are made of, with times in seconds to the
//! millisecond.

use std::io::{self, Write};

use crate::engine::Fate;
use crate::metrics::measured;
use crate::simulate::Run;
use crate::trace::Trace;
use crate::units::Millis;

/// The heading.
pub const HEADING: &str = "job_id,type,fate,submit_s,start_s,end_s,held_s,gpus_before,gpus,nodes_before,\
nodes,racks,restarts,eligible,shrunk,measured,recorded_run_s";

/// Writes one row per job, in order of submission. Times of what never happened stay empty.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(out: &mut dyn Write, trace: &Trace, run: &Run) -> io::Result<()> {
    writeln!(out, "{HEADING}")?;
    let per_node = run.shape.gpus_per_node;
    for (at, (task, outcome)) in run.tasks.iter().zip(&run.outcomes).enumerate() {
        let job = trace.jobs.get(at);
        let kind = job.map_or("", |job| trace.kind_of(job));
        let started = outcome.started();
        let ended = started && outcome.fate != Fate::Waiting;
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            quoted(trace.names.get(at)),
            quoted(kind),
            word(outcome.fate),
            task.submit,
            time(outcome.start, started),
            time(outcome.end, ended),
            outcome.held,
            task.demand_before.gpus(per_node),
            task.demand.gpus(per_node),
            task.demand_before.nodes(),
            task.demand.nodes(),
            outcome.racks,
            outcome.restarts,
            u8::from(task.eligible()),
            u8::from(task.shrunk()),
            u8::from(measured(task, &run.scenario)),
            task.run_before,
        )?;
    }
    Ok(())
}

fn time(at: Millis, happened: bool) -> String {
    if happened {
        at.to_string()
    } else {
        String::new()
    }
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Waiting => "waiting",
        Fate::Running => "running",
        Fate::Done => "done",
        Fate::TooLarge => "too-large",
        Fate::GivenUp => "given-up",
    }
}

/// A field as CSV wants it.
pub fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}
