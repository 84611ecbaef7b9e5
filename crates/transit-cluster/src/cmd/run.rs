//! `transit-cluster run`: simulates one scenario.
//!
//! ```console
//! $ transit-cluster run kalos --racks 76 --reduction 50%
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::plot;
use super::source::{Loaded, Source};
use crate::error::advised;
use crate::jobs_csv;
use crate::metrics::Metrics;
use crate::output;
use crate::progress::Progress;
use crate::render::summary;
use crate::scenario::Scenario;
use crate::simulate::{self, Run};

const EXAMPLES: &str = "\
Examples:
  transit-cluster run seren --racks 72
  transit-cluster run jobs.csv --racks 40 --gpus-per-node 4 --queue easy --reduction 25%
  sacct -a -X -P -S 2026-01-01 -o JobID,State,Submit,Start,End,ElapsedRaw,NNodes,AllocTRES > jobs.txt
  transit-cluster run jobs.txt --racks 16 --time-zone Europe/Berlin --jobs-csv out.csv";

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    scenario: Scenario,
    /// Write one row per job.
    #[arg(long, value_name = "FILE")]
    jobs_csv: Option<PathBuf>,
    /// Draw occupancy, waiting jobs and waiting times over the run (.png or .svg).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a JSON document.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    input: &'a Loaded,
    scenario: &'a Scenario,
    metrics: &'a Metrics,
}

/// Runs it.
///
/// # Errors
/// If the trace cannot be read, the scenario is impossible or a file cannot be written.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    advised(args.scenario.check())?;
    if let Some(path) = &args.plot {
        plot::kind_of(path)?;
    }
    let targets = [&args.jobs_csv, &args.plot];
    args.source.spare(&targets)?;
    let loaded = args.source.load()?;
    loaded.racks_for(&mut args.scenario)?;
    let runs = simulate::runs(&args.scenario, false);
    let progress = Progress::new("simulating", runs * loaded.report.kept);
    let ticked = |jobs| progress.advance(jobs);
    let run = advised(simulate::run(&loaded.trace, &args.scenario, None, &ticked))?;
    drop(progress);
    advised(run.metrics.something_measured())?;
    if let Some(path) = &args.jobs_csv {
        output::save(path, |out| jobs_csv::write(out, &loaded.trace, &run))?;
    }
    if let Some(path) = &args.plot {
        plot::save(path, &plot::of_run(loaded.short_name(), &run))?;
    }
    if args.json {
        output::print_json(&Document {
            kind: "run",
            input: &loaded,
            scenario: &run.scenario,
            metrics: &run.metrics,
        })?;
    } else {
        output::print(&text(&loaded, &run))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(loaded: &Loaded, run: &Run) -> String {
    format!(
        "{}{}\n{}",
        loaded.account(),
        summary::scenario(run),
        summary::run(&run.metrics)
    )
}
