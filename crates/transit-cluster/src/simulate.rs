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

/// Runs that [`run`] makes of a scenario: one, or two if it needs a baseline and is given none.
#[must_use]
pub fn runs(scenario: &Scenario, given: bool) -> u64 {
    1 + u64::from(wants_baseline(scenario) && !given)
}

fn wants_baseline(scenario: &Scenario) -> bool {
    scenario.reduction > 0.0 && scenario.class_before == ClassBefore::BaselineRun
}

/// Runs a scenario. `baseline` tells where the same jobs ran without scale-in; where that is wanted
/// ([`ClassBefore::BaselineRun`]) and not given, the same cluster without scale-in is run first.
/// `ticked` hears how many more jobs have ended.
///
/// # Errors
/// If the scenario cannot be simulated, in words.
pub fn run(
    trace: &Trace,
    scenario: &Scenario,
    baseline: Option<&[Outcome]>,
    ticked: &dyn Fn(u64),
) -> Result<Run, String> {
    scenario.check()?;
    let shape = scenario.shape().map_err(|error| error.to_string())?;
    let own = if wants_baseline(scenario) && baseline.is_none() {
        Some(run(trace, &scenario.baseline(), None, ticked)?.outcomes)
    } else {
        None
    };
    let tasks = task::tasks(trace, scenario, shape, baseline.or(own.as_deref()));
    let outcomes = engine::run(&tasks, scenario, shape, ticked);
    let metrics = metrics::summarise(&tasks, &outcomes, scenario, shape);
    Ok(Run {
        scenario: scenario.clone(),
        shape,
        tasks,
        outcomes,
        metrics,
    })
}

/// Runs scenarios on all cores; the answers keep the order of the questions. `ticked` hears
/// how many more jobs have ended.
///
/// # Errors
/// The first scenario that cannot be simulated.
pub fn run_all<T: Send>(
    trace: &Trace,
    scenarios: &[Scenario],
    baseline: Option<&[Outcome]>,
    keep: impl Fn(Run) -> T + Sync,
    ticked: &(dyn Fn(u64) + Sync),
) -> Result<Vec<T>, String> {
    let one = |scenario| run(trace, scenario, baseline, ticked).map(&keep);
    scenarios.par_iter().map(one).collect()
}
