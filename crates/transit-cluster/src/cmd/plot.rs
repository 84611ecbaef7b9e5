//! The figures: a run over time, and distributions of queue times. Every verb draws with `--plot`.

use std::path::Path;

use anyhow::anyhow;

use crate::error::Next;
use crate::metrics::{queue_time, run_end};
use crate::output;
use crate::render::chart::{Content, Figure, Panel};
use crate::simulate::Run;
use crate::units::Millis;

/// What kind of file a name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Pixels.
    Png,
    /// Vectors.
    Svg,
}

/// The kind of picture a file name asks for.
///
/// # Errors
/// If the name ends in neither `.png` nor `.svg`.
pub fn kind_of(path: &Path) -> anyhow::Result<Picture> {
    let end = path
        .extension()
        .map(|end| end.to_string_lossy().to_ascii_lowercase());
    match end.as_deref() {
        Some("png") => Ok(Picture::Png),
        Some("svg") => Ok(Picture::Svg),
        _ => Err(anyhow!(
            "{} is no picture that can be drawn",
            path.display()
        ))
        .next("give --plot a name that ends in .png or .svg"),
    }
}

/// Draws a figure into a file.
///
/// # Errors
/// If the name asks for no known kind, or the file cannot be written.
pub fn save(path: &Path, figure: &Figure) -> anyhow::Result<()> {
    let bytes = match kind_of(path)? {
        Picture::Png => figure.png(),
        Picture::Svg => figure.svg(),
    };
    let bytes = bytes.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
    output::save(path, |out| out.write_all(&bytes))
}

/// Points along a line; more would not be seen.
const POINTS: usize = 600;

/// GPUs held, jobs waiting and the distribution of queue times of one run.
#[must_use]
pub fn of_run(run: &Run) -> Figure {
    let pairs = || run.tasks.iter().zip(&run.outcomes);
    let end = run_end(&run.tasks, &run.outcomes);
    let started = || pairs().filter(|(_, outcome)| outcome.started());
    let per_node = run.shape.gpus_per_node;
    let held = started().map(|(task, o)| (o.start, o.end, f64::from(task.demand.gpus(per_node))));
    let waiting = started().map(|(task, outcome)| (task.submit, outcome.start, 1.0));
    let over_time = |title: &str, y: &str, lines| Panel {
        title: title.to_owned(),
        x: "days since the first submission".to_owned(),
        y: y.to_owned(),
        content: Content::Lines {
            log_x: false,
            series: lines,
        },
    };
    let capacity = vec![
        (0.0, run.shape.gpus() as f64),
        (days(end), run.shape.gpus() as f64),
    ];
    let occupancy = over_time(
        "Occupancy (all there is: blue)",
        "GPUs held",
        vec![averages(held, end), capacity],
    );
    let queue = over_time("Queue", "jobs waiting", vec![averages(waiting, end)]);
    let mut cdf = cdf_panel("Queue times of eligible jobs (of all: blue)");
    cdf.content = Content::Lines {
        log_x: true,
        series: vec![cdf_of(run, true), cdf_of(run, false)],
    };
    Figure {
        title: format!(
            "{} GPUs, {}",
            run.shape.gpus(),
            crate::render::summary::choices(&run.scenario)
        ),
        names: Vec::new(),
        panels: vec![occupancy, queue, cdf],
        columns: 3,
    }
}

/// Distributions of the queue times of several runs.
#[must_use]
pub fn of_queues(runs: &[(&str, &Run)]) -> Figure {
    let panel = |title: &str, eligible: bool| {
        let mut panel = cdf_panel(title);
        panel.content = Content::Lines {
            log_x: true,
            series: runs.iter().map(|(_, run)| cdf_of(run, eligible)).collect(),
        };
        panel
    };
    Figure {
        title: "Queue times".to_owned(),
        names: runs.iter().map(|(name, _)| (*name).to_owned()).collect(),
        panels: vec![panel("Eligible jobs", true), panel("All jobs", false)],
        columns: 2,
    }
}

fn cdf_panel(title: &str) -> Panel {
    Panel {
        title: title.to_owned(),
        x: "queue time in seconds".to_owned(),
        y: "% of jobs".to_owned(),
        content: Content::Bars(Vec::new()),
    }
}

/// Share of jobs that waited so long or less. On a logarithmic axis all waits up to a second are 1.
#[must_use]
pub fn cdf_of(run: &Run, eligible: bool) -> Vec<(f64, f64)> {
    let end = run_end(&run.tasks, &run.outcomes);
    let pairs = run.tasks.iter().zip(&run.outcomes);
    let mut waits: Vec<Millis> = pairs
        .filter(|(task, _)| !eligible || task.eligible())
        .filter_map(|(task, outcome)| queue_time(task, outcome, end))
        .collect();
    waits.sort_unstable();
    let count = waits.len();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for point in 1..=POINTS.min(count.max(1)) {
        let rank = (point * count / POINTS.min(count.max(1))).max(1);
        if let Some(wait) = waits.get(rank - 1) {
            points.push((wait.seconds().max(1.0), 100.0 * rank as f64 / count as f64));
        }
    }
    points
}

fn days(at: Millis) -> f64 {
    at.seconds() / 86_400.0
}

/// A sum over stretches of time, averaged over each of [`POINTS`] equal steps.
fn averages(
    stretches: impl Iterator<Item = (Millis, Millis, f64)>,
    end: Millis,
) -> Vec<(f64, f64)> {
    let step = (end.0 as f64 / POINTS as f64).max(1.0);
    let mut sums = vec![0.0; POINTS];
    for (from, to, weight) in stretches {
        let (from, to) = (from.0 as f64 / step, to.0 as f64 / step);
        let (first, last) = (from as usize, (to as usize).min(POINTS - 1));
        for (at, sum) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
            let overlap = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
            *sum += weight * overlap;
        }
    }
    let middle = |at: usize| days(Millis(((at as f64 + 0.5) * step) as u64));
    sums.iter()
        .enumerate()
        .map(|(at, &sum)| (middle(at), sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_keep_the_sum() {
        let end = Millis(1_000_000);
        let stretches = [(Millis(100), Millis(500_100), 2.0), (Millis(0), end, 1.0)];
        let total: f64 = averages(stretches.into_iter(), end)
            .iter()
            .map(|point| point.1)
            .sum();
        let expected = (500_000.0 * 2.0 + 1_000_000.0) / (1_000_000.0 / POINTS as f64);
        assert!((total - expected).abs() < 1e-6, "{total} {expected}");
    }

    #[test]
    fn only_pictures_are_drawn() {
        assert_eq!(kind_of(Path::new("a.SVG")).unwrap(), Picture::Svg);
        assert!(kind_of(Path::new("a.pdf")).is_err());
    }
}
