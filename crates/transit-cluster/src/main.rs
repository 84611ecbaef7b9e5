//! The `transit-cluster` binary: one verb per subcommand, one way to print errors, exit codes 0 (fine),
//! 1 (a negative finding) and 2 (failure).
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use transit_cluster::{cmd, error};

const EXAMPLES: &str = "\
Examples:
  transit-cluster run seren --racks 72 --reduction 50%
  transit-cluster compare jobs.csv --racks 40 --with 'reduction=25%' --with 'reduction=50%'
  transit-cluster sweep kalos --over reduction=0%,25%,50% --over racks=32,48,76
  transit-cluster paper --seed 1";

/// Simulates what happens to a GPU cluster if multi-node jobs run on fewer nodes.
#[derive(Debug, Parser)]
#[command(name = "transit-cluster", version, before_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Simulate one scenario.
    Run(Box<cmd::run::Args>),
    /// Simulate several scenarios and show them beside each other.
    Compare(Box<cmd::compare::Args>),
    /// Simulate every combination of some options' values.
    Sweep(Box<cmd::sweep::Args>),
    /// Write a generated trace.
    Generate(cmd::generate::Args),
    /// Show published figures beside generated ones.
    Check(cmd::check::Args),
    /// Run the paper's section 4.3 again.
    Paper(cmd::paper::Args),
}

impl Verb {
    /// Whether a JSON document was asked for on stdout.
    fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Compare(args) => args.json,
            Self::Sweep(args) => args.json,
            Self::Check(args) => args.json,
            Self::Paper(args) => args.json,
            Self::Generate(_) => false,
        }
    }
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    let json = verb.json();
    let outcome = match verb {
        Verb::Run(args) => cmd::run::run(*args),
        Verb::Compare(args) => cmd::compare::run(*args),
        Verb::Sweep(args) => cmd::sweep::run(*args),
        Verb::Generate(args) => cmd::generate::run(&args),
        Verb::Check(args) => cmd::check::run(&args),
        Verb::Paper(args) => cmd::paper::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error::say(&error::text(&error));
            if json {
                // A script that reads a document gets one, whatever happened.
                let _ = writeln!(std::io::stdout(), "{:#}", error::json(&error));
            }
            ExitCode::from(2)
        }
    }
}
