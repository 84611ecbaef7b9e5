//! `transit-cluster paper`: the paper's section 4.3, run again.
//!
//! ```console
//! $ transit-cluster paper --seed 1 --plot figure12.png
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use super::plot;
use crate::error::advised;
use crate::output;
use crate::paper;
use crate::paper::numbers::NUMBERS;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  transit-cluster paper --seed 1
  transit-cluster paper --seed 1 --plot figure12.png --json > study.json";

/// Arguments of `paper`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// Seed of the generated traces and of drawn factors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the panels of the paper's Figure 12 (.png or .svg).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
///
/// # Errors
/// If a file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.plot {
        plot::kind_of(path)?;
        output::check(&[path], None)?;
    }
    let progress = Progress::new("simulating", paper::steps(args.seed) as u64);
    let study = advised(paper::run(args.seed, || progress.advance(1)))?;
    drop(progress);
    if let Some(path) = &args.plot {
        plot::save(path, &paper::figure::figure(&study))?;
    }
    if args.json {
        let document = serde_json::json!({ "kind": "paper", "numbers": NUMBERS, "study": study });
        output::print_json(&document)?;
    } else {
        output::print(&paper::report::text(&study))?;
    }
    Ok(ExitCode::SUCCESS)
}
