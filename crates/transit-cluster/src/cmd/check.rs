//! `transit-cluster check`: what is published of Seren and Kalos beside what the generator makes.
//!
//! ```console
//! $ transit-cluster check seren
//! ```

use std::process::ExitCode;

use super::source::Made;
use crate::generate::compare::{Fact, facts};
use crate::generate::{self, Cluster};
use crate::output;
use crate::progress::Progress;
use crate::render::table::Rows;

const EXAMPLES: &str = "\
Examples:
  transit-cluster check kalos
  transit-cluster check seren --trace-seed 7 --json";

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// Which cluster.
    #[arg(value_enum)]
    cluster: Cluster,
    #[command(flatten)]
    made: Made,
    /// Print a JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Runs it; exit code 1 if a figure is farther off than it may be.
///
/// # Errors
/// If stdout cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let progress = Progress::stage("generating");
    let trace = generate::trace(&args.made.recipe(args.cluster));
    let facts = facts(args.cluster, &trace);
    drop(progress);
    if args.json {
        output::print_json(&serde_json::json!({ "kind": "check", "facts": facts }))?;
    } else {
        output::print(&table(&facts))?;
    }
    Ok(if facts.iter().all(Fact::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn table(facts: &[Fact]) -> String {
    let mut rows =
        Rows::new(["", "published", "generated", "off by", "may be", ""]).text_columns([5]);
    for fact in facts {
        let digits = if fact.published.abs() >= 1000.0 { 0 } else { 2 };
        rows.push([
            fact.name.clone(),
            format!("{:.digits$}", fact.published),
            format!("{:.digits$}", fact.generated),
            format!("{:.digits$}", fact.off()),
            format!("{:.digits$}", fact.may_be_off),
            (if fact.holds() { "" } else { "<- off" }).to_owned(),
        ]);
    }
    rows.render()
}
