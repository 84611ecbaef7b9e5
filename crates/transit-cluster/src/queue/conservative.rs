//! Conservative backfill: every job gets a reservation, on named nodes, when it arrives: the earliest
//! that leaves all earlier reservations alone. Ends are known exactly, so a reservation stands until it
//! is due; after a node failed all are made anew, in order.
//!
//! The future is kept per node, so an arrival costs (moments ahead) x (nodes): right for queues of
//! hundreds, slow for backlogs of many thousands.
#![expect(
    clippy::indexing_slicing,
    reason = "moments are found by search in their own table; job ids come from the task table"
)]

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::place::choose;
use crate::cluster::{Demand, Free, Part, Shape};
use crate::engine::Engine;
use crate::units::{JobId, Millis};

/// From when on how many GPUs of each node are free.
struct Moment {
    from: Millis,
    nodes: Vec<u8>,
}

/// A job's reserved nodes, and for how long.
struct Reserved {
    parts: Vec<Part>,
    racks: u32,
    time: Millis,
}

/// Reservations in order of their start.
pub struct Conservative {
    shape: Shape,
    future: Vec<Moment>,
    arrived: BTreeSet<JobId>,
    planned: BTreeMap<(Millis, JobId), Reserved>,
}

impl Conservative {
    pub(super) fn new(shape: Shape) -> Self {
        let nodes = Free::all(shape).nodes().to_vec();
        Self {
            shape,
            future: vec![Moment {
                from: Millis(0),
                nodes,
            }],
            arrived: BTreeSet::new(),
            planned: BTreeMap::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.arrived.len() + self.planned.len()
    }

    pub(super) fn next_start(&self) -> Option<Millis> {
        self.planned.keys().next().map(|&(at, _)| at)
    }

    pub(super) fn arrive(&mut self, job: JobId) {
        self.arrived.insert(job);
    }

    pub(super) fn schedule(&mut self, engine: &mut Engine<'_>) {
        if engine.broken {
            self.start_over(engine);
        }
        self.forget_past(engine.now);
        while let Some(job) = self.arrived.pop_first() {
            self.reserve(engine, job);
        }
        while let Some(entry) = self.planned.first_entry() {
            let (at, job) = *entry.key();
            if at > engine.now {
                break;
            }
            let reserved = entry.remove();
            engine.start(job, &reserved.parts, reserved.racks, reserved.time);
        }
    }

    /// Drops all reservations and takes the future from what runs.
    fn start_over(&mut self, engine: &Engine<'_>) {
        let planned = std::mem::take(&mut self.planned);
        self.arrived.extend(planned.into_keys().map(|(_, job)| job));
        self.future = vec![Moment {
            from: engine.now,
            nodes: engine.free.nodes().to_vec(),
        }];
        let gpus = self.shape.gpus_per_node;
        for &(end, slot) in &engine.ends {
            for &part in &engine.slots[slot as usize].parts {
                self.give_from(end, part);
            }
        }
        for (back, node) in engine.failures.repairs() {
            self.give_from(back, Part { node, gpus });
        }
    }

    fn give_from(&mut self, from: Millis, part: Part) {
        let first = self.split(from);
        for moment in &mut self.future[first..] {
            moment.nodes[part.node.0 as usize] += part.gpus as u8;
        }
    }

    /// The moment that begins exactly here, made if need be.
    fn split(&mut self, from: Millis) -> usize {
        match self
            .future
            .binary_search_by_key(&from, |moment| moment.from)
        {
            Ok(at) => at,
            Err(at) => {
                let nodes = self.future[at - 1].nodes.clone();
                self.future.insert(at, Moment { from, nodes });
                at
            }
        }
    }

    fn forget_past(&mut self, now: Millis) {
        let current = self.future.partition_point(|moment| moment.from <= now);
        self.future.drain(..current.saturating_sub(1));
        self.future[0].from = self.future[0].from.max(now);
    }

    fn reserve(&mut self, engine: &mut Engine<'_>, job: JobId) {
        let task = engine.tasks[job.index()];
        let longest = Millis((task.times.longest() - engine.failures.saved(job)).0.max(1));
        let mut parts = Vec::new();
        for first in 0..self.future.len() {
            let from = self.future[first].from;
            let Some(nodes) = self.free_throughout(first, from + longest, task.demand) else {
                continue;
            };
            let free = Free::from_nodes(self.shape, nodes);
            let Some(racks) = choose(&free, task.demand, engine.placement, &mut parts) else {
                continue;
            };
            let time = engine.time(job, racks);
            let (first, last) = (self.split(from), self.split(from + time));
            for moment in &mut self.future[first..last] {
                for part in &parts {
                    moment.nodes[part.node.0 as usize] -= part.gpus as u8;
                }
            }
            self.planned
                .insert((from, job), Reserved { parts, racks, time });
            return;
        }
    }

    /// What is free on each node from a moment up to a time, if the demand fits there.
    fn free_throughout(&self, first: usize, until: Millis, demand: Demand) -> Option<Vec<u8>> {
        let mut nodes = self.future[first].nodes.clone();
        if !fits(&nodes, demand, self.shape) {
            return None;
        }
        for moment in &self.future[first + 1..] {
            if moment.from >= until {
                break;
            }
            for (least, &now) in nodes.iter_mut().zip(&moment.nodes) {
                *least = (*least).min(now);
            }
            if !fits(&nodes, demand, self.shape) {
                return None;
            }
        }
        Some(nodes)
    }
}

fn fits(nodes: &[u8], demand: Demand, shape: Shape) -> bool {
    let whole = nodes
        .iter()
        .filter(|&&free| u32::from(free) == shape.gpus_per_node)
        .count();
    if whole < demand.whole_nodes as usize {
        return false;
    }
    let rest = nodes
        .iter()
        .filter(|&&free| u32::from(free) >= demand.rest_gpus)
        .count();
    demand.rest_gpus == 0 || rest > demand.whole_nodes as usize
}
