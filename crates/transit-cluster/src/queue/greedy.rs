//! Greedy skip: of all waiting jobs the earliest that fits starts, until none fits. Jobs of one demand
//! fit alike, so the queue is kept by demand and a step costs as much as there are demands.
#![expect(clippy::indexing_slicing, reason = "job ids come from the task table")]

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Demand;
use crate::engine::Engine;
use crate::task::Task;
use crate::units::JobId;

/// Waiting jobs by demand.
pub struct Greedy {
    demands: Vec<Demand>,
    /// The place of a job's demand.
    class: Vec<u32>,
    queues: Vec<BTreeSet<JobId>>,
    waiting: usize,
}

/// The distinct demands, and the place of each job's among them.
pub(super) fn classes(tasks: &[Task]) -> (Vec<Demand>, Vec<u32>) {
    let mut places: BTreeMap<Demand, u32> = BTreeMap::new();
    let mut demands = Vec::new();
    let class = tasks
        .iter()
        .map(|task| {
            *places.entry(task.demand).or_insert_with(|| {
                demands.push(task.demand);
                (demands.len() - 1) as u32
            })
        })
        .collect();
    (demands, class)
}

impl Greedy {
    pub(super) fn new(tasks: &[Task]) -> Self {
        let (demands, class) = classes(tasks);
        Self {
            queues: vec![BTreeSet::new(); demands.len()],
            demands,
            class,
            waiting: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn arrive(&mut self, job: JobId) {
        self.queues[self.class[job.index()] as usize].insert(job);
        self.waiting += 1;
    }

    pub(super) fn schedule(&mut self, engine: &mut Engine<'_>) {
        while let Some((job, class)) = self.first_that_fits(engine) {
            if !engine.try_start(job) {
                break;
            }
            self.queues[class].remove(&job);
            self.waiting -= 1;
        }
    }

    fn first_that_fits(&self, engine: &Engine<'_>) -> Option<(JobId, usize)> {
        let heads = self.queues.iter().enumerate();
        heads
            .filter_map(|(class, queue)| Some((*queue.first()?, class)))
            .filter(|&(_, class)| engine.free.fits(self.demands[class]))
            .min()
    }
}
