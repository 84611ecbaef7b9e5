//! Scale-in: turns the trace's jobs into what the cluster is asked for (the paper's section 4.3).
//!
//! Eligible are jobs of more than one node. They take fewer nodes, their time grows inversely, and a
//! factor follows that depends on whether they ran in one rack or several before and after.

use rand::RngExt;
use rand_pcg::Pcg32;

use crate::cluster::{Demand, Shape};
use crate::engine::Outcome;
use crate::scenario::{
    ClassBefore, Ended, NodesFrom, Rounding, Scenario, SingleNode, SlowdownForm, Stretch,
};
use crate::trace::{Job, State, Trace};
use crate::units::Millis;

/// What is known of the class a job had before scale-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// One rack.
    Intra,
    /// Several racks.
    Inter,
    /// Known at the start: where this demand would go then.
    AtStart(Demand),
}

/// How long a job holds its GPUs, by its classes before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The class before.
    pub before: Before,
    /// From one rack, to one rack and to several.
    pub from_intra: [Millis; 2],
    /// From several racks, to one rack and to several.
    pub from_inter: [Millis; 2],
}

impl Times {
    /// The same wherever it runs.
    #[must_use]
    pub fn fixed(run: Millis) -> Self {
        Self {
            before: Before::Intra,
            from_intra: [run; 2],
            from_inter: [run; 2],
        }
    }

    /// The time on so many racks; `inter_before` answers for [`Before::AtStart`].
    pub fn on(&self, racks: u32, inter_before: impl FnOnce(Demand) -> bool) -> Millis {
        let inter = match self.before {
            Before::Intra => false,
            Before::Inter => true,
            Before::AtStart(demand) => inter_before(demand),
        };
        let [one, several] = if inter {
            self.from_inter
        } else {
            self.from_intra
        };
        if racks > 1 { several } else { one }
    }

    /// The longest it can be.
    #[must_use]
    pub fn longest(&self) -> Millis {
        let [a, b] = self.from_intra;
        let [c, d] = self.from_inter;
        match self.before {
            Before::Intra => a.max(b),
            Before::Inter => c.max(d),
            Before::AtStart(_) => a.max(b).max(c).max(d),
        }
    }
}

/// A job as the cluster sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// When it arrives.
    pub submit: Millis,
    /// What it asks for.
    pub demand: Demand,
    /// What it asked for before scale-in.
    pub demand_before: Demand,
    /// Its time before scale-in.
    pub run_before: Millis,
    /// Its time now.
    pub times: Times,
}

impl Task {
    /// More than one node before scale-in.
    #[must_use]
    pub fn eligible(&self) -> bool {
        self.demand_before.nodes() > 1
    }

    /// Whether scale-in changed it.
    #[must_use]
    pub fn shrunk(&self) -> bool {
        self.demand != self.demand_before
    }
}

/// What the cluster is asked for, in the order of the trace. `baseline` holds what happened to the
/// same jobs without scale-in; without it the class before is taken from ideal placement.
#[must_use]
pub fn tasks(
    trace: &Trace,
    scenario: &Scenario,
    shape: Shape,
    baseline: Option<&[Outcome]>,
) -> Vec<Task> {
    let mut tasks = Vec::with_capacity(trace.jobs.len());
    for (at, job) in trace.jobs.iter().enumerate() {
        let demand_before = demand(job, scenario, shape);
        let submit = Millis((job.submit.0 as f64 / scenario.load).round() as u64);
        let mut task = Task {
            submit: if scenario.load == 1.0 {
                job.submit
            } else {
                submit
            },
            demand: demand_before,
            demand_before,
            run_before: job.run,
            times: Times::fixed(job.run),
        };
        if task.eligible() && scenario.reduction > 0.0 {
            let before = before(&task, scenario, shape, baseline.and_then(|all| all.get(at)));
            shrink(&mut task, job, scenario, before, at as u64);
        }
        tasks.push(task);
    }
    tasks
}

fn demand(job: &Job, scenario: &Scenario, shape: Shape) -> Demand {
    if scenario.nodes_from == NodesFrom::Trace && job.nodes > 1 {
        // Nodes of the trace may be larger than those simulated.
        let least = job.gpus.div_ceil(shape.gpus_per_node);
        return Demand::nodes_whole(job.nodes.max(least));
    }
    let (sub_node, last_node) = (scenario.sub_node, scenario.last_node);
    Demand::of(job.gpus, shape.gpus_per_node, sub_node, last_node)
}

fn before(task: &Task, scenario: &Scenario, shape: Shape, ran: Option<&Outcome>) -> Before {
    let class = |inter: bool| if inter { Before::Inter } else { Before::Intra };
    let ideal = class(shape.ideal_racks(task.demand_before.nodes()) > 1);
    match scenario.class_before {
        ClassBefore::Ideal => ideal,
        ClassBefore::AtStart => Before::AtStart(task.demand_before),
        ClassBefore::BaselineRun => ran
            .filter(|outcome| outcome.racks > 0)
            .map_or(ideal, |outcome| class(outcome.racks > 1)),
    }
}

/// The reduced number of nodes, at least one.
#[must_use]
pub fn reduced(nodes: u32, reduction: f64, rounding: Rounding) -> u32 {
    // 20 nodes less 45 % are 11, though 20 x 0.55 is a hair more in binary.
    let exact = (f64::from(nodes) * (1.0 - reduction) * 1e9).round() / 1e9;
    let whole = match rounding {
        Rounding::Up => exact.ceil(),
        Rounding::Down => exact.floor(),
        Rounding::Nearest => exact.round(),
    };
    (whole as u32).clamp(1, nodes)
}

fn shrink(task: &mut Task, job: &Job, scenario: &Scenario, before: Before, stream: u64) {
    let nodes = task.demand_before.nodes();
    let fewer = reduced(nodes, scenario.reduction, scenario.rounding);
    if fewer == nodes {
        return;
    }
    task.demand = Demand::nodes_whole(fewer);
    let kept = scenario.ended == Ended::AsRecorded
        && matches!(job.state, State::Failed | State::Cancelled);
    if kept {
        return;
    }
    let stretch = match scenario.stretch {
        Stretch::Actual => f64::from(nodes) / f64::from(fewer),
        Stretch::Nominal => 1.0 / (1.0 - scenario.reduction),
    };
    let mut random = Pcg32::new(scenario.seed, stream);
    let mut draw = |factor: crate::scenario::Factor| factor.at(random.random::<f64>());
    let (speedup, slowdown, same) = (
        draw(scenario.speedup),
        draw(scenario.slowdown),
        draw(scenario.same),
    );
    let slower = match scenario.slowdown_form {
        SlowdownForm::Longer => 1.0 + slowdown,
        SlowdownForm::Slower => 1.0 / (1.0 - slowdown),
    };
    let time = |factor: f64| {
        let run = (job.run.0 as f64 * stretch * factor).round() as u64;
        Millis(run.max(1))
    };
    let stays = time(1.0 / (1.0 + same));
    task.times = Times {
        before,
        from_intra: [stays, time(slower)],
        from_inter: [time(1.0 / (1.0 + speedup)), stays],
    };
    if fewer == 1 && scenario.single_node == SingleNode::Neutral {
        task.times = Times::fixed(time(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_rounded_as_asked_and_never_to_none() {
        assert_eq!(reduced(3, 0.5, Rounding::Up), 2);
        assert_eq!(reduced(3, 0.5, Rounding::Down), 1);
        assert_eq!(reduced(3, 0.5, Rounding::Nearest), 2);
        assert_eq!(reduced(2, 0.25, Rounding::Up), 2);
        assert_eq!(reduced(1, 0.99, Rounding::Down), 1);
        assert_eq!(reduced(20, 0.45, Rounding::Up), 11);
        assert_eq!(reduced(128, 0.25, Rounding::Up), 96);
    }

    fn one(gpus: u32, scenario: &Scenario, racks_before: u32) -> Task {
        let mut trace = Trace::default();
        trace.jobs.push(Job {
            submit: Millis(0),
            run: Millis(1000),
            gpus,
            nodes: 0,
            state: State::Completed,
            kind: 0,
        });
        let outcome = Outcome {
            racks: racks_before,
            ..Outcome::default()
        };
        let shape = scenario.shape().unwrap();
        tasks(&trace, scenario, shape, Some(&[outcome])).remove(0)
    }

    #[test]
    fn nodes_of_the_trace_hold_all_its_gpus() {
        let nodes = |gpus, nodes, gpus_per_node| {
            let scenario = Scenario {
                racks: Some(72.0),
                nodes_from: NodesFrom::Trace,
                gpus_per_node,
                ..Scenario::default()
            };
            let mut trace = Trace::default();
            trace.jobs.push(Job {
                submit: Millis(0),
                run: Millis(1000),
                gpus,
                nodes,
                state: State::Completed,
                kind: 0,
            });
            let shape = scenario.shape().unwrap();
            tasks(&trace, &scenario, shape, None)[0].demand.nodes()
        };
        assert_eq!(nodes(16, 2, 8), 2);
        assert_eq!(nodes(16, 4, 8), 4);
        assert_eq!(nodes(16, 2, 4), 4);
        assert_eq!(nodes(16, 0, 8), 2);
    }

    #[test]
    fn time_grows_inversely_and_then_by_the_class_change() {
        let scenario = Scenario {
            racks: Some(72.0),
            reduction: 0.5,
            speedup: "25%".parse().unwrap(),
            slowdown: "10%".parse().unwrap(),
            same: "0%".parse().unwrap(),
            ..Scenario::default()
        };
        let inter = one(64, &scenario, 2);
        assert_eq!(inter.demand.whole_nodes, 4);
        let on = |task: &Task, racks| task.times.on(racks, |_| false).0;
        assert_eq!((on(&inter, 1), on(&inter, 2)), (1600, 2000));
        let intra = one(32, &scenario, 1);
        assert_eq!((on(&intra, 1), on(&intra, 2)), (2000, 2200));
        let single = one(8, &scenario, 1);
        assert!(!single.eligible() && !single.shrunk());
        assert_eq!(on(&single, 1), 1000);
    }
}
