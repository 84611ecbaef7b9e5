//! Which GPUs are free: per node, and summed per rack so that a question about the whole cluster
//! costs a walk over racks and not over nodes.
#![expect(
    clippy::indexing_slicing,
    reason = "tables are sized by the shape, and every node and level asked for comes from it"
)]

use super::{Demand, Shape};
use crate::units::NodeId;

/// Some GPUs of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where.
    pub node: NodeId,
    /// How many.
    pub gpus: u32,
}

/// Free GPUs of every node, with counts per rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    shape: Shape,
    /// Free GPUs by node.
    nodes: Vec<u8>,
    /// Nodes by rack and number of free GPUs.
    rack_levels: Vec<u32>,
    /// Free GPUs by rack.
    rack_gpus: Vec<u32>,
    /// Nodes by number of free GPUs.
    levels: Vec<u32>,
    gpus: u64,
}

impl Free {
    /// An empty cluster: everything is free.
    #[must_use]
    pub fn all(shape: Shape) -> Self {
        Self::from_nodes(shape, vec![shape.gpus_per_node as u8; shape.nodes as usize])
    }

    /// A cluster with these free GPUs by node.
    #[must_use]
    pub fn from_nodes(shape: Shape, nodes: Vec<u8>) -> Self {
        let levels = shape.gpus_per_node as usize + 1;
        let racks = shape.racks() as usize;
        let mut free = Self {
            shape,
            rack_levels: vec![0; racks * levels],
            rack_gpus: vec![0; racks],
            levels: vec![0; levels],
            gpus: 0,
            nodes,
        };
        for (node, &gpus) in free.nodes.iter().enumerate() {
            let rack = shape.rack_of(NodeId(node as u32)) as usize;
            free.rack_levels[rack * levels + usize::from(gpus)] += 1;
            free.rack_gpus[rack] += u32::from(gpus);
            free.levels[usize::from(gpus)] += 1;
            free.gpus += u64::from(gpus);
        }
        free
    }

    /// The cluster's shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Free GPUs of all nodes.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.gpus
    }

    /// Free GPUs by node.
    #[must_use]
    pub fn nodes(&self) -> &[u8] {
        &self.nodes
    }

    /// Free GPUs of a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> u32 {
        u32::from(self.nodes[node.0 as usize])
    }

    /// Free GPUs of a rack.
    #[must_use]
    pub fn in_rack(&self, rack: u32) -> u32 {
        self.rack_gpus[rack as usize]
    }

    /// Nodes of the cluster with exactly so many free GPUs.
    #[must_use]
    pub fn at_level(&self, gpus: u32) -> u32 {
        self.levels[gpus as usize]
    }

    /// Nodes of a rack with exactly so many free GPUs.
    #[must_use]
    pub fn rack_at_level(&self, rack: u32, gpus: u32) -> u32 {
        self.rack_levels[rack as usize * self.levels.len() + gpus as usize]
    }

    /// Nodes of a rack that are free whole.
    #[must_use]
    pub fn whole_in_rack(&self, rack: u32) -> u32 {
        self.rack_at_level(rack, self.shape.gpus_per_node)
    }

    /// Whether a job can start now, in one rack or in several.
    #[must_use]
    pub fn fits(&self, demand: Demand) -> bool {
        counts_fit(&self.levels, demand)
    }

    /// Whether a job can start now within this rack.
    #[must_use]
    pub fn fits_rack(&self, rack: u32, demand: Demand) -> bool {
        let levels = self.levels.len();
        let first = rack as usize * levels;
        counts_fit(&self.rack_levels[first..first + levels], demand)
    }

    /// Takes GPUs of a node.
    pub fn take(&mut self, part: Part) {
        let had = self.on(part.node);
        debug_assert!(had >= part.gpus, "{part:?} of {had}");
        self.set(part.node, had - part.gpus);
    }

    /// Gives GPUs of a node back.
    pub fn give(&mut self, part: Part) {
        let had = self.on(part.node);
        debug_assert!(had + part.gpus <= self.shape.gpus_per_node, "{part:?}");
        self.set(part.node, had + part.gpus);
    }

    fn set(&mut self, node: NodeId, gpus: u32) {
        let rack = self.shape.rack_of(node) as usize;
        let had = self.on(node);
        let first = rack * self.levels.len();
        self.rack_levels[first + had as usize] -= 1;
        self.rack_levels[first + gpus as usize] += 1;
        self.rack_gpus[rack] = self.rack_gpus[rack] + gpus - had;
        self.levels[had as usize] -= 1;
        self.levels[gpus as usize] += 1;
        self.gpus = self.gpus + u64::from(gpus) - u64::from(had);
        self.nodes[node.0 as usize] = gpus as u8;
    }
}

/// Whether nodes counted by their free GPUs can hold a demand.
fn counts_fit(levels: &[u32], demand: Demand) -> bool {
    let whole = levels.last().copied().unwrap_or(0);
    if whole < demand.whole_nodes {
        return false;
    }
    demand.rest_gpus == 0
        || whole > demand.whole_nodes
        || levels[demand.rest_gpus as usize..levels.len() - 1]
            .iter()
            .any(|&nodes| nodes > 0)
}
