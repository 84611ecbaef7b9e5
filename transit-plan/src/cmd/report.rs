//! `transit-plan report`: compares runs, the paper's Figure 6 as a table: what each steady
//! iteration faulted, moved and took, as medians, side by side.
//!
//! ```console
//! $ transit-plan report base.trace.zst prefetch.trace.zst advise.trace.zst
//! $ transit-plan report before.trace.zst after.trace.zst --markdown
//! ```

pub mod measure;
pub mod residency;
pub mod rows;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::measure::Run;
use self::rows::Row;
use super::files;
use crate::ranks;
use crate::render::table::{Rows, Style};
use crate::render::units;

const EXAMPLES: &str = "\
Examples:
  transit-plan report before.trace.zst after.trace.zst
  transit-plan report base.trace.zst prefetch.trace.zst advise.trace.zst --markdown
  transit-plan report before.trace.zst after.trace.zst --json | jq .runs";

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// Traces to compare, or names given to `-o` (all ranks count); ratios are to the first.
    #[arg(required = true, num_args = 1.., value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Print JSON, in bytes, nanoseconds and GB/s.
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print a Markdown table.
    #[arg(long)]
    markdown: bool,
    /// Rate of the link in GB/s, for evictions that a full card would do without the host's page
    /// work (55: PCIe Gen5 x16, measured on an H200).
    #[arg(long, default_value_t = 55.0, value_name = "GB/S")]
    link_rate: f64,
}

/// Runs it.
///
/// # Errors
/// If a trace cannot be read.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.link_rate > 0.0, "--link-rate must be more than 0 GB/s");
    let mut runs = Vec::new();
    for given in &args.traces {
        runs.push(measured(given)?);
    }
    distinguish(&mut runs);
    let rows = rows::of(&runs, args.link_rate);
    let notes = notes(&runs, args.link_rate);
    let text = if args.json {
        let value = rows::json(&runs, &rows, &notes);
        format!("{}\n", serde_json::to_string_pretty(&value)?)
    } else {
        let style = if args.markdown {
            Style::Markdown
        } else {
            Style::Plain
        };
        table(&runs, &rows, &notes, style)
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Measures all ranks of a name, holding one trace at a time.
fn measured(given: &Path) -> anyhow::Result<Run> {
    let found = ranks::find(given)?;
    let mut label = None;
    let mut failure = None;
    let traces = found
        .iter()
        .map_while(|file| match files::open(&file.path) {
            Ok(trace) => {
                let name = if found.len() > 1 { given } else { &file.path };
                label.get_or_insert_with(|| files::label(name, &trace.header));
                Some((file.path.display().to_string(), trace))
            }
            Err(error) => {
                failure = Some(error);
                None
            }
        });
    let mut run = measure::run(String::new(), traces);
    if let Some(error) = failure {
        return Err(error);
    }
    run.label = label.unwrap_or_default();
    Ok(run)
}

/// Columns of the same name are told apart by their number.
fn distinguish(runs: &mut [Run]) {
    let labels: Vec<String> = runs.iter().map(|run| run.label.clone()).collect();
    for (place, run) in runs.iter_mut().enumerate() {
        if labels.iter().filter(|label| **label == run.label).count() > 1 {
            run.label = format!("{} #{}", run.label, place + 1);
        }
    }
}

/// The report as text.
#[must_use]
pub fn table(runs: &[Run], rows: &[Row], notes: &[String], style: Style) -> String {
    let mut heading = vec!["per steady iteration, median".to_owned()];
    heading.extend(runs.iter().map(|run| run.label.clone()));
    let against = runs.iter().skip(1).map(|run| match runs.len() {
        2 => "after / before".to_owned(),
        _ => format!("{} / first", run.label),
    });
    heading.extend(against);
    let mut table = Rows::new(heading);
    let blank = runs.len().saturating_sub(1);
    let described = |name: &str, text: &dyn Fn(&Run) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(runs.iter().map(text));
        cells.extend(std::iter::repeat_n(String::new(), blank));
        cells
    };
    table.push(described("policy", &|run| run.policy.clone()));
    table.push(described("steady iterations", &|run| {
        let ranks = run.files.len();
        let among = format!("{} of {}", run.steady, run.iterations);
        if ranks > 1 {
            format!("{among}, {ranks} ranks")
        } else {
            among
        }
    }));
    for row in rows {
        let first = row.values.first().copied();
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.values.iter().map(|value| value.text(row.unit)));
        cells.extend(row.values.iter().skip(1).map(|value| match first {
            Some(first) if row.compared => rows::ratio(first, *value),
            _ => String::new(),
        }));
        table.push(cells);
    }
    let mut text = table.render(style);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let bullet = if style == Style::Markdown { "- " } else { "" };
        text.push_str(&format!("{bullet}{note}\n"));
    }
    text
}

/// Says that runs of different jobs were compared.
fn different_jobs(runs: &[Run]) -> Option<String> {
    let first = runs.first()?;
    let other = runs.iter().find(|run| run.job != first.job)?;
    Some(format!(
        "These are runs of different jobs, so the ratios may say nothing: {} ran {}, {} ran {}.",
        first.label, first.job, other.label, other.job
    ))
}

/// What a reader must know to read the numbers rightly.
#[must_use]
pub fn notes(runs: &[Run], link_gb_per_s: f64) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(different_jobs(runs));
    let names = |which: &dyn Fn(&Run) -> bool| {
        let list: Vec<&str> = runs
            .iter()
            .filter(|run| which(run))
            .map(|run| run.label.as_str())
            .collect();
        list.join(", ")
    };
    if runs
        .iter()
        .any(|run| run.step_at_link_rate_ns(link_gb_per_s).is_some())
    {
        notes.push(format!(
            "Step time A .. B: B as measured; A with the emulated eviction replaced by its bytes \
             at {link_gb_per_s} GB/s, since a full card evicts faster than the emulation can."
        ));
    }
    if runs.iter().any(|run| run.by_recorder) {
        notes.push(format!(
            "{}: the recorder emulated the card and settled after every op, so step time says \
             nothing about speed; compare replayed runs.",
            names(&|run| run.by_recorder)
        ));
    }
    if runs.iter().any(|run| !run.faults_recorded) {
        notes.push(format!(
            "{}: faults were not recorded; migrations on demand (HtoD that no call asked for) \
             stand for them.",
            names(&|run| !run.faults_recorded)
        ));
    }
    if runs.iter().any(|run| run.zero_copy) {
        notes.push(
            "Zero-copy A .. B is estimated: bytes on the host that an op's arguments point to, up \
             to the next tensor; A counts them once per op, B twice, for ops that read and write."
                .to_owned(),
        );
    }
    if runs.iter().any(|run| !run.peak_is_exact) {
        notes.push(format!(
            "{}: peak resident is what was allocated, at most the card; it is exact only on an \
             emulated card.",
            names(&|run| !run.peak_is_exact)
        ));
    }
    for run in runs
        .iter()
        .filter(|run| run.peak_resident_bytes > run.capacity_bytes)
    {
        notes.push(format!(
            "{}: peak resident is {} above the card.",
            run.label,
            units::bytes(run.peak_resident_bytes - run.capacity_bytes)
        ));
    }
    if runs.iter().any(|run| run.confidence < 0.5) {
        notes.push(format!(
            "{}: no iteration was found with confidence; the whole trace counts as one.",
            names(&|run| run.confidence < 0.5)
        ));
    }
    notes.extend(losses(runs));
    notes
}

/// What the recording lacks.
fn losses(runs: &[Run]) -> Vec<String> {
    let mut notes = Vec::new();
    for run in runs.iter().filter(|run| run.dropped > 0) {
        let lost = units::counted(run.dropped, "event was", "events were");
        notes.push(format!("{}: {lost} lost while recording.", run.label));
    }
    for run in runs.iter().filter(|run| run.untimed_ops > 0) {
        let why = if run.unasked_ops > 0 {
            "were not timed (issued while CUPTI was off or being turned on)"
        } else {
            "lack device times"
        };
        notes.push(format!(
            "{}: {} of {} ops {why}; times, and what goes by time, may be off.",
            run.label,
            units::count(run.untimed_ops),
            units::count(run.ops)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Directed, Synthetic};

    fn runs() -> Vec<Run> {
        let of = |directed, name: &str| {
            let trace = Synthetic {
                directed,
                ..Synthetic::default()
            }
            .trace();
            measure::run(name.to_owned(), std::iter::once((name.to_owned(), trace)))
        };
        vec![of(Directed::Base, "base"), of(Directed::Advise, "advise")]
    }

    #[test]
    fn a_report_compares_and_says_what_is_estimated() {
        let runs = runs();
        let rows = rows::of(&runs, 55.0);
        let notes = notes(&runs, 55.0);
        let text = table(&runs, &rows, &notes, Style::Plain);
        assert!(text.contains("after / before") && text.contains("zero-copy (estimated)"));
        assert!(text.contains("settled after every op"), "{text}");
        let json = rows::json(&runs, &rows, &notes);
        assert_eq!(json["runs"][1]["policy"], "advise");
        assert!(
            json["runs"][0]["median"]["step_ns"]["high"]
                .as_f64()
                .unwrap()
                > 0.0
        );
    }

    #[test]
    fn columns_of_one_name_are_told_apart() {
        let mut runs = runs();
        runs[1].label = "base".to_owned();
        distinguish(&mut runs);
        assert_eq!(
            (runs[0].label.as_str(), runs[1].label.as_str()),
            ("base #1", "base #2")
        );
    }
}
