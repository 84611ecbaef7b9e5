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

/// The legend of [`of_run`]; each line has its own colour, whatever panel it is in.
const LINES: [&str; 5] = [
    "GPUs held",
    "GPUs there are",
    "jobs waiting",
    "queue times of eligible jobs",
    "queue times of all jobs",
];

/// GPUs held, jobs waiting and the distribution of queue times of one run of a trace.
#[must_use]
pub fn of_run(trace: &str, run: &Run) -> Figure {
    let end = run_end(&run.tasks, &run.outcomes);
    let gpus = run.shape.gpus() as f64;
    let clock = Clock::up_to(end);
    let capacity = vec![(0.0, gpus), (clock.at(end), gpus)];
    let queues = cdf_panel(
        "Queue times",
        vec![
            Vec::new(),
            Vec::new(),
            Vec::new(),
            cdf_of(run, true),
            cdf_of(run, false),
        ],
    );
    let held = averages(held(run), end, &clock);
    let waiting = averages(waiting(run, end), end, &clock);
    Figure {
        title: format!(
            "{trace}: {} GPUs, {}",
            run.shape.gpus(),
            crate::render::summary::choices(&run.scenario)
        ),
        names: LINES.map(str::to_owned).to_vec(),
        panels: vec![
            clock.panel("Occupancy", "GPUs", vec![held, capacity]),
            clock.panel("Queue", "jobs", vec![Vec::new(), Vec::new(), waiting]),
            queues,
        ],
        columns: 3,
    }
}

/// From when to when each job held how many GPUs.
fn held(run: &Run) -> impl Iterator<Item = (Millis, Millis, f64)> {
    let pairs = run.tasks.iter().zip(&run.outcomes);
    let started = pairs.filter(|(_, outcome)| outcome.started());
    started.map(|(task, outcome)| {
        let gpus = task.demand.gpus(run.shape.gpus_per_node);
        (outcome.start, outcome.end, f64::from(gpus))
    })
}

/// From when to when each job waited, up to the run's end.
fn waiting(run: &Run, end: Millis) -> impl Iterator<Item = (Millis, Millis, f64)> {
    let pairs = run.tasks.iter().zip(&run.outcomes);
    pairs.filter_map(move |(task, outcome)| {
        let wait = queue_time(task, outcome, end)?;
        Some((task.submit, task.submit + wait, 1.0))
    })
}

/// The axis of time, in the unit in which people would tell it.
struct Clock {
    unit: &'static str,
    seconds: f64,
}

impl Clock {
    fn up_to(end: Millis) -> Self {
        let (unit, seconds) = match end.seconds() {
            s if s > 172_800.0 => ("days", 86_400.0),
            s if s > 7_200.0 => ("hours", 3_600.0),
            s if s > 120.0 => ("minutes", 60.0),
            _ => ("seconds", 1.0),
        };
        Self { unit, seconds }
    }

    fn at(&self, time: Millis) -> f64 {
        time.seconds() / self.seconds
    }

    fn panel(&self, title: &str, y: &str, series: Vec<Vec<(f64, f64)>>) -> Panel {
        Panel {
            title: title.to_owned(),
            x: format!("{} since the first submission", self.unit),
            y: y.to_owned(),
            content: Content::Lines {
                log_x: false,
                series,
            },
        }
    }
}

/// Distributions of the queue times of several runs.
#[must_use]
pub fn of_queues(trace: &str, runs: &[(&str, &Run)]) -> Figure {
    let panel = |title: &str, eligible: bool| {
        let lines = runs.iter().map(|(_, run)| cdf_of(run, eligible));
        cdf_panel(title, lines.collect())
    };
    Figure {
        title: format!("{trace}: queue times"),
        names: runs.iter().map(|(name, _)| (*name).to_owned()).collect(),
        panels: vec![panel("Eligible jobs", true), panel("All jobs", false)],
        columns: 2,
    }
}

/// Lines go on to the right edge, so that one that is at 100 % from the start is seen.
fn cdf_panel(title: &str, mut series: Vec<Vec<(f64, f64)>>) -> Panel {
    let points = series.iter().flatten();
    let right = points.map(|point| point.0).fold(10.0, f64::max);
    for line in series.iter_mut().filter(|line| !line.is_empty()) {
        line.push((right, 100.0));
    }
    Panel {
        title: title.to_owned(),
        x: "queue time in seconds (1: a second or less)".to_owned(),
        y: "% of jobs".to_owned(),
        content: Content::Lines {
            log_x: true,
            series,
        },
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

/// A sum over stretches of time, averaged over each of [`POINTS`] equal steps.
fn averages(
    stretches: impl Iterator<Item = (Millis, Millis, f64)>,
    end: Millis,
    clock: &Clock,
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
    let middle = |at: usize| clock.at(Millis(((at as f64 + 0.5) * step) as u64));
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
        let total: f64 = averages(stretches.into_iter(), end, &Clock::up_to(end))
            .iter()
            .map(|point| point.1)
            .sum();
        let expected = (500_000.0 * 2.0 + 1_000_000.0) / (1_000_000.0 / POINTS as f64);
        assert!((total - expected).abs() < 1e-6, "{total} {expected}");
    }

    #[test]
    fn time_is_told_in_the_unit_that_fits() {
        let unit = |seconds: u64| Clock::up_to(Millis(seconds * 1000)).unit;
        let units = [61, 600, 86_400, 864_000].map(unit);
        assert_eq!(units, ["seconds", "minutes", "hours", "days"]);
    }

    #[test]
    fn a_line_at_100_percent_reaches_the_right_edge() {
        let lines = vec![vec![(1.0, 100.0)], vec![(1.0, 50.0), (60.0, 100.0)], vec![]];
        let Content::Lines { series, .. } = cdf_panel("", lines).content else {
            panic!("no lines");
        };
        assert_eq!(series[0], [(1.0, 100.0), (60.0, 100.0)]);
        assert!(series[2].is_empty());
    }

    #[test]
    fn only_pictures_are_drawn() {
        assert_eq!(kind_of(Path::new("a.SVG")).unwrap(), Picture::Svg);
        assert!(kind_of(Path::new("a.pdf")).is_err());
    }
}
