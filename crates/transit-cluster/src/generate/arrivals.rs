//! When jobs are submitted. AcmeTrace's arrivals could not be had, so this is assumed, not calibrated:
//! a day with its night, a week with its end, evaluations in batches, and training jobs in chains, each
//! submitted once the one before has ended. `poisson` leaves all of that out, to show what it does.

use rand::RngExt;
use rand_distr::{Distribution, Exp, Geometric};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::durations::Sized;
use super::profile::Profile;

/// How jobs arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Days, weeks, batches of evaluations, chains of training jobs.
    #[default]
    Chained,
    /// Days, weeks and batches; training jobs arrive independently.
    Batched,
    /// Independently and evenly.
    Poisson,
}

/// Share of the busiest hour's submissions, by hour of the day (assumed: an office day).
const BY_HOUR: [f64; 24] = [
    0.45, 0.35, 0.25, 0.2, 0.2, 0.2, 0.25, 0.35, 0.5, 0.75, 0.95, 0.9, 0.75, 0.8, 0.95, 1.0, 1.0,
    0.95, 0.8, 0.75, 0.8, 0.8, 0.7, 0.55,
];
/// A day of the weekend against a working day (assumed).
const WEEKEND: f64 = 0.6;
/// Seconds between jobs of a batch, on average (assumed: a script submits them).
const BATCH_GAP_S: f64 = 3.0;
/// Seconds from a job's end to its successor's submission, on average (assumed).
const CHAIN_GAP_S: f64 = 3_600.0;

/// Seconds from the trace's start for each job.
#[must_use]
pub fn draw(
    profile: &Profile,
    jobs: &[Sized],
    seconds: &[f64],
    arrivals: Arrivals,
    random: &mut Pcg64,
) -> Vec<f64> {
    let span_s = profile.days * 86_400.0;
    let mut submits = vec![0.0; jobs.len()];
    let mut at = 0;
    while at < jobs.len() {
        let Some(kind) = jobs.get(at).and_then(|job| profile.kinds.get(job.kind)) else {
            break;
        };
        let mut time = moment(arrivals, span_s, random);
        let (batch, chain) = match arrivals {
            Arrivals::Chained => (kind.batch, kind.chain),
            Arrivals::Batched => (kind.batch, 1.0),
            Arrivals::Poisson => (1.0, 1.0),
        };
        let chained = chain > 1.0;
        let count = length(if chained { chain } else { batch }, random);
        let same_kind = |other: &Sized| jobs.get(at).is_some_and(|job| job.kind == other.kind);
        let group = jobs.iter().skip(at).take(count);
        let group = group.take_while(|job| same_kind(job)).count();
        for place in at..at + group {
            if let (Some(submit), Some(run_s)) = (submits.get_mut(place), seconds.get(place)) {
                *submit = time % span_s;
                time += if chained {
                    run_s + gap(CHAIN_GAP_S, random)
                } else {
                    gap(BATCH_GAP_S, random)
                };
            }
        }
        at += group;
    }
    submits
}

/// A number of jobs with this mean, at least one.
fn length(mean: f64, random: &mut Pcg64) -> usize {
    Geometric::new(1.0 / mean.max(1.0)).map_or(1, |further| further.sample(random) as usize + 1)
}

fn gap(mean_s: f64, random: &mut Pcg64) -> f64 {
    Exp::new(1.0 / mean_s).map_or(mean_s, |gap| gap.sample(random))
}

fn moment(arrivals: Arrivals, span_s: f64, random: &mut Pcg64) -> f64 {
    loop {
        let time = random.random::<f64>() * span_s;
        let (hour, day) = (
            (time / 3600.0) as usize % 24,
            (time / 86_400.0) as usize % 7,
        );
        let weight =
            BY_HOUR.get(hour).copied().unwrap_or(1.0) * if day >= 5 { WEEKEND } else { 1.0 };
        if arrivals == Arrivals::Poisson || random.random::<f64>() < weight {
            return time;
        }
    }
}
