//! The discrete-event loop: jobs arrive, start, end; nodes fail and come back. It knows no queue
//! discipline; after each moment's events it asks the discipline which waiting jobs start.
#![expect(
    clippy::indexing_slicing,
    reason = "job ids come from the task table and slots from the slot table itself"
)]

use std::collections::BTreeSet;

use crate::cluster::place::choose;
use crate::cluster::{Demand, Free, Part, Placement, Shape};
use crate::failure::Failures;
use crate::queue::Discipline;
use crate::scenario::{Scenario, Until};
use crate::task::Task;
use crate::units::{JobId, Millis};

/// What became of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It never started, for the run ended first.
    #[default]
    Waiting,
    /// It still ran when the run ended.
    Running,
    /// It ended.
    Done,
    /// It asked for more than the cluster has.
    TooLarge,
    /// It was given up after too many failures.
    GivenUp,
}

/// One job's part in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What became of it.
    pub fate: Fate,
    /// When it first started.
    pub start: Millis,
    /// When it ended, or the run did.
    pub end: Millis,
    /// Time for which it held GPUs, over all its attempts.
    pub held: Millis,
    /// Racks it touched, in its last attempt; 0 if it never started.
    pub racks: u32,
    /// Times it was started again after a failure.
    pub restarts: u32,
}

impl Outcome {
    /// Whether it ever started.
    #[must_use]
    pub fn started(&self) -> bool {
        self.racks > 0
    }
}

/// A running job.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Which.
    pub job: JobId,
    /// Where.
    pub parts: Vec<Part>,
    /// Since when, in this attempt.
    pub since: Millis,
    /// Until when.
    pub end: Millis,
}

/// Failures and repairs of one node, on average, in which an idle cluster has not started a waiting job.
const FRUITLESS_PER_NODE: u64 = 1000;

/// The state of a run, as disciplines see it.
pub struct Engine<'a> {
    /// What is asked for, by job.
    pub tasks: &'a [Task],
    /// What is free.
    pub free: Free,
    /// How a place is chosen.
    pub placement: Placement,
    /// The present.
    pub now: Millis,
    /// Whether GPUs became free, or vanished, since the discipline was asked last.
    pub released: bool,
    /// Whether a node failed since then, so that what was promised may not hold.
    pub broken: bool,
    /// Running jobs by slot; the slots of ended ones are used again.
    pub slots: Vec<Slot>,
    /// Ends of running jobs in order.
    pub ends: BTreeSet<(Millis, u32)>,
    /// Failing and repaired nodes.
    pub failures: Failures,
    outcomes: Vec<Outcome>,
    /// Failures and repairs since a job last came or started.
    fruitless: u64,
    ticks: Ticks<'a>,
    unused: Vec<u32>,
    scratch: Vec<Part>,
    other: Vec<Part>,
}

/// Who hears how many jobs have ended, a few hundred at a time.
struct Ticks<'a> {
    hears: &'a dyn Fn(u64),
    ended: u64,
}

impl Ticks<'_> {
    fn job(&mut self) {
        self.ended += 1;
        if self.ended.is_multiple_of(256) {
            (self.hears)(256);
        }
    }
}

/// Runs all tasks on a cluster. Same input, same output, whatever else runs. `ticked` hears how many
/// more jobs have ended.
#[must_use]
pub fn run(
    tasks: &[Task],
    scenario: &Scenario,
    shape: Shape,
    ticked: &dyn Fn(u64),
) -> Vec<Outcome> {
    let mut engine = Engine {
        tasks,
        free: Free::all(shape),
        placement: scenario.placement,
        now: Millis(0),
        released: false,
        broken: false,
        slots: Vec::new(),
        ends: BTreeSet::new(),
        failures: Failures::new(scenario, shape),
        outcomes: vec![Outcome::default(); tasks.len()],
        fruitless: 0,
        ticks: Ticks {
            hears: ticked,
            ended: 0,
        },
        unused: Vec::new(),
        scratch: Vec::new(),
        other: Vec::new(),
    };
    let mut discipline = Discipline::new(scenario, tasks, shape);
    engine.drive(&mut discipline, scenario.until);
    engine.outcomes
}

impl Engine<'_> {
    fn drive(&mut self, discipline: &mut Discipline, until: Until) {
        let empty = Free::all(self.free.shape());
        let last = match until {
            Until::Drained => Millis::NEVER,
            Until::LastSubmit => self.tasks.last().map_or(Millis(0), |task| task.submit),
        };
        let mut arriving = 0;
        loop {
            let arrival = self.tasks.get(arriving).map(|task| task.submit);
            let busy = arrival.is_some() || !self.ends.is_empty() || discipline.waiting() > 0;
            let end = self.ends.first().map(|&(at, _)| at);
            let node = self.failures.next().filter(|_| busy);
            let planned = discipline.next_start();
            let next = [arrival, end, node, planned].into_iter().flatten().min();
            let Some(next) = next.filter(|&at| busy && at <= last) else {
                break;
            };
            self.now = next;
            self.finish_due();
            self.fail_due(discipline);
            while let Some(task) = self.tasks.get(arriving).filter(|task| task.submit <= next) {
                let job = JobId(arriving as u32);
                if empty.fits(task.demand) {
                    discipline.arrive(job);
                } else {
                    self.outcomes[arriving].fate = Fate::TooLarge;
                }
                arriving += 1;
                self.fruitless = 0;
            }
            discipline.schedule(self);
            self.released = false;
            self.broken = false;
            let all_came = arriving == self.tasks.len();
            if all_came && discipline.waiting() > 0 && self.hopeless() {
                let seen = self.outcomes.iter_mut().take(arriving);
                seen.filter(|outcome| outcome.fate == Fate::Waiting)
                    .for_each(|outcome| outcome.fate = Fate::GivenUp);
                break;
            }
        }
        self.close(last);
    }

    /// Whether nodes fail so often that those a waiting job needs are never up together.
    fn hopeless(&self) -> bool {
        let tries = u64::from(self.free.shape().nodes) * FRUITLESS_PER_NODE;
        self.fruitless > tries && self.ends.is_empty()
    }

    /// Ends what still runs when the run does.
    fn close(&mut self, last: Millis) {
        for &(_, slot) in &self.ends {
            let slot = &self.slots[slot as usize];
            let outcome = &mut self.outcomes[slot.job.index()];
            outcome.fate = Fate::Running;
            outcome.end = last;
            outcome.held += last - slot.since;
        }
    }

    fn finish_due(&mut self) {
        while let Some(&(at, slot)) = self.ends.first() {
            if at > self.now {
                break;
            }
            let job = self.stop(slot);
            self.outcomes[job.index()].fate = Fate::Done;
            self.ticks.job();
        }
    }

    /// Takes a job off its GPUs and says which it was.
    fn stop(&mut self, number: u32) -> JobId {
        let slot = &mut self.slots[number as usize];
        self.ends.remove(&(slot.end, number));
        for part in slot.parts.drain(..) {
            self.free.give(part);
        }
        let outcome = &mut self.outcomes[slot.job.index()];
        outcome.end = self.now;
        outcome.held += self.now - slot.since;
        self.released = true;
        self.unused.push(number);
        slot.job
    }

    fn fail_due(&mut self, discipline: &mut Discipline) {
        while let Some(event) = self.failures.due(self.now) {
            self.released = true;
            self.fruitless += 1;
            let node = event.node;
            let gpus = self.free.shape().gpus_per_node;
            if event.repaired {
                self.free.give(Part { node, gpus });
                continue;
            }
            self.broken = true;
            let hit: Vec<(u32, Millis)> = self
                .ends
                .iter()
                .map(|&(_, slot)| (slot, &self.slots[slot as usize]))
                .filter(|(_, running)| running.parts.iter().any(|part| part.node == node))
                .map(|(slot, running)| (slot, self.now - running.since))
                .collect();
            for (slot, ran) in hit {
                let job = self.stop(slot);
                let outcome = &mut self.outcomes[job.index()];
                if self.failures.save(job, ran, outcome.restarts) {
                    outcome.restarts += 1;
                    discipline.arrive(job);
                } else {
                    outcome.fate = Fate::GivenUp;
                }
            }
            self.free.take(Part { node, gpus });
        }
    }

    /// Where a demand would go now, and on how many racks.
    pub fn place(&mut self, demand: Demand) -> Option<(u32, &[Part])> {
        let racks = choose(&self.free, demand, self.placement, &mut self.scratch)?;
        Some((racks, &self.scratch))
    }

    /// How long a job would hold its GPUs if it started now on so many racks.
    pub fn time(&mut self, job: JobId, racks: u32) -> Millis {
        let (free, placement, other) = (&self.free, self.placement, &mut self.other);
        let inter =
            |before: Demand| choose(free, before, placement, other).is_none_or(|racks| racks > 1);
        let whole = self.tasks[job.index()].times.on(racks, inter);
        Millis((whole - self.failures.saved(job)).0.max(1))
    }

    /// Starts a job where the placement wants it; says whether it could.
    pub fn try_start(&mut self, job: JobId) -> bool {
        let demand = self.tasks[job.index()].demand;
        let Some((racks, _)) = self.place(demand) else {
            return false;
        };
        let time = self.time(job, racks);
        let parts = std::mem::take(&mut self.scratch);
        self.start(job, &parts, racks, time);
        self.scratch = parts;
        true
    }

    /// Starts a job here, on so many racks, for so long.
    pub fn start(&mut self, job: JobId, parts: &[Part], racks: u32, time: Millis) {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                job,
                parts: Vec::new(),
                since: self.now,
                end: self.now,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[number as usize];
        slot.job = job;
        slot.since = self.now;
        slot.end = self.now + time;
        slot.parts.extend_from_slice(parts);
        self.ends.insert((slot.end, number));
        self.fruitless = 0;
        let outcome = &mut self.outcomes[job.index()];
        if outcome.racks == 0 {
            outcome.start = self.now;
        }
        outcome.racks = racks;
        for &part in parts {
            self.free.take(part);
        }
    }
}
