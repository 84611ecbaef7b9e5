//! `transit-cluster sweep`: every combination of some options' values, on all cores.
//!
//! ```console
//! $ transit-cluster sweep kalos --over reduction=0%,25%,50% --over racks=32,48,76
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use serde::Serialize;

use super::compare::changed;
use super::source::{Loaded, Source};
use crate::error::{Next, advised};
use crate::jobs_csv::quoted;
use crate::metrics::Metrics;
use crate::output;
use crate::progress::Progress;
use crate::render::summary::LINES;
use crate::render::table::Rows;
use crate::render::units::percent;
use crate::scenario::Scenario;
use crate::simulate;

const EXAMPLES: &str = "\
Examples:
  transit-cluster sweep kalos --over reduction=0%,25%,50% --over racks=32,48,76
  transit-cluster sweep jobs.csv --racks 20 --over queue=fifo,easy --over placement=pack,spread --csv sweep.csv";

/// Most combinations of one sweep; a mistyped list is likelier than more.
const MAX_RUNS: usize = 10_000;

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    scenario: Scenario,
    /// An option and its values: name=value,value (repeat for more options).
    #[arg(long, required = true, value_name = "OPTION=VALUES")]
    over: Vec<String>,
    /// Write one row per combination with every number.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print a JSON document.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    input: &'a Loaded,
    runs: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    metrics: &'a Metrics,
}

/// Every combination, the last option changing fastest.
fn combinations(over: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = vec![String::new()];
    for option in over {
        let (name, values) = option
            .split_once('=')
            .ok_or_else(|| anyhow!("'{option}' names no values"))
            .next("write --over racks=32,48,72")?;
        let named = |other: &&String| other.split_once('=').map(|pair| pair.0) == Some(name);
        if over.iter().filter(named).count() > 1 {
            return Err(anyhow!("--over {name} is given twice"))
                .next("give all its values at once, separated by commas");
        }
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if all.len() * values.len() > MAX_RUNS {
            return Err(anyhow!("more than {MAX_RUNS} combinations"))
                .next("sweep over fewer values");
        }
        let with = |before: &String| -> Vec<String> {
            let join = |value: &&str| format!("{before} {name}={value}").trim().to_owned();
            values.iter().map(join).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

/// Runs it.
///
/// # Errors
/// If the trace cannot be read, a scenario is impossible or a file cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let names = combinations(&args.over)?;
    let mut scenarios: Vec<Scenario> = names
        .iter()
        .map(|name| changed(&args.scenario, name))
        .collect::<anyhow::Result<_>>()?;
    args.source.spare(&[&args.csv])?;
    let loaded = args.source.load()?;
    for scenario in &mut scenarios {
        loaded.racks_for(scenario)?;
    }
    let runs: u64 = scenarios.iter().map(|s| simulate::runs(s, false)).sum();
    let progress = Progress::new("simulating", runs * loaded.report.kept);
    let ticked = |jobs| progress.advance(jobs);
    let metrics = advised(simulate::run_all(
        &loaded.trace,
        &scenarios,
        None,
        |run| run.metrics,
        &ticked,
    ))?;
    drop(progress);
    for metrics in &metrics {
        advised(metrics.something_measured())?;
    }
    if let Some(path) = &args.csv {
        output::save(path, |out| write_csv(out, &names, &metrics))?;
    }
    if args.json {
        let runs = names.iter().zip(&metrics);
        output::print_json(&Document {
            kind: "sweep",
            input: &loaded,
            runs: runs
                .map(|(name, metrics)| Entry { name, metrics })
                .collect(),
        })?;
    } else {
        output::print(&format!(
            "{}\n{}",
            loaded.account(),
            table(&names, &metrics)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(names: &[String], metrics: &[Metrics]) -> String {
    const SHOWN: [&str; 5] = [
        "jobs per hour",
        "queue, mean",
        "queue, 99 %",
        "rack traffic: racks",
        "rack traffic: crossings",
    ];
    let lines = || LINES.iter().filter(|line| SHOWN.contains(&line.name));
    let mut heading = vec!["eligible jobs".to_owned()];
    heading.extend(lines().map(|line| line.name.to_owned()));
    heading.extend(["queue of all, mean".to_owned(), "utilisation".to_owned()]);
    let mut rows = Rows::new(heading);
    for (name, m) in names.iter().zip(metrics) {
        let mut row = vec![name.clone()];
        row.extend(lines().map(|line| (line.text)((line.value)(&m.eligible))));
        row.push(crate::render::units::seconds(m.all.queue.mean_s));
        row.push(percent(m.utilisation));
        rows.push(row);
    }
    rows.render()
}

fn write_csv(
    out: &mut dyn std::io::Write,
    names: &[String],
    metrics: &[Metrics],
) -> std::io::Result<()> {
    let mut heading = vec!["scenario".to_owned()];
    for group in ["all", "eligible"] {
        heading.extend(
            LINES
                .iter()
                .map(|line| quoted(&format!("{group}: {}", line.name)).into_owned()),
        );
    }
    writeln!(out, "{},utilisation,idle_gpu_hours", heading.join(","))?;
    for (name, m) in names.iter().zip(metrics) {
        let mut row = vec![quoted(name).into_owned()];
        for group in [&m.all, &m.eligible] {
            row.extend(LINES.iter().map(|line| format!("{}", (line.value)(group))));
        }
        writeln!(
            out,
            "{},{},{}",
            row.join(","),
            m.utilisation,
            m.idle_gpu_hours
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_complete_and_ordered() {
        let over = ["a=1,2".to_owned(), "b=x,y".to_owned()];
        let expected = ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"];
        assert_eq!(combinations(&over).unwrap(), expected);
        assert!(combinations(&["a".to_owned()]).is_err());
        let many = ["a", "b", "c"].map(|name| format!("{name}={}", vec!["1"; 200].join(",")));
        assert!(combinations(&many).is_err());
        let twice = combinations(&["a=1".to_owned(), "a=2".to_owned()]);
        assert!(twice.unwrap_err().to_string().contains("given twice"));
    }
}
