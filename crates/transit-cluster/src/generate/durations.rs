//! How long jobs run. Two things are published: the durations of each type, and the GPU hours of each
//! size. Durations are drawn by type and handed to jobs so that both hold: in turn, each size is scaled
//! to its GPU hours and each type is put back onto its curve, keeping the order of its jobs.
#![expect(
    clippy::indexing_slicing,
    reason = "places come from the tables that are indexed"
)]

use std::collections::BTreeSet;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::data::{Point, curve};
use super::profile::Profile;

/// A job that still lacks its duration.
#[derive(Clone, Copy, Debug)]
pub struct Sized {
    /// Place of the type in the profile.
    pub kind: usize,
    /// GPUs.
    pub gpus: u32,
}

const ROUNDS: usize = 14;
const AFTER_ROUNDS: usize = 6;
/// The longest run in both clusters' summaries is 14 days.
const LONGEST_S: f64 = 1_209_604.0;

/// Seconds for each job; `scale` is the share of the published number of jobs.
#[must_use]
pub fn draw(profile: &Profile, jobs: &[Sized], scale: f64, random: &mut Pcg64) -> Vec<f64> {
    let curves: Vec<Vec<Point>> = profile
        .kinds
        .iter()
        .map(|kind| curve("duration_s", profile.name, kind.name))
        .collect();
    let mut by_kind: Vec<Vec<u32>> = vec![Vec::new(); profile.kinds.len()];
    for (at, job) in jobs.iter().enumerate() {
        by_kind[job.kind].push(at as u32);
    }
    let hours = hours_by_size(profile, jobs, scale);
    let class = |gpus: u32| hours.partition_point(|&(last, _)| last < f64::from(gpus));
    let classes: Vec<usize> = jobs.iter().map(|job| class(job.gpus)).collect();
    // A random key puts each type's jobs in a first order.
    let mut seconds: Vec<f64> = jobs.iter().map(|_| random.random::<f64>()).collect();
    for _ in 0..ROUNDS {
        for (members, curve) in by_kind.iter_mut().zip(&curves) {
            onto_curve(&mut seconds, members, curve);
        }
        to_hours(&mut seconds, jobs, &classes, &hours);
    }
    // What the longest run cuts off goes to the other jobs of its size.
    for _ in 0..AFTER_ROUNDS {
        to_hours(&mut seconds, jobs, &classes, &hours);
    }
    seconds
}

/// GPU hours by the last size of each stretch of the published curve. Hours of a stretch in which no
/// job's size falls go to the next one in which some does: both curves were read from a figure.
fn hours_by_size(profile: &Profile, jobs: &[Sized], scale: f64) -> Vec<(f64, f64)> {
    let sizes: BTreeSet<u32> = jobs.iter().map(|job| job.gpus).collect();
    let (mut first, mut before) = (1.0, 0.0);
    let mut hours = Vec::new();
    for point in curve("gputime_vs_gpus", profile.name, "all") {
        if sizes
            .iter()
            .any(|&gpus| (first..=point.x).contains(&f64::from(gpus)))
        {
            hours.push((point.x, (point.share - before) * profile.gpu_hours * scale));
            (first, before) = (point.x + 1.0, point.share);
        }
    }
    hours
}

/// Gives the members, in their present order, the curve's values at evenly spaced shares.
fn onto_curve(seconds: &mut [f64], members: &mut [u32], curve: &[Point]) {
    members.sort_unstable_by(|&a, &b| {
        let (a_s, b_s) = (seconds[a as usize], seconds[b as usize]);
        a_s.total_cmp(&b_s).then(a.cmp(&b))
    });
    let count = members.len() as f64;
    let mut piece = 0;
    for (rank, &member) in members.iter().enumerate() {
        let share = (rank as f64 + 0.5) / count;
        while piece + 1 < curve.len() && curve[piece].share < share {
            piece += 1;
        }
        seconds[member as usize] = value_at(curve, piece, share);
    }
}

/// The duration at a share within the piece that ends at point `piece`, straight on a log scale.
fn value_at(curve: &[Point], piece: usize, share: f64) -> f64 {
    let to = curve[piece];
    let Some(from) = piece.checked_sub(1).map(|before| curve[before]) else {
        return to.x;
    };
    let width = to.share - from.share;
    let part = if width > 0.0 {
        (share - from.share) / width
    } else {
        1.0
    };
    from.x * (to.x / from.x).powf(part.clamp(0.0, 1.0))
}

fn to_hours(seconds: &mut [f64], jobs: &[Sized], classes: &[usize], hours: &[(f64, f64)]) {
    let mut have = vec![0.0; hours.len() + 1];
    for ((job, &class), seconds) in jobs.iter().zip(classes).zip(seconds.iter()) {
        have[class] += seconds * f64::from(job.gpus) / 3600.0;
    }
    for (&class, seconds) in classes.iter().zip(seconds.iter_mut()) {
        let target = hours.get(class).map_or(0.0, |&(_, hours)| hours);
        if target > 0.0 && have[class] > 0.0 {
            *seconds = (*seconds * target / have[class]).clamp(1.0, LONGEST_S);
        }
    }
}
