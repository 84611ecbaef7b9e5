//! What a run amounts to, over all jobs and over the eligible ones. Every number here can be computed
//! again from the CSV that `run --jobs-csv` writes.

use serde::Serialize;

use crate::cluster::Shape;
use crate::engine::{Fate, Outcome};
use crate::scenario::Scenario;
use crate::task::Task;
use crate::units::Millis;

/// Waiting times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueTimes {
    /// Mean, in seconds.
    pub mean_s: f64,
    /// Half wait no longer.
    pub p50_s: f64,
    /// Nine of ten wait no longer.
    pub p90_s: f64,
    /// 99 of 100 wait no longer.
    pub p99_s: f64,
    /// The longest wait.
    pub max_s: f64,
    /// Share of jobs that waited at all.
    pub waited_share: f64,
}

/// The ways to count a job's use of the network between racks; each summed over jobs. They are counts
/// per job: weighted by time, half the racks for twice the time would cancel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RackTraffic {
    /// Racks touched.
    pub racks: u64,
    /// Racks touched by jobs on two racks and more.
    pub multi_rack: u64,
    /// Racks touched beyond each job's first.
    pub crossings: u64,
    /// `crossings` weighted by hours held.
    pub crossing_hours: f64,
}

/// Numbers of a group of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// Jobs submitted.
    pub jobs: u64,
    /// Jobs that ended.
    pub done: u64,
    /// Jobs that still waited when the run ended.
    pub waiting: u64,
    /// Jobs that still ran when the run ended.
    pub running: u64,
    /// Jobs too large for the cluster.
    pub too_large: u64,
    /// Jobs given up after failures.
    pub given_up: u64,
    /// From the group's first submission to its last end, in hours.
    pub makespan_hours: f64,
    /// Jobs ended by hour of makespan.
    pub jobs_per_hour: f64,
    /// Jobs ended by GPU hour held.
    pub jobs_per_gpu_hour: f64,
    /// Mean over jobs of recorded over simulated GPU time: 1.05 is 5 % more throughput per GPU and job.
    pub speed: f64,
    /// Mean time from submission to end, in hours.
    pub turnaround_hours: f64,
    /// Waiting times.
    pub queue: QueueTimes,
    /// GPU hours held.
    pub gpu_hours: f64,
    /// Racks touched by a job, on average.
    pub racks_mean: f64,
    /// Jobs on two racks and more.
    pub multi_rack_jobs: u64,
    /// Jobs on one node.
    pub single_node_jobs: u64,
    /// Use of the network between racks.
    pub traffic: RackTraffic,
}

/// Numbers of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// All jobs.
    pub all: Group,
    /// Jobs of more than one node before scale-in.
    pub eligible: Group,
    /// Jobs that scale-in changed.
    pub shrunk: u64,
    /// Eligible jobs that scale-in brought onto one node.
    pub became_single_node: u64,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// Share of the cluster's GPU time, from first submission to last end, that was held.
    pub utilisation: f64,
    /// GPU hours that nobody held in that time.
    pub idle_gpu_hours: f64,
}

impl Metrics {
    /// Says so if no job is measured, for then all numbers are 0 and mean nothing.
    ///
    /// # Errors
    /// If there is none.
    pub fn something_measured(&self) -> Result<(), String> {
        if self.all.jobs == 0 {
            return Err("no job is measured: --warmup-days leaves out all of them".to_owned());
        }
        Ok(())
    }
}

/// Which jobs are measured: those submitted after the warm-up.
#[must_use]
pub fn measured(task: &Task, scenario: &Scenario) -> bool {
    task.submit >= Millis::from_seconds(scenario.warmup_days * 86_400.0)
}

/// Sums a run up.
#[must_use]
pub fn summarise(
    tasks: &[Task],
    outcomes: &[Outcome],
    scenario: &Scenario,
    shape: Shape,
) -> Metrics {
    let pairs = || {
        let pairs = tasks.iter().zip(outcomes);
        pairs.filter(|(task, _)| measured(task, scenario))
    };
    let eligible = || pairs().filter(|(task, _)| task.eligible());
    let all = group(pairs(), shape);
    let idle = (shape.gpus() as f64 * all.makespan_hours - all.gpu_hours).max(0.0);
    let capacity = shape.gpus() as f64 * all.makespan_hours;
    let became = eligible().filter(|(task, _)| task.demand.nodes() == 1);
    Metrics {
        eligible: group(eligible(), shape),
        shrunk: pairs().filter(|(task, _)| task.shrunk()).count() as u64,
        became_single_node: became.count() as u64,
        gpus: shape.gpus(),
        utilisation: ratio(all.gpu_hours, capacity),
        idle_gpu_hours: idle,
        all,
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// How long a job waited until it first started, or has waited when the run ended.
#[must_use]
pub fn queue_time(task: &Task, outcome: &Outcome, run_end: Millis) -> Option<Millis> {
    match outcome.fate {
        Fate::TooLarge => None,
        _ if outcome.started() => Some(outcome.start - task.submit),
        _ => Some(run_end - task.submit),
    }
}

/// When the last job ended, or the run did.
#[must_use]
pub fn run_end(tasks: &[Task], outcomes: &[Outcome]) -> Millis {
    let end = outcomes.iter().map(|outcome| outcome.end).max();
    let submit = tasks.last().map(|task| task.submit);
    end.max(submit).unwrap_or_default()
}

fn group<'a>(pairs: impl Iterator<Item = (&'a Task, &'a Outcome)>, shape: Shape) -> Group {
    let pairs: Vec<(&Task, &Outcome)> = pairs.collect();
    let mut group = Group::default();
    let last_submit = pairs.last().map_or(Millis(0), |(task, _)| task.submit);
    let ends = pairs.iter().map(|(_, outcome)| outcome.end);
    let end = ends.max().unwrap_or_default().max(last_submit);
    let start = pairs.first().map_or(Millis(0), |(task, _)| task.submit);
    let mut queues: Vec<Millis> = Vec::with_capacity(pairs.len());
    let mut sums = Sums::default();
    for (task, outcome) in &pairs {
        group.jobs += 1;
        match outcome.fate {
            Fate::Waiting => group.waiting += 1,
            Fate::Running => group.running += 1,
            Fate::Done => group.done += 1,
            Fate::TooLarge => group.too_large += 1,
            Fate::GivenUp => group.given_up += 1,
        }
        queues.extend(queue_time(task, outcome, end));
        if outcome.started() {
            sums.started += 1;
            sums.add(task, outcome, shape, &mut group);
        }
    }
    group.makespan_hours = (end - start).hours();
    group.gpu_hours = sums.gpu_ms as f64 / 3_600_000.0;
    group.jobs_per_hour = ratio(group.done as f64, group.makespan_hours);
    group.jobs_per_gpu_hour = ratio(group.done as f64, group.gpu_hours);
    group.speed = ratio(sums.speed, group.done as f64);
    group.turnaround_hours = ratio(sums.turnaround_ms as f64 / 3_600_000.0, group.done as f64);
    group.racks_mean = ratio(group.traffic.racks as f64, sums.started as f64);
    group.traffic.crossing_hours = sums.crossing_ms as f64 / 3_600_000.0;
    group.queue = queue_times(&mut queues);
    group
}

#[derive(Default)]
struct Sums {
    started: u64,
    gpu_ms: u128,
    crossing_ms: u128,
    turnaround_ms: u128,
    speed: f64,
}

impl Sums {
    fn add(&mut self, task: &Task, outcome: &Outcome, shape: Shape, group: &mut Group) {
        let gpus = |demand: crate::cluster::Demand| demand.gpus(shape.gpus_per_node);
        let held = u128::from(outcome.held.0) * u128::from(gpus(task.demand));
        self.gpu_ms += held;
        let crossings = u64::from(outcome.racks - 1);
        self.crossing_ms += u128::from(crossings) * u128::from(outcome.held.0);
        group.traffic.racks += u64::from(outcome.racks);
        group.traffic.crossings += crossings;
        if crossings > 0 {
            group.traffic.multi_rack += u64::from(outcome.racks);
            group.multi_rack_jobs += 1;
        }
        group.single_node_jobs += u64::from(task.demand.nodes() == 1);
        if outcome.fate == Fate::Done {
            let before = u128::from(task.run_before.0) * u128::from(gpus(task.demand_before));
            self.speed += ratio(before as f64, held as f64);
            self.turnaround_ms += u128::from((outcome.end - task.submit).0);
        }
    }
}

fn queue_times(queues: &mut [Millis]) -> QueueTimes {
    queues.sort_unstable();
    let at = |share: f64| percentile(queues, share).seconds();
    let sum: u128 = queues.iter().map(|queue| u128::from(queue.0)).sum();
    let waited = queues.iter().filter(|queue| queue.0 > 0).count();
    let count = queues.len() as f64;
    QueueTimes {
        mean_s: ratio(sum as f64 / 1000.0, count),
        p50_s: at(0.5),
        p90_s: at(0.9),
        p99_s: at(0.99),
        max_s: at(1.0),
        waited_share: ratio(waited as f64, count),
    }
}

/// The smallest value that a share of all does not exceed (nearest rank); 0 of none.
#[must_use]
pub fn percentile(sorted: &[Millis], share: f64) -> Millis {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    let last = sorted.len().saturating_sub(1);
    let at = rank.saturating_sub(1).min(last);
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<Millis> = (1..=10).map(Millis).collect();
        assert_eq!(percentile(&sorted, 0.5), Millis(5));
        assert_eq!(percentile(&sorted, 0.99), Millis(10));
        assert_eq!(percentile(&sorted, 0.0), Millis(1));
        assert_eq!(percentile(&[], 0.5), Millis(0));
    }
}
