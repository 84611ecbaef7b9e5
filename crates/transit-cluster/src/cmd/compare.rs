//! `transit-cluster compare`: scenarios beside each other; the first is what the others are compared with.
//!
//! ```console
//! $ transit-cluster compare seren --racks 72 --with "racks=32 reduction=50%"
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use serde::Serialize;

use super::plot;
use super::source::{Loaded, Source};
use crate::error::{Next, advised};
use crate::metrics::Metrics;
use crate::output;
use crate::progress::Progress;
use crate::render::summary;
use crate::scenario::Scenario;
use crate::simulate::{self, Run};

const EXAMPLES: &str = "\
Examples:
  transit-cluster compare kalos --racks 76 --with reduction=25% --with reduction=50%
  transit-cluster compare seren --racks 72 --with 'racks=32 reduction=50%'
  transit-cluster compare jobs.csv --racks 20 --with queue=easy --plot queues.png";

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    scenario: Scenario,
    /// A further scenario: options that differ from the first, as name=value (repeat for more). Where its
    /// jobs ran before scale-in is where they ran in the first, if that has none.
    #[arg(long, required = true, value_name = "OPTIONS")]
    with: Vec<String>,
    /// Draw the distributions of queue times (.png or .svg).
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
    scenarios: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    scenario: &'a Scenario,
    metrics: &'a Metrics,
}

/// A scenario with some options changed: `racks=32 reduction=50%`, commas or spaces between.
///
/// # Errors
/// If a name or a value is none.
pub fn changed(base: &Scenario, changes: &str) -> anyhow::Result<Scenario> {
    let some = changes.contains('=');
    let changed = some.then(|| base.changed(changes));
    changed
        .unwrap_or_else(|| Err("it changes nothing".to_owned()))
        .map_err(|error| anyhow!("'{changes}': {error}"))
        .next("write options as in 'run --help', for instance 'racks=32 reduction=50%'")
}

/// Runs it.
///
/// # Errors
/// If the trace cannot be read, a scenario is impossible or a file cannot be written.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    advised(args.scenario.check())?;
    let mut names = vec!["base".to_owned()];
    let mut scenarios = Vec::new();
    for with in &args.with {
        names.push(with.clone());
        scenarios.push(changed(&args.scenario, with)?);
    }
    if let Some(path) = &args.plot {
        plot::kind_of(path)?;
    }
    args.source.spare(&[&args.plot])?;
    let loaded = args.source.load()?;
    loaded.racks_for(&mut args.scenario)?;
    for scenario in &mut scenarios {
        loaded.racks_for(scenario)?;
    }
    let runs = advised(simulated(&loaded, &args.scenario, &scenarios))?;
    if let Some(path) = &args.plot {
        let named: Vec<(&str, &Run)> = names.iter().map(String::as_str).zip(&runs).collect();
        plot::save(path, &plot::of_queues(loaded.short_name(), &named))?;
    }
    report(&args, &loaded, &names, &runs)?;
    Ok(ExitCode::SUCCESS)
}

/// The first scenario, then the others.
fn simulated(loaded: &Loaded, first: &Scenario, others: &[Scenario]) -> Result<Vec<Run>, String> {
    let trace = &loaded.trace;
    // Where a job ran before scale-in is where it ran in the first scenario, if that has none.
    let shared = first.reduction == 0.0;
    let of_others = others.iter().map(|other| simulate::runs(other, shared));
    let runs = simulate::runs(first, false) + of_others.sum::<u64>();
    let progress = Progress::new("simulating", runs * loaded.report.kept);
    let ticked = |jobs| progress.advance(jobs);
    let first = simulate::run(trace, first, None, &ticked)?;
    let baseline = shared.then_some(first.outcomes.as_slice());
    let others = simulate::run_all(trace, others, baseline, |run| run, &ticked)?;
    let mut runs = vec![first];
    runs.extend(others);
    for run in &runs {
        run.metrics.something_measured()?;
    }
    Ok(runs)
}

fn report(args: &Args, loaded: &Loaded, names: &[String], runs: &[Run]) -> anyhow::Result<()> {
    if args.json {
        let entries = names.iter().zip(runs).map(|(name, run)| Entry {
            name,
            scenario: &run.scenario,
            metrics: &run.metrics,
        });
        return output::print_json(&Document {
            kind: "compare",
            input: loaded,
            scenarios: entries.collect(),
        });
    }
    let metrics: Vec<&Metrics> = runs.iter().map(|run| &run.metrics).collect();
    let first = runs.first().map(summary::scenario).unwrap_or_default();
    output::print(&format!(
        "{}{first}\n{}",
        loaded.account(),
        summary::beside(names, &metrics)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_keep_what_they_do_not_name() {
        let base = Scenario {
            racks: Some(40.0),
            seed: 7,
            ..Scenario::default()
        };
        let other = changed(&base, "queue=easy reduction=50%").unwrap();
        assert_eq!(
            (other.racks, other.seed, other.reduction),
            (Some(40.0), 7, 0.5)
        );
        assert_eq!(other.queue, crate::scenario::Queue::Easy);
        let queue = changed(&base, "queue=sjf").unwrap_err().to_string();
        assert!(
            queue.contains("fifo, greedy, easy, conservative"),
            "{queue}"
        );
        for wrong in ["", " ", "rack=3", "racks=x", "racks", "racks=0"] {
            let error = crate::error::text(&changed(&base, wrong).unwrap_err());
            assert!(error.contains("next:"), "{error}");
        }
    }
}
