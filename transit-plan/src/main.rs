//! The `transit-plan` binary: one verb per subcommand, one way to print errors, exit codes 0 (fine),
//! 1 (a negative finding) and 2 (failure).
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use transit_plan::{cmd, error};

const EXAMPLES: &str = "\
Examples:
  transit-plan inspect warmup.trace.zst
  transit-plan build warmup.trace.zst --hbm 80GiB -o job.plan
  transit-plan plot heatmap warmup.trace.zst -o heatmap.png
  transit-plan report before.trace.zst after.trace.zst";

/// Turns a recorded warm-up into a plan, and shows both.
#[derive(Debug, Parser)]
#[command(name = "transit-plan", version, before_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build a plan from a trace.
    Build(cmd::build::Args),
    /// Say what a trace or a plan holds.
    Inspect(cmd::inspect::Args),
    /// Draw a trace.
    Plot(cmd::plot::Args),
    /// Compare two traces, for instance before and after replaying a plan.
    Report(cmd::report::Args),
    /// Shorten a trace.
    Cut(cmd::cut::Args),
}

impl Verb {
    /// Whether a JSON document was asked for on stdout.
    fn json(&self) -> bool {
        match self {
            Self::Build(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Report(args) => args.json,
            Self::Plot(_) | Self::Cut(_) => false,
        }
    }
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    let json = verb.json();
    let outcome = match verb {
        Verb::Build(args) => cmd::build::run(args),
        Verb::Inspect(args) => cmd::inspect::run(args),
        Verb::Plot(args) => cmd::plot::run(args),
        Verb::Report(args) => cmd::report::run(args),
        Verb::Cut(args) => cmd::cut::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error::print(&error);
            if json {
                // A script that reads a document gets one, whatever happened.
                let _ = writeln!(std::io::stdout(), "{:#}", error::json(&error));
            }
            ExitCode::from(2)
        }
    }
}
