//! A run, or several beside each other, as a table.

use super::table::{Rows, facts};
use super::units::{change, count, number, percent, seconds};
use crate::metrics::{Group, Metrics};
use crate::scenario::Scenario;
use crate::simulate::Run;

/// A number of a group of jobs: its name, its value, how it reads.
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// Its value.
    pub value: fn(&Group) -> f64,
    /// How it reads.
    pub text: fn(f64) -> String,
}

const fn line(name: &'static str, value: fn(&Group) -> f64, text: fn(f64) -> String) -> Line {
    Line { name, value, text }
}

fn whole(value: f64) -> String {
    count(value.round() as u64)
}

fn hours(value: f64) -> String {
    seconds(value * 3600.0)
}

/// The numbers of a group, in the order in which they are shown.
pub const LINES: [Line; 20] = [
    line("jobs", |g| g.jobs as f64, whole),
    line("done", |g| g.done as f64, whole),
    line("makespan", |g| g.makespan_hours, hours),
    line("jobs per hour", |g| g.jobs_per_hour, number),
    line("jobs per GPU hour", |g| g.jobs_per_gpu_hour, number),
    line("throughput per GPU and job", |g| g.speed, number),
    line("turnaround, mean", |g| g.turnaround_hours, hours),
    line("queue, mean", |g| g.queue.mean_s, seconds),
    line("queue, median", |g| g.queue.p50_s, seconds),
    line("queue, 90 %", |g| g.queue.p90_s, seconds),
    line("queue, 99 %", |g| g.queue.p99_s, seconds),
    line("queue, longest", |g| g.queue.max_s, seconds),
    line("jobs that waited", |g| g.queue.waited_share, percent),
    line("GPU hours held", |g| g.gpu_hours, whole),
    line("racks per job", |g| g.racks_mean, number),
    line("jobs on several racks", |g| g.multi_rack_jobs as f64, whole),
    line("jobs on one node", |g| g.single_node_jobs as f64, whole),
    line("rack traffic: racks", |g| g.traffic.racks as f64, whole),
    line(
        "rack traffic: racks of several",
        |g| g.traffic.multi_rack as f64,
        whole,
    ),
    line(
        "rack traffic: crossings",
        |g| g.traffic.crossings as f64,
        whole,
    ),
];

/// The cluster and the choices of a scenario in words.
#[must_use]
pub fn scenario(run: &Run) -> String {
    let (s, shape) = (&run.scenario, run.shape);
    let cluster = format!(
        "{} racks x {} GPUs, {} per node: {} nodes, {} GPUs",
        number_short(f64::from(shape.nodes) / f64::from(shape.nodes_per_rack)),
        s.gpus_per_rack,
        s.gpus_per_node,
        count(u64::from(shape.nodes)),
        count(shape.gpus())
    );
    facts(&[("cluster", cluster), ("scenario", choices(s))])
}

/// The choices of a scenario in one line.
#[must_use]
pub fn choices(s: &Scenario) -> String {
    let mut words = vec![
        format!("queue {}", value(&s.queue)),
        format!("placement {}", value(&s.placement)),
    ];
    if s.reduction > 0.0 {
        words.push(format!(
            "{} fewer nodes (rounded {}), speed-up {}, slow-down {}, same class {}",
            percent(s.reduction),
            value(&s.rounding),
            s.speedup,
            s.slowdown,
            s.same
        ));
    } else {
        words.push("no scale-in".to_owned());
    }
    if s.mtbf_hours > 0.0 {
        words.push(format!("a node fails every {} h", s.mtbf_hours));
    }
    if s.load != 1.0 {
        words.push(format!("load x {}", s.load));
    }
    words.join(", ")
}

fn value(choice: &impl clap::ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A number without needless decimals.
#[must_use]
pub fn number_short(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

/// One run: all jobs beside the eligible ones.
#[must_use]
pub fn run(metrics: &Metrics) -> String {
    let mut rows = Rows::new(["", "all jobs", "eligible jobs"]);
    for line in &LINES {
        let cell = |group: &Group| (line.text)((line.value)(group));
        rows.push([
            line.name.to_owned(),
            cell(&metrics.all),
            cell(&metrics.eligible),
        ]);
    }
    let mut text = rows.render();
    text.push('\n');
    text.push_str(&cluster_lines(metrics));
    text
}

fn cluster_lines(metrics: &Metrics) -> String {
    let odd = |name, value: u64| {
        (
            name,
            if value > 0 {
                count(value)
            } else {
                String::new()
            },
        )
    };
    let all = &metrics.all;
    let eligible = metrics.eligible.jobs;
    let shrunk = format!(
        "{} of {} eligible jobs; {} came onto one node",
        count(metrics.shrunk),
        count(eligible),
        count(metrics.became_single_node)
    );
    facts(&[
        ("utilisation", percent(metrics.utilisation)),
        (
            "idle GPU hours",
            count(metrics.idle_gpu_hours.round() as u64),
        ),
        (
            "shrunk",
            if metrics.shrunk > 0 {
                shrunk
            } else {
                String::new()
            },
        ),
        odd("larger than the cluster", all.too_large),
        odd("still waiting at the end", all.waiting),
        odd("still running at the end", all.running),
        odd("given up after failures", all.given_up),
    ])
}

/// Scenarios beside each other; every number of the later ones with its change from the first.
#[must_use]
pub fn beside(names: &[String], metrics: &[&Metrics]) -> String {
    let mut text = String::new();
    for title in ["eligible jobs", "all jobs"] {
        let group = |m: &Metrics| {
            if title == "all jobs" {
                m.all.clone()
            } else {
                m.eligible.clone()
            }
        };
        let mut heading = vec![title.to_owned()];
        for (at, name) in names.iter().enumerate() {
            heading.push(name.clone());
            if at > 0 {
                heading.push("change".to_owned());
            }
        }
        let mut rows = Rows::new(heading);
        for line in &LINES {
            rows.push(cells(
                line.name,
                metrics,
                |m| (line.value)(&group(m)),
                line.text,
            ));
        }
        if title == "all jobs" {
            rows.push(cells("utilisation", metrics, |m| m.utilisation, percent));
            rows.push(cells(
                "idle GPU hours",
                metrics,
                |m| m.idle_gpu_hours,
                whole,
            ));
        }
        text.push_str(&rows.render());
        text.push('\n');
    }
    text
}

fn cells(
    name: &str,
    metrics: &[&Metrics],
    value: impl Fn(&Metrics) -> f64,
    show: fn(f64) -> String,
) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    let base = metrics.first().map_or(0.0, |m| value(m));
    for (at, m) in metrics.iter().enumerate() {
        row.push(show(value(m)));
        if at > 0 {
            row.push(change(base, value(m)));
        }
    }
    row
}
