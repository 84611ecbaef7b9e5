//! The published curves of AcmeTrace (Hu et al., NSDI 2024), compiled in; `fixtures/acme/README.md`
//! tells where each file comes from (CC-BY-4.0).

/// A step of a cumulative curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where, in the curve's unit.
    pub x: f64,
    /// Share of all up to and including here, 0 to 1.
    pub share: f64,
}

/// 319 real Kalos jobs (completed, no evaluations) in our own format; their run times hold the queue too.
pub static KALOS_319: &str = include_str!("../../../../fixtures/acme/kalos_completed_319.csv");
static CDFS: &str = include_str!("../../../../fixtures/acme/acme_cdfs.csv");
static OUTLIERS: &str = include_str!("../../../../fixtures/acme/acme_gpu_outlier_counts.csv");

/// A curve by name, cluster and type, such as `duration_s`, `seren`, `Eval`.
#[must_use]
pub fn curve(name: &str, cluster: &str, kind: &str) -> Vec<Point> {
    rows(CDFS)
        .filter_map(|row| match row.as_slice() {
            [n, c, k, x, percent] if (*n, *c, *k) == (name, cluster, kind) => Some(Point {
                x: x.parse().ok()?,
                share: percent.parse::<f64>().ok()? / 100.0,
            }),
            _ => None,
        })
        .collect()
}

/// Exact counts of jobs outside the whiskers of the size plots: type, GPUs, jobs.
#[must_use]
pub fn outliers(cluster: &str) -> Vec<(&'static str, u32, u32)> {
    rows(OUTLIERS)
        .filter_map(|row| match row.as_slice() {
            [c, kind, gpus, jobs] if *c == cluster => {
                Some((*kind, gpus.parse().ok()?, jobs.parse().ok()?))
            }
            _ => None,
        })
        .collect()
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().skip(1).map(|line| line.split(',').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_curves_are_there_and_rise_to_one() {
        for (cluster, kind) in [("seren", "Eval"), ("seren", "MLLM"), ("kalos", "Pretrain")] {
            let curve = curve("duration_s", cluster, kind);
            assert_eq!(curve.len(), 22);
            assert!(curve.is_sorted_by(|a, b| a.x < b.x && a.share <= b.share));
            assert_eq!(curve[21].share, 1.0);
        }
        let total: u32 = ["seren", "kalos"]
            .iter()
            .flat_map(|cluster| outliers(cluster))
            .map(|(_, _, jobs)| jobs)
            .sum();
        assert_eq!(total, 10_618);
    }
}
