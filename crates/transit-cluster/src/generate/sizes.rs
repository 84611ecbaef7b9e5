//! How many jobs of each type have how many GPUs. Published are the number of jobs by size, the share
//! of each type, and box plots of sizes by type with every outlier; the table that fits all of them
//! best is found by iterative proportional fitting (Deming and Stephan 1940).
#![expect(clippy::indexing_slicing, reason = "all tables are kinds x sizes")]

use super::data::{curve, outliers};
use super::profile::{Kind, Profile};

/// Jobs of one type and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Place of the type in the profile.
    pub kind: usize,
    /// GPUs of a job.
    pub gpus: u32,
    /// Jobs.
    pub jobs: u32,
}

/// Rounds of fitting; the fit changes nothing in the third digit after about ten.
const ROUNDS: usize = 60;

/// The table, for `jobs` jobs in all.
#[must_use]
pub fn table(profile: &Profile, jobs: u32) -> Vec<Cell> {
    let sizes = sizes(profile);
    let known = known(profile, &sizes);
    let by_kind: Vec<f64> = profile
        .kinds
        .iter()
        .zip(&known)
        .map(|(kind, known)| left(kind.share * f64::from(profile.jobs), known.iter().sum()))
        .collect();
    let by_size: Vec<f64> = sizes
        .iter()
        .enumerate()
        .map(|(at, &(_, total))| left(total, known.iter().map(|row| row[at]).sum()))
        .collect();
    let mut fitted: Vec<Vec<f64>> = profile.kinds.iter().map(|k| prior(k, &sizes)).collect();
    for _ in 0..ROUNDS {
        for (row, target) in fitted.iter_mut().zip(&by_kind) {
            scale(row.iter_mut(), *target);
        }
        for (at, target) in by_size.iter().enumerate() {
            scale(fitted.iter_mut().map(|row| &mut row[at]), *target);
        }
    }
    for (row, known) in fitted.iter_mut().zip(&known) {
        for (cell, known) in row.iter_mut().zip(known) {
            *cell += known;
        }
    }
    whole(&fitted, &sizes, jobs)
}

fn left(total: f64, known: f64) -> f64 {
    (total - known).max(0.0)
}

/// Sizes that occur, with their jobs: the steps of the published curve.
fn sizes(profile: &Profile) -> Vec<(u32, f64)> {
    let mut before = (0.0, 0.0);
    let mut sizes: Vec<(u32, f64)> = Vec::new();
    for point in curve("jobs_vs_gpus", profile.name, "all") {
        let jobs = (point.share - before.1) * f64::from(profile.jobs);
        if jobs > 0.5 {
            let gpus = stands_for(before.0 as u32 + 1, point.x as u32);
            match sizes.last_mut() {
                Some((last, total)) if *last == gpus => *total += jobs,
                _ => sizes.push((gpus, jobs)),
            }
        }
        before = (point.x, point.share);
    }
    sizes
}

/// A size for a stretch of the curve. It ends on a size that occurs (read up to 0.5 % too large), or
/// right below the next one; then the middle stands for what lies between.
fn stands_for(first: u32, last: u32) -> u32 {
    match last {
        0..=6 => last,
        7 => first.max(4),
        _ if (last + 1).is_multiple_of(8) && last - first > 8 => {
            ((first + last) / 2).next_multiple_of(8)
        }
        _ => last / 8 * 8,
    }
}

/// Outliers are known exactly: kinds x sizes. Sizes that the curve does not tell apart are counted
/// at the nearest one.
fn known(profile: &Profile, sizes: &[(u32, f64)]) -> Vec<Vec<f64>> {
    let mut known = vec![vec![0.0; sizes.len()]; profile.kinds.len()];
    for (name, gpus, jobs) in outliers(profile.name) {
        let kind = profile.kinds.iter().position(|kind| kind.name == name);
        let size = (0..sizes.len()).min_by_key(|&at| sizes[at].0.abs_diff(gpus));
        if let (Some(kind), Some(size)) = (kind, size) {
            known[kind][size] += f64::from(jobs);
        }
    }
    known
}

/// A quarter of the jobs between each two marks of the box plot, by the sizes that are usual there.
fn prior(kind: &Kind, sizes: &[(u32, f64)]) -> Vec<f64> {
    let mut weights = vec![0.0; sizes.len()];
    for marks in kind.gpus.windows(2) {
        let within = |gpus: u32| (marks[0]..=marks[1]).contains(&gpus);
        let total: f64 = sizes.iter().filter(|s| within(s.0)).map(|s| s.1).sum();
        for (weight, &(gpus, jobs)) in weights.iter_mut().zip(sizes) {
            if within(gpus) && total > 0.0 {
                *weight += 0.25 * jobs / total;
            }
        }
    }
    weights
}

fn scale<'a>(cells: impl Iterator<Item = &'a mut f64>, target: f64) {
    let cells: Vec<&mut f64> = cells.collect();
    let sum: f64 = cells.iter().map(|cell| **cell).sum();
    if sum > 0.0 {
        for cell in cells {
            *cell *= target / sum;
        }
    }
}

/// Whole jobs that add up to `jobs`: the largest remainders are rounded up.
fn whole(fitted: &[Vec<f64>], sizes: &[(u32, f64)], jobs: u32) -> Vec<Cell> {
    let total: f64 = fitted.iter().flatten().sum();
    let mut cells = Vec::new();
    for (kind, row) in fitted.iter().enumerate() {
        for (at, cell) in row.iter().enumerate() {
            cells.push((cell * f64::from(jobs) / total, kind, sizes[at].0));
        }
    }
    let floor: f64 = cells.iter().map(|cell| cell.0.floor()).sum();
    cells.sort_by(|a, b| b.0.fract().total_cmp(&a.0.fract()));
    let short = (f64::from(jobs) - floor) as usize;
    let mut table: Vec<Cell> = cells
        .iter()
        .enumerate()
        .map(|(at, &(exact, kind, gpus))| Cell {
            kind,
            gpus,
            jobs: exact.floor() as u32 + u32::from(at < short),
        })
        .filter(|cell| cell.jobs > 0)
        .collect();
    table.sort_by_key(|cell| (cell.kind, cell.gpus));
    table
}

#[cfg(test)]
mod tests {
    use super::super::profile::Cluster;
    use super::*;

    #[test]
    fn the_table_holds_all_jobs_and_keeps_what_is_published() {
        for cluster in [Cluster::Seren, Cluster::Kalos] {
            let profile = cluster.profile();
            let table = table(profile, profile.jobs);
            assert_eq!(
                table.iter().map(|cell| cell.jobs).sum::<u32>(),
                profile.jobs
            );
            for (at, kind) in profile.kinds.iter().enumerate() {
                let of_kind = table.iter().filter(|cell| cell.kind == at);
                let share =
                    of_kind.map(|cell| f64::from(cell.jobs)).sum::<f64>() / f64::from(profile.jobs);
                assert!((share - kind.share).abs() < 0.02, "{} {share}", kind.name);
            }
            let ones = table.iter().filter(|cell| cell.gpus == 1);
            let share =
                ones.map(|cell| f64::from(cell.jobs)).sum::<f64>() / f64::from(profile.jobs);
            let published = curve("jobs_vs_gpus", profile.name, "all")[0].share;
            assert!((share - published).abs() < 0.01, "{share} {published}");
        }
    }
}
