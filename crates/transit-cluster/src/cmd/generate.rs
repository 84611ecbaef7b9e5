//! `transit-cluster generate`: writes a trace like Seren's or Kalos's, in the plain format.
//!
//! ```console
//! $ transit-cluster generate seren --trace-seed 7 -o seren.csv
//! ```

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::source::Made;
use crate::generate::{self, Cluster};
use crate::jobs_csv::quoted;
use crate::output;
use crate::progress::Progress;
use crate::trace::Trace;

const EXAMPLES: &str = "\
Examples:
  transit-cluster generate kalos -o kalos.csv
  transit-cluster generate seren --jobs 10000 --trace-seed 7 -o small.csv";

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// Like which cluster.
    #[arg(value_enum)]
    cluster: Cluster,
    #[command(flatten)]
    made: Made,
    /// File to write; - for stdout.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs it.
///
/// # Errors
/// If the file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_os_str() == "-";
    if !to_stdout {
        output::check(&[&args.output], None)?;
    }
    let progress = Progress::stage("generating");
    let trace = generate::trace(&args.made.recipe(args.cluster));
    drop(progress);
    if to_stdout {
        output::to_stdout(|out| write(out, &trace))?;
    } else {
        output::save(&args.output, |out| write(out, &trace))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a trace in the plain format.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    writeln!(out, "job_id,submit_s,run_s,gpus,type,state")?;
    for (at, job) in trace.jobs.iter().enumerate() {
        let (name, kind) = (quoted(trace.names.get(at)), quoted(trace.kind_of(job)));
        let state = format!("{:?}", job.state).to_uppercase();
        writeln!(
            out,
            "{name},{},{},{},{kind},{state}",
            job.submit, job.run, job.gpus
        )?;
    }
    Ok(())
}
