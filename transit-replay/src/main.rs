//! `transit-replay`: runs a job with a plan. What the shim needs is passed by environment; the
//! job's own status or signal is returned.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytesize::ByteSize;
use clap::Parser;
use transit_launch::template::{self, Place};
use transit_launch::{Failure, Job, Outcome, dashes_missing, exclusion_file, find_shim, say};

mod plan_file;

const SHIM: &str = "libtransit_replay.so";

const EXAMPLES: &str = "\
Examples:
  transit-replay --plan job.plan -- python train.py
  transit-replay --plan job.plan -- torchrun --nproc-per-node 8 train.py   # job.rankN.plan
  transit-replay --plan job.plan --trace after.trace.zst -- python train.py
  transit-plan report before.trace.zst after.trace.zst

Runs a job under a plan made by `transit-plan build`. The job is not changed and its results stay
the same: a plan can cost speed, never a result. Without a usable plan the job still runs.
";

const AFTER: &str = "\
Exit status: the job's own; a job killed by a signal ends this program by the same signal.
  125  own failure   126  command cannot be executed   127  command not found

Environment: TRANSIT_SHIM_DIR names the directory of libtransit_replay.so; TRANSIT_DISABLE=1 runs
the job as if this program were not there; TRANSIT_NO_OVERSUBSCRIBE=1 overrides every option;
TRANSIT_POOLS=0 leaves stream-ordered memory (cuMemAllocAsync) as it is; TRANSIT_POPULATE=0 leaves
populating converted memory to its first use.";

/// Command line.
#[derive(Debug, Parser)]
#[command(name = "transit-replay", version, before_help = EXAMPLES, after_help = AFTER)]
#[command(about = None, long_about = None)]
struct Arguments {
    /// Plan to follow; `{rank}`, `{local_rank}` and `{host}` are filled in, and rank N of several
    /// takes `job.rankN.plan` where `job.plan` is given
    #[arg(long, value_name = "FILE")]
    plan: String,
    /// Record the replayed run, for `transit-plan report BEFORE AFTER`
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// With --trace: record page faults and remote mappings too
    #[arg(long, requires = "trace")]
    faults: bool,
    /// Write what was bound, matched and issued as JSON when the job ends
    #[arg(long, value_name = "FILE")]
    stats: Option<String>,
    /// Never use more managed memory than the card has free
    #[arg(long)]
    no_oversubscribe: bool,
    /// Smallest allocation turned into managed memory [default: 2MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    min_bytes: Option<u64>,
    /// Leave allocations of this library alone (may be given more than once)
    #[arg(long, value_name = "LIBRARY")]
    exclude: Vec<String>,
    /// Convert allocations of this library, although it is left alone by default (NCCL, NVSHMEM,
    /// cuFile, CUPTI, GDRCopy; may be given more than once)
    #[arg(long, value_name = "LIBRARY")]
    include: Vec<String>,
    /// Rules about memory that must stay as it is; a run that meets such memory adds one
    /// [default: transit-exclude.txt beside the plan]
    #[arg(long, value_name = "FILE")]
    exclude_file: Option<PathBuf>,
    /// End with 125 instead of running the job when the plan is missing or damaged
    #[arg(long)]
    strict: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The job and its arguments, passed on untouched
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `80GiB`, `80GB` (decimal) or plain bytes.
fn size(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("`{text}` is no size; write it like 512MiB or 4096"))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let words: Vec<OsString> = std::env::args_os().collect();
            if let Some(tip) = dashes_missing(&words).filter(|_| error.use_stderr()) {
                say(tip);
            }
            return ExitCode::from(if error.use_stderr() { 125 } else { 0 });
        }
    };
    match run(&arguments) {
        Ok(outcome) => outcome.leave(),
        Err(failure) => {
            say(&format!("transit-replay: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let card_bytes = match plan_file::check(&arguments.plan, &Place::of_this_process()) {
        Ok(card_bytes) => card_bytes,
        Err(problem) if arguments.strict => return Err(Failure::own(problem)),
        Err(problem) => {
            say(&format!(
                "transit-replay: {problem}; the job runs without directions"
            ));
            0
        }
    };
    let job = prepare(arguments, &find_shim(SHIM)?, card_bytes)?;
    let outcome = job.run()?;
    if let Some(trace) = arguments.trace.as_deref().filter(|_| !arguments.quiet) {
        announce(trace, &job);
    }
    Ok(outcome)
}

fn prepare(arguments: &Arguments, shim: &Path, card_bytes: u64) -> Result<Job, Failure> {
    let mut job = Job::new(&arguments.command)?.preload(shim);
    if let Some(trace) = arguments.trace.as_deref() {
        job = job.writes(&absolute(trace));
    }
    let texts = [
        ("TRANSIT_PLAN", Some(absolute(&arguments.plan))),
        ("TRANSIT_TRACE", arguments.trace.as_deref().map(absolute)),
        (
            "TRANSIT_STATS_JSON",
            arguments.stats.as_deref().map(absolute),
        ),
        (
            "TRANSIT_MIN_BYTES",
            arguments.min_bytes.map(|bytes| bytes.to_string()),
        ),
        (
            "TRANSIT_NO_OVERSUBSCRIBE",
            arguments.no_oversubscribe.then(|| "1".to_owned()),
        ),
        ("TRANSIT_FAULTS", arguments.faults.then(|| "1".to_owned())),
        ("TRANSIT_QUIET", arguments.quiet.then(|| "1".to_owned())),
        (
            "TRANSIT_HBM_LIMIT_BYTES",
            (card_bytes > 0).then(|| card_bytes.to_string()),
        ),
        (
            "TRANSIT_EXCLUDE",
            (!arguments.exclude.is_empty()).then(|| arguments.exclude.join(",")),
        ),
        (
            "TRANSIT_INCLUDE",
            (!arguments.include.is_empty()).then(|| arguments.include.join(",")),
        ),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            job = job.setting(name, value);
        }
    }
    let rules = exclusion_file(
        arguments.exclude_file.as_deref(),
        Path::new(&arguments.plan),
    );
    Ok(job.setting("TRANSIT_EXCLUDE_FILE", rules))
}

/// The job may change its directory before the shim opens its files.
fn absolute(path: &str) -> String {
    std::path::absolute(Path::new(path))
        .map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Names the traces written and what to do with them.
fn announce(trace: &str, job: &Job) {
    let written = template::written(trace, job.since());
    let Some(first) = written.first() else {
        say(
            "transit-replay: no trace written: the job made no device allocation or launch, or the \
             file could not be written (said above)",
        );
        return;
    };
    let names: Vec<String> = written
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    say(&format!("transit-replay: wrote {}", names.join(", ")));
    say(&format!(
        "transit-replay: next: transit-plan report BEFORE.trace.zst {}",
        first.display()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_dashes_is_the_jobs_own() {
        let line = [
            "transit-replay",
            "--plan",
            "p",
            "--",
            "sh",
            "--plan",
            "-c",
            "--help",
        ];
        let arguments = Arguments::try_parse_from(line).unwrap();
        assert_eq!(arguments.plan, "p");
        assert_eq!(arguments.command, ["sh", "--plan", "-c", "--help"]);
        assert!(Arguments::try_parse_from(["transit-replay", "--plan", "p"]).is_err());
        assert!(Arguments::try_parse_from(["transit-replay", "--", "true"]).is_err());
    }

    #[test]
    fn help_starts_with_examples() {
        use clap::CommandFactory;
        let help = Arguments::command().render_long_help().to_string();
        assert!(help.trim_start().starts_with("Examples:"), "{help}");
    }
}
