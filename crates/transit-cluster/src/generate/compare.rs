//! Published figures beside generated ones. What is calibrated should agree closely; the rest (medians,
//! means over all types) follows from it and shows what calibration leaves open.

use serde::Serialize;

use super::data::curve;
use super::profile::{Cluster, Profile};
use crate::trace::{Job, State, Trace};

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// What it is, with its unit.
    pub name: String,
    /// In the paper's tables and figures.
    pub published: f64,
    /// In the generated trace.
    pub generated: f64,
    /// How far off it may be.
    pub may_be_off: f64,
}

impl Fact {
    /// The difference, without its sign.
    #[must_use]
    pub fn off(&self) -> f64 {
        (self.published - self.generated).abs()
    }

    /// Whether it is close enough.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.off() <= self.may_be_off
    }
}

/// Points of a distribution function that a generated one may be off: the two published kinds of
/// figures, by type and by size, cannot both be met exactly.
const CURVE_POINTS: f64 = 6.0;

/// All figures of a cluster.
#[must_use]
pub fn facts(cluster: Cluster, trace: &Trace) -> Vec<Fact> {
    let profile = cluster.profile();
    let mut facts = Vec::new();
    let count = trace.jobs.len() as f64;
    let scale = count / f64::from(profile.jobs);
    let mut fact = |name: String, published: f64, generated: f64, may_be_off: f64| {
        facts.push(Fact {
            name,
            published,
            generated,
            may_be_off,
        });
    };
    let jobs = f64::from(profile.jobs) * scale;
    fact("jobs".to_owned(), jobs, count, 0.5);
    let hours = profile.gpu_hours * scale;
    fact(
        "GPU hours".to_owned(),
        hours,
        gpu_hours(&trace.jobs),
        hours * 0.01,
    );
    for (kind, place) in profile.kinds.iter().zip(0_u16..) {
        let of_kind = share(trace, |job| job.kind == place);
        fact(
            format!("% of jobs: {}", kind.name),
            kind.share * 100.0,
            of_kind,
            1.5,
        );
    }
    let states = [State::Completed, State::Cancelled, State::Failed];
    for (at, state) in states.into_iter().enumerate() {
        let [jobs, time] = [profile.states, profile.state_time].map(|all| all.get(at).copied());
        let of_jobs = share(trace, |job| job.state == state);
        let of_time = time_share(trace, |job| job.state == state);
        fact(
            format!("% of jobs: {state:?}"),
            jobs.unwrap_or(0.0) * 100.0,
            of_jobs,
            1.5,
        );
        fact(
            format!("% of GPU time: {state:?}"),
            time.unwrap_or(0.0) * 100.0,
            of_time,
            5.0,
        );
    }
    sizes(profile, trace, &mut fact);
    durations(profile, trace, &mut fact);
    facts
}

fn gpu_hours(jobs: &[Job]) -> f64 {
    jobs.iter()
        .map(|job| job.run.hours() * f64::from(job.gpus))
        .sum()
}

fn share(trace: &Trace, what: impl Fn(&Job) -> bool) -> f64 {
    100.0 * trace.jobs.iter().filter(|job| what(job)).count() as f64 / trace.jobs.len() as f64
}

fn time_share(trace: &Trace, what: impl Fn(&Job) -> bool) -> f64 {
    let jobs: Vec<Job> = trace.jobs.iter().filter(|job| what(job)).copied().collect();
    100.0 * gpu_hours(&jobs) / gpu_hours(&trace.jobs)
}

fn sizes(profile: &Profile, trace: &Trace, fact: &mut impl FnMut(String, f64, f64, f64)) {
    for (name, curve_name) in [("jobs", "jobs_vs_gpus"), ("GPU time", "gputime_vs_gpus")] {
        let points = curve(curve_name, profile.name, "all");
        for limit in [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0] {
            let below = points.iter().rfind(|point| point.x <= limit * 1.005);
            let Some(published) = below.map(|point| point.share * 100.0) else {
                continue;
            };
            let within = |job: &Job| f64::from(job.gpus) <= limit;
            let generated = if name == "jobs" {
                share(trace, within)
            } else {
                time_share(trace, within)
            };
            fact(
                format!("% of {name}: up to {limit} GPUs"),
                published,
                generated,
                1.0,
            );
        }
    }
}

fn durations(profile: &Profile, trace: &Trace, fact: &mut impl FnMut(String, f64, f64, f64)) {
    let mut all = vec![("all".to_owned(), None)];
    all.extend(
        profile
            .kinds
            .iter()
            .zip(0_u16..)
            .map(|(k, at)| (k.name.to_owned(), Some(at))),
    );
    for (name, place) in all {
        let of_kind = trace
            .jobs
            .iter()
            .filter(|job| place.is_none_or(|place| job.kind == place));
        let mut seconds: Vec<f64> = of_kind.map(|job| job.run.seconds()).collect();
        seconds.sort_by(f64::total_cmp);
        let mut worst = (0.0, 0.0, 0.0, 0.0);
        for point in curve("duration_s", profile.name, &name) {
            let within = seconds.partition_point(|&s| s <= point.x) as f64;
            let (published, generated) = (
                point.share * 100.0,
                100.0 * within / seconds.len().max(1) as f64,
            );
            let off: f64 = published - generated;
            if off.abs() > worst.0 {
                worst = (off.abs(), point.x, published, generated);
            }
        }
        let (_, x, published, generated) = worst;
        let name = format!("% of {name} jobs within {x} s (worst of 22 points)");
        fact(name, published, generated, CURVE_POINTS);
    }
}
