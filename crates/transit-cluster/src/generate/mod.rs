//! A trace like Seren's or Kalos's, drawn from a seed. The public job tables are too large to ship, so
//! sizes, types, durations, GPU hours and states are calibrated to what is published of them.

pub mod arrivals;
pub mod compare;
pub mod data;
pub mod durations;
pub mod profile;
pub mod sizes;
pub mod states;

use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::trace::{Job, Trace};
use crate::units::Millis;
pub use arrivals::Arrivals;
use durations::Sized;
pub use profile::Cluster;

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Like which cluster.
    pub cluster: Cluster,
    /// How many jobs; 0 for as many as are public.
    pub jobs: u32,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// The seed.
    pub seed: u64,
}

impl Recipe {
    /// As many jobs as are public, arriving in batches and chains.
    #[must_use]
    pub fn new(cluster: Cluster, seed: u64) -> Self {
        Self {
            cluster,
            jobs: 0,
            arrivals: Arrivals::Chained,
            seed,
        }
    }
}

/// Draws a trace: same recipe, same jobs.
#[must_use]
pub fn trace(recipe: &Recipe) -> Trace {
    let profile = recipe.cluster.profile();
    let count = if recipe.jobs == 0 {
        profile.jobs
    } else {
        recipe.jobs
    };
    let stream = recipe.cluster as u128;
    let mut random = Pcg64::new(u128::from(recipe.seed), stream);
    let mut jobs: Vec<Sized> = Vec::with_capacity(count as usize);
    for cell in sizes::table(profile, count) {
        let first = jobs.len();
        let same = Sized {
            kind: cell.kind,
            gpus: cell.gpus,
        };
        jobs.resize(first + cell.jobs as usize, same);
    }
    // Batches and chains are neighbours of one type, of any size.
    for kind in jobs.chunk_by_mut(|a, b| a.kind == b.kind) {
        kind.shuffle(&mut random);
    }
    let scale = f64::from(count) / f64::from(profile.jobs);
    let seconds = durations::draw(profile, &jobs, scale, &mut random);
    let submits = arrivals::draw(profile, &jobs, &seconds, recipe.arrivals, &mut random);
    let times = jobs.iter().zip(&seconds);
    let gpu_seconds: Vec<f64> = times.map(|(job, s)| s * f64::from(job.gpus)).collect();
    let states = states::draw(profile, &gpu_seconds);
    let mut trace = Trace::default();
    for kind in profile.kinds {
        trace.kinds.place(kind.name);
    }
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let submit = |at: usize| submits.get(at).copied().unwrap_or_default();
    order.sort_by(|&a, &b| submit(a).total_cmp(&submit(b)).then(a.cmp(&b)));
    for (number, at) in order.into_iter().enumerate() {
        let (Some(job), Some(&run), Some(&state)) = (jobs.get(at), seconds.get(at), states.get(at))
        else {
            continue;
        };
        trace.names.push(&format!("{}-{number}", profile.name));
        trace.jobs.push(Job {
            submit: Millis((submit(at) as u64) * 1000),
            run: Millis(run.round().max(1.0) as u64 * 1000),
            gpus: job.gpus,
            nodes: 0,
            state,
            kind: job.kind as u16,
        });
    }
    trace.settle();
    trace
}
