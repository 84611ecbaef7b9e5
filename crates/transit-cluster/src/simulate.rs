//! A whole run: the trace as the cluster is asked for it, what became of each job, and the numbers.

use rayon::prelude::*;

use crate::cluster::Shape;
use crate::engine::{self, Outcome};
use crate::metrics::{self, Metrics};
use crate::scenario::{ClassBefore, Scenario};
use crate::task::{self, Task};
use crate::trace::Trace;

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it was.
    pub scenario: Scenario,
    /// The cluster.
    pub shape: Shape,
    /// What was asked for, by job.
    pub tasks: Vec<Task>,
    /// What became of it, by job.
    pub outcomes: Vec<Outcome>,
    /// What it amounts to.
    pub metrics: Metrics,
}

/// Runs a scenario. `baseline` tells where the same jobs ran without scale-in; where that is wanted
/// ([`ClassBefore::BaselineRun`]) and not given, the same cluster without scale-in is run first.
///
/// # Errors
/// If the scenario cannot be simulated, in words.
pub fn run(
    trace: &Trace,
    scenario: &Scenario,
    baseline: Option<&[Outcome]>,
) -> Result<Run, String> {
    scenario.check()?;
    let shape = scenario.shape().map_err(|error| error.to_string())?;
    let wants = scenario.reduction > 0.0 && scenario.class_before == ClassBefore::BaselineRun;
    let own = match baseline {
        None if wants => Some(run(trace, &scenario.baseline(), None)?.outcomes),
        _ => None,
    };
    let tasks = task::tasks(trace, scenario, shape, baseline.or(own.as_deref()));
    let outcomes = engine::run(&tasks, scenario, shape);
    let metrics = metrics::summarise(&tasks, &outcomes, scenario, shape);
    Ok(Run {
        scenario: scenario.clone(),
        shape,
        tasks,
        outcomes,
        metrics,
    })
}

/// Runs scenarios on all cores; the answers keep the order of the questions. `ticked` is called
/// after each.
///
/// # Errors
/// The first scenario that cannot be simulated.
pub fn run_all<T: Send>(
    trace: &Trace,
    scenarios: &[Scenario],
    baseline: Option<&[Outcome]>,
    keep: impl Fn(Run) -> T + Sync,
    ticked: impl Fn() + Sync,
) -> Result<Vec<T>, String> {
    scenarios
        .par_iter()
        .map(|scenario| {
            let finished = run(trace, scenario, baseline).map(&keep);
            ticked();
            finished
        })
        .collect()
}
