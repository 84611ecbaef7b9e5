//! The configurations of the paper's Figure 12: Seren on 72 racks with nodes of 4 and 8 GPUs, packed and
//! spread, and on 32 racks against 72; each at two reductions and three speed-ups.

use serde::Serialize;

use crate::cluster::Placement;
use crate::metrics::Metrics;
use crate::scenario::{Factor, Scenario};
use crate::simulate;
use crate::trace::Trace;

/// Reductions of the figure.
pub const REDUCTIONS: [f64; 2] = [0.25, 0.5];
/// Speed-ups of jobs that come from several racks into one: the range's ends and the 50 % of the text.
pub const SPEEDUPS: [f64; 3] = [0.0, 0.5, 1.37];

/// One configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Racks with scale-in; the baseline has 72.
    pub racks: f64,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// How a place is chosen.
    pub placement: Placement,
    /// Share of nodes given up.
    pub reduction: f64,
    /// Speed-up.
    pub speedup: f64,
    /// Before scale-in, on 72 racks.
    pub before: Metrics,
    /// With it.
    pub after: Metrics,
}

/// The clusters: racks, GPUs of a node, placement.
const CLUSTERS: [(f64, u32, Placement); 5] = [
    (72.0, 8, Placement::Pack),
    (72.0, 8, Placement::Spread),
    (72.0, 4, Placement::Pack),
    (72.0, 4, Placement::Spread),
    (32.0, 8, Placement::Pack),
];

/// Steps of [`run`], for a progress bar.
pub const STEPS: usize = CLUSTERS.len() * REDUCTIONS.len() * SPEEDUPS.len();

/// Runs all of them.
///
/// # Errors
/// If one cannot be simulated, in words.
pub fn run(
    seren: &Trace,
    base: &Scenario,
    ticked: &(impl Fn() + Sync),
) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::with_capacity(STEPS);
    for (racks, gpus_per_node, placement) in CLUSTERS {
        let full = Scenario {
            gpus_per_node,
            placement,
            ..base.clone()
        };
        let before = simulate::run(seren, &full, None, &|_| {})?;
        let scenarios: Vec<Scenario> = REDUCTIONS
            .iter()
            .flat_map(|&reduction| SPEEDUPS.map(|speedup| (reduction, speedup)))
            .map(|(reduction, speedup)| Scenario {
                racks: Some(racks),
                reduction,
                speedup: Factor::fixed(speedup),
                ..full.clone()
            })
            .collect();
        let keep = |run: simulate::Run| {
            ticked();
            Cell {
                racks,
                gpus_per_node,
                placement,
                reduction: run.scenario.reduction,
                speedup: run.scenario.speedup.low,
                before: before.metrics.clone(),
                after: run.metrics,
            }
        };
        let outcomes = Some(before.outcomes.as_slice());
        cells.extend(simulate::run_all(
            seren,
            &scenarios,
            outcomes,
            keep,
            &|_| {},
        )?);
    }
    Ok(cells)
}
