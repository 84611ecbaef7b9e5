//! How large a cluster is. A rack holds a fixed number of GPUs (32 in the paper, section 4.3), so 4 or
//! 8 nodes of it; the last rack may be incomplete (Seren's 286 nodes are 71.5 racks).

use crate::units::NodeId;

/// Racks of nodes of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// Nodes of a full rack.
    pub nodes_per_rack: u32,
    /// Nodes in all.
    pub nodes: u32,
}

/// Why a cluster cannot be built.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// A rack must hold whole nodes.
    #[error("{gpus_per_rack} GPUs of a rack are no whole number of nodes of {gpus_per_node} GPUs")]
    Uneven {
        /// GPUs of a rack.
        gpus_per_rack: u32,
        /// GPUs of a node.
        gpus_per_node: u32,
    },
    /// A cluster has a size.
    #[error("nobody said how many racks the cluster has")]
    Unsaid,
    /// A cluster has nodes.
    #[error("{0} racks are no cluster: at least one whole node, at most a million nodes")]
    Size(f64),
    /// The packed table of free GPUs holds small numbers.
    #[error("a node of {0} GPUs: 1 to 64 are possible")]
    Node(u32),
}

/// Most nodes that are simulated; beyond it a mistyped number is likelier than a cluster.
const MAX_NODES: f64 = 1e6;

impl Shape {
    /// A cluster of `racks` racks; a fraction of a rack counts in whole nodes, rounded down.
    ///
    /// # Errors
    /// If a rack is no whole number of nodes, or there is no node.
    pub fn new(racks: f64, gpus_per_rack: u32, gpus_per_node: u32) -> Result<Self, ShapeError> {
        if !(1..=64).contains(&gpus_per_node) {
            return Err(ShapeError::Node(gpus_per_node));
        }
        if gpus_per_rack == 0 || !gpus_per_rack.is_multiple_of(gpus_per_node) {
            return Err(ShapeError::Uneven {
                gpus_per_rack,
                gpus_per_node,
            });
        }
        let nodes_per_rack = gpus_per_rack / gpus_per_node;
        let nodes = (racks * f64::from(nodes_per_rack)).floor();
        if !(1.0..=MAX_NODES).contains(&nodes) {
            return Err(ShapeError::Size(racks));
        }
        Ok(Self {
            gpus_per_node,
            nodes_per_rack,
            nodes: nodes as u32,
        })
    }

    /// Racks, the incomplete one included.
    #[must_use]
    pub fn racks(&self) -> u32 {
        self.nodes.div_ceil(self.nodes_per_rack)
    }

    /// All GPUs.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus_per_node)
    }

    /// The rack a node stands in.
    #[must_use]
    pub fn rack_of(&self, node: NodeId) -> u32 {
        node.0 / self.nodes_per_rack
    }

    /// The nodes of a rack.
    #[must_use]
    pub fn nodes_of(&self, rack: u32) -> std::ops::Range<u32> {
        let first = rack * self.nodes_per_rack;
        first..(first + self.nodes_per_rack).min(self.nodes)
    }

    /// Fewest racks that hold so many nodes.
    #[must_use]
    pub fn ideal_racks(&self, nodes: u32) -> u32 {
        nodes.div_ceil(self.nodes_per_rack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_hold_whole_nodes_and_the_last_may_be_short() {
        let seren = Shape::new(71.5, 32, 8).unwrap();
        assert_eq!((seren.nodes, seren.racks(), seren.gpus()), (286, 72, 2288));
        assert_eq!(seren.nodes_of(71), 284..286);
        assert_eq!(seren.rack_of(NodeId(285)), 71);
        assert!(Shape::new(1.0, 32, 5).is_err());
        assert!(Shape::new(0.1, 32, 8).is_err());
        for nonsense in [f64::NAN, -1.0, f64::INFINITY, 1e12] {
            assert!(Shape::new(nonsense, 32, 8).is_err());
        }
    }
}
