//! Queue disciplines: which waiting jobs start at a moment. One file each.

mod conservative;
mod easy;
mod greedy;

use std::collections::BTreeSet;

use crate::cluster::Shape;
use crate::engine::Engine;
use crate::scenario::{Queue, Scenario};
use crate::task::Task;
use crate::units::{JobId, Millis};

/// The waiting jobs and the rule by which they start.
pub enum Discipline {
    /// Strictly in order.
    Fifo(BTreeSet<JobId>),
    /// The first that fits.
    Greedy(greedy::Greedy),
    /// EASY backfill.
    Easy(easy::Easy),
    /// Conservative backfill.
    Conservative(conservative::Conservative),
}

impl Discipline {
    /// An empty queue.
    #[must_use]
    pub fn new(scenario: &Scenario, tasks: &[Task], shape: Shape) -> Self {
        match scenario.queue {
            Queue::Fifo => Self::Fifo(BTreeSet::new()),
            Queue::Greedy => Self::Greedy(greedy::Greedy::new(tasks)),
            Queue::Easy => Self::Easy(easy::Easy::new(tasks, scenario.backfill_depth)),
            Queue::Conservative => Self::Conservative(conservative::Conservative::new(shape)),
        }
    }

    /// How many jobs wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match self {
            Self::Fifo(waiting) => waiting.len(),
            Self::Greedy(greedy) => greedy.waiting(),
            Self::Easy(easy) => easy.waiting(),
            Self::Conservative(conservative) => conservative.waiting(),
        }
    }

    /// When a job starts that has a reservation, if the discipline makes any.
    #[must_use]
    pub fn next_start(&self) -> Option<Millis> {
        match self {
            Self::Conservative(conservative) => conservative.next_start(),
            _ => None,
        }
    }

    /// A job arrives, or comes back after a failure.
    pub fn arrive(&mut self, job: JobId) {
        match self {
            Self::Fifo(waiting) => {
                waiting.insert(job);
            }
            Self::Greedy(greedy) => greedy.arrive(job),
            Self::Easy(easy) => easy.arrive(job),
            Self::Conservative(conservative) => conservative.arrive(job),
        }
    }

    /// Starts what may start now.
    pub fn schedule(&mut self, engine: &mut Engine<'_>) {
        match self {
            Self::Fifo(waiting) => fifo(waiting, engine),
            Self::Greedy(greedy) => greedy.schedule(engine),
            Self::Easy(easy) => easy.schedule(engine),
            Self::Conservative(conservative) => conservative.schedule(engine),
        }
    }
}

fn fifo(waiting: &mut BTreeSet<JobId>, engine: &mut Engine<'_>) {
    while let Some(&head) = waiting.first() {
        if !engine.try_start(head) {
            break;
        }
        waiting.pop_first();
    }
}
