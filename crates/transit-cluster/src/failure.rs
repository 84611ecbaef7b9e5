//! Nodes that fail: each node's times of failure come from its own seeded stream, so that they are the
//! same under every queue discipline and scale-in.

use std::collections::{BTreeSet, HashMap};

use rand::RngExt;
use rand_pcg::Pcg32;

use crate::cluster::Shape;
use crate::scenario::Scenario;
use crate::units::NodeId;
use crate::units::{JobId, Millis};

/// A node goes or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// Which.
    pub node: NodeId,
    /// It is back; otherwise it failed.
    pub repaired: bool,
}

/// When nodes fail, and what jobs had saved when theirs did.
pub struct Failures {
    mean_ms: f64,
    repair: Millis,
    checkpoint: Millis,
    max_restarts: u32,
    events: BTreeSet<(Millis, NodeId, bool)>,
    streams: Vec<Pcg32>,
    saved: HashMap<JobId, Millis>,
}

impl Failures {
    /// The first failure of every node.
    #[must_use]
    pub fn new(scenario: &Scenario, shape: Shape) -> Self {
        let hours = |hours: f64| Millis::from_seconds(hours * 3600.0);
        let mut failures = Self {
            mean_ms: scenario.mtbf_hours * 3_600_000.0,
            repair: hours(scenario.repair_hours),
            checkpoint: hours(scenario.checkpoint_hours),
            max_restarts: scenario.max_restarts,
            events: BTreeSet::new(),
            streams: Vec::new(),
            saved: HashMap::new(),
        };
        if scenario.mtbf_hours > 0.0 {
            // Streams of jobs are numbered from 0 on.
            let stream = |node: u32| u64::MAX - u64::from(node);
            failures.streams = (0..shape.nodes)
                .map(|node| Pcg32::new(scenario.seed, stream(node)))
                .collect();
            for node in 0..shape.nodes {
                failures.plan(NodeId(node), Millis(0));
            }
        }
        failures
    }

    fn plan(&mut self, node: NodeId, after: Millis) {
        if let Some(stream) = self.streams.get_mut(node.0 as usize) {
            // 1 - u is never 0.
            let up = -(1.0 - stream.random::<f64>()).ln() * self.mean_ms;
            self.events
                .insert((after + Millis(up as u64 + 1), node, false));
        }
    }

    /// When something happens next.
    #[must_use]
    pub fn next(&self) -> Option<Millis> {
        self.events.first().map(|&(at, _, _)| at)
    }

    /// What happens now, one node at a time.
    pub fn due(&mut self, now: Millis) -> Option<NodeEvent> {
        let &(at, node, repaired) = self.events.first().filter(|event| event.0 <= now)?;
        self.events.remove(&(at, node, repaired));
        if repaired {
            self.plan(node, at);
        } else {
            self.events.insert((at + self.repair, node, true));
        }
        Some(NodeEvent { node, repaired })
    }

    /// Repairs under way, in order.
    pub fn repairs(&self) -> impl Iterator<Item = (Millis, NodeId)> {
        let repairs = self.events.iter().filter(|event| event.2);
        repairs.map(|&(at, node, _)| (at, node))
    }

    /// Keeps what a job reached by its last checkpoint; false if it has failed too often to go on.
    pub fn save(&mut self, job: JobId, ran: Millis, restarts: u32) -> bool {
        if restarts >= self.max_restarts {
            return false;
        }
        if let Some(whole) = ran.0.checked_div(self.checkpoint.0) {
            *self.saved.entry(job).or_default() += Millis(whole * self.checkpoint.0);
        }
        true
    }

    /// What a job need not do again.
    #[must_use]
    pub fn saved(&self, job: JobId) -> Millis {
        self.saved.get(&job).copied().unwrap_or_default()
    }
}
