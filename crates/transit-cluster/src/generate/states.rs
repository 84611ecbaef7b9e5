//! How jobs ended. Published are the shares of jobs and of GPU time that completed, were cancelled and
//! failed; the more GPU time a job took, the likelier somebody cancelled it. Two numbers per state, a
//! weight and a power of GPU time, are fitted to both.
#![expect(clippy::indexing_slicing, reason = "arrays of three states")]

use super::profile::Profile;
use crate::trace::State;

const STATES: [State; 3] = [State::Completed, State::Cancelled, State::Failed];
const ROUNDS: usize = 400;

/// Jobs of similar GPU time: their mean in seconds x GPUs, and how many.
struct Bin {
    time: f64,
    jobs: f64,
}

/// A state for each job by its GPU time. From the largest job down, the state is taken that lacks most
/// GPU time so far, so that a few large jobs cannot throw the shares off.
#[must_use]
pub fn draw(profile: &Profile, gpu_seconds: &[f64]) -> Vec<State> {
    let bins = bins(gpu_seconds);
    let (weights, powers) = fit(profile, &bins);
    let mut order: Vec<u32> = (0..gpu_seconds.len() as u32).collect();
    let time = |at: u32| gpu_seconds[at as usize];
    order.sort_by(|&a, &b| time(b).total_cmp(&time(a)).then(a.cmp(&b)));
    let mut states = vec![State::Completed; gpu_seconds.len()];
    let mut lacks = [0.0; 3];
    for at in order {
        let chance = chances(time(at), &weights, &powers);
        for (lack, chance) in lacks.iter_mut().zip(chance) {
            *lack += chance * time(at);
        }
        let most = (0..3)
            .max_by(|&a, &b| lacks[a].total_cmp(&lacks[b]))
            .unwrap_or(0);
        lacks[most] -= time(at);
        states[at as usize] = STATES[most];
    }
    states
}

fn bins(gpu_seconds: &[f64]) -> Vec<Bin> {
    let mut sums = vec![(0.0, 0.0); 64];
    for &time in gpu_seconds {
        let at = (time.max(1.0).log2() * 2.0) as usize;
        let last = sums.len() - 1;
        let bin: &mut (f64, f64) = &mut sums[at.min(last)];
        *bin = (bin.0 + time, bin.1 + 1.0);
    }
    let filled = sums.into_iter().filter(|&(_, jobs)| jobs > 0.0);
    filled
        .map(|(sum, jobs)| Bin {
            time: sum / jobs,
            jobs,
        })
        .collect()
}

fn chances(time: f64, weights: &[f64; 3], powers: &[f64; 3]) -> [f64; 3] {
    let log = time.max(1.0).ln();
    let raw: [f64; 3] = std::array::from_fn(|s| weights[s] * (powers[s] * log).exp());
    let sum: f64 = raw.iter().sum();
    raw.map(|value| value / sum)
}

fn fit(profile: &Profile, bins: &[Bin]) -> ([f64; 3], [f64; 3]) {
    let (mut weights, mut powers) = (profile.states, [0.0; 3]);
    for _ in 0..ROUNDS {
        let (mut jobs, mut times) = ([0.0; 3], [0.0; 3]);
        for bin in bins {
            for (state, chance) in chances(bin.time, &weights, &powers).into_iter().enumerate() {
                jobs[state] += chance * bin.jobs;
                times[state] += chance * bin.jobs * bin.time;
            }
        }
        let (all_jobs, all_time): (f64, f64) = (jobs.iter().sum(), times.iter().sum());
        for state in 0..3 {
            let job_error = profile.states[state] * all_jobs / jobs[state];
            let time_error = profile.state_time[state] * all_time / times[state];
            weights[state] *= job_error;
            powers[state] += 0.02 * (time_error.ln() - job_error.ln());
        }
    }
    (weights, powers)
}
