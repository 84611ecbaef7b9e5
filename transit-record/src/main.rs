//! `transit-record`: runs a job with `libtransit_record.so` preloaded and says where its trace is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use transit_launch::{
    Failure, Job, Outcome, dashes_missing, exclusion_file, find_shim, say, template,
};

mod destination;
mod doctor;
mod next;
mod size;

/// Names the library that the driver loads in `cuInit`.
const INJECTION: &str = "CUDA_INJECTION64_PATH";
const SHIM: &str = "libtransit_record.so";

const EXAMPLES: &str = "\
Examples:
  transit-record -o warmup.trace.zst -- python train.py
  transit-record -o warmup.trace.zst -- torchrun --nproc-per-node 8 train.py
  transit-record -o warmup.trace.zst --skip 5000 --iterations 3 -- python train.py
  transit-record -o small.trace.zst --hbm-limit 16GiB -- python train.py  # emulate a smaller card
  transit-record doctor                                                 # is all well here?
  transit-plan build warmup.trace.zst --hbm 80GiB -o job.plan           # what comes next

Writes down what a job does on the GPU: its allocations, kernels and page migrations. The job is not
changed; its device memory becomes managed memory, so that it may exceed the card.
";

const AFTER: &str = "\
Exit status: the job's own; a job killed by a signal ends this program by the same signal.
  125  own failure   126  command cannot be executed   127  command not found

The window: recording begins at op --skip and ends after --iterations whole iterations (estimated
from ops that come back: optimizer kernels if any are named so, else the median of all) or at
--max-size. Then the file is finished and the job runs on at speed.

Environment: TRANSIT_SHIM_DIR names the directory of libtransit_record.so; TRANSIT_DISABLE=1 runs
the job as if this program were not there; TRANSIT_NO_OVERSUBSCRIBE=1 overrides every option;
TRANSIT_POOLS=0 leaves stream-ordered memory (cuMemAllocAsync) as it is; TRANSIT_POPULATE=0 leaves
populating converted memory to its first use.";

/// Command line.
#[derive(Debug, Parser)]
#[command(name = "transit-record", version, before_help = EXAMPLES, after_help = AFTER)]
#[command(about = None, long_about = None)]
struct Arguments {
    /// Trace to write; `{rank}`, `{local_rank}`, `{host}` and `{pid}` are filled in, and `.rankN`
    /// is added where there are several ranks
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Ops (kernels, copies, graphs) before recording begins
    #[arg(long, value_name = "OPS", default_value_t = 0)]
    skip: u64,
    /// Whole iterations to record after the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// End the trace at about this size (looked at once a second)
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    max_size: Option<u64>,
    /// Impose a card of this size by evicting after each op (slow); 0 records what each op touches
    #[arg(long, value_name = "SIZE", value_parser = size::card_bytes)]
    hbm_limit: Option<u64>,
    /// Record page faults and remote mappings too, those of first uses among them
    #[arg(long)]
    faults: bool,
    /// Smallest allocation turned into managed memory [default: 2MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    min_bytes: Option<u64>,
    /// Never use more managed memory than the card has free
    #[arg(long)]
    no_oversubscribe: bool,
    /// Leave allocations of this library alone (may be given more than once)
    #[arg(long, value_name = "LIBRARY")]
    exclude: Vec<String>,
    /// Convert allocations of this library, although it is left alone by default (NCCL, NVSHMEM,
    /// cuFile, CUPTI, GDRCopy; may be given more than once)
    #[arg(long, value_name = "LIBRARY")]
    include: Vec<String>,
    /// Rules about memory that must stay as it is; a run that meets such memory adds one
    /// [default: transit-exclude.txt beside the trace]
    #[arg(long, value_name = "FILE")]
    exclude_file: Option<PathBuf>,
    /// Let the driver load the shim (CUDA_INJECTION64_PATH) instead of preloading it: records ops,
    /// times and allocations of a job as it is; nothing is converted, so nothing migrates
    #[arg(long, conflicts_with_all = ["hbm_limit", "min_bytes", "exclude", "include", "no_oversubscribe"])]
    inject: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The job and its arguments, passed on untouched
    #[arg(last = true, required = true, value_name = "COMMAND")]
    job: Vec<OsString>,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if words.nth(1).is_some_and(|word| word == "doctor") {
        return doctor::main(words.collect());
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let words: Vec<OsString> = std::env::args_os().collect();
            if let Some(tip) = dashes_missing(&words).filter(|_| error.use_stderr()) {
                say(tip);
            }
            return if error.use_stderr() {
                ExitCode::from(125)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(&arguments) {
        Ok(outcome) => outcome.leave(),
        Err(failure) => {
            say(&format!("transit-record: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let output = destination::checked(&arguments.output)?;
    let shim = find_shim(SHIM)?;
    let job = prepare(arguments, &output, &shim)?;
    let outcome = job.run()?;
    if !arguments.quiet {
        let traces = template::written(&output, job.since());
        let shown = arguments.output.to_string_lossy();
        for line in next::lines(&traces, &shown, arguments.hbm_limit) {
            say(&format!("transit-record: {line}"));
        }
    }
    Ok(outcome)
}

fn prepare(arguments: &Arguments, output: &str, shim: &Path) -> Result<Job, Failure> {
    let job = Job::new(&arguments.job)?
        .writes(output)
        .setting("TRANSIT_TRACE", output);
    let mut job = if arguments.inject {
        job.setting(INJECTION, shim)
    } else {
        job.preload(shim)
    };
    let numbers = [
        ("TRANSIT_SKIP", Some(arguments.skip)),
        ("TRANSIT_ITERATIONS", arguments.iterations),
        ("TRANSIT_MAX_BYTES", arguments.max_size),
        ("TRANSIT_HBM_LIMIT_BYTES", arguments.hbm_limit),
        ("TRANSIT_MIN_BYTES", arguments.min_bytes),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            job = job.setting(name, value.to_string());
        }
    }
    let flags = [
        ("TRANSIT_FAULTS", arguments.faults),
        ("TRANSIT_NO_OVERSUBSCRIBE", arguments.no_oversubscribe),
        ("TRANSIT_QUIET", arguments.quiet),
    ];
    for (name, on) in flags {
        if on {
            job = job.setting(name, "1");
        }
    }
    let lists = [
        ("TRANSIT_EXCLUDE", &arguments.exclude),
        ("TRANSIT_INCLUDE", &arguments.include),
    ];
    for (name, list) in lists {
        if !list.is_empty() {
            job = job.setting(name, list.join(","));
        }
    }
    let rules = exclusion_file(arguments.exclude_file.as_deref(), Path::new(output));
    Ok(job.setting("TRANSIT_EXCLUDE_FILE", rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_its_help_opens_with_examples() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        assert!(command.render_help().to_string().starts_with("Examples:"));
    }

    #[test]
    fn what_follows_the_dashes_is_never_read_as_ours() {
        let words = [
            "transit-record",
            "-o",
            "x",
            "--",
            "job",
            "-o",
            "y",
            "--help",
        ];
        let arguments = Arguments::try_parse_from(words).unwrap();
        assert_eq!(arguments.output, Path::new("x"));
        assert_eq!(arguments.job, ["job", "-o", "y", "--help"]);
    }
}
