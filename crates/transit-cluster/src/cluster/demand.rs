//! What a job asks of the cluster: whole nodes, and perhaps a part of one more.

use clap::ValueEnum;
use serde::Serialize;

/// Whether jobs smaller than a node share nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubNode {
    /// Several such jobs share a node.
    Share,
    /// Each takes a node of its own.
    Whole,
}

/// What a multi-node job does with its last node where its GPUs do not fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LastNode {
    /// It takes it whole.
    Whole,
    /// It takes what it needs of it; other jobs may use the rest.
    Share,
}

/// Whole nodes plus some GPUs of one further node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    /// Nodes taken whole.
    pub whole_nodes: u32,
    /// GPUs on one further node, fewer than it has; 0 for none.
    pub rest_gpus: u32,
}

impl Demand {
    /// What a job of so many GPUs asks on nodes of `gpus_per_node`.
    #[must_use]
    pub fn of(gpus: u32, gpus_per_node: u32, sub_node: SubNode, last_node: LastNode) -> Self {
        let (whole, rest) = (gpus / gpus_per_node, gpus % gpus_per_node);
        let shares = if whole == 0 {
            sub_node == SubNode::Share
        } else {
            last_node == LastNode::Share
        };
        if rest > 0 && !shares {
            return Self::nodes_whole(whole + 1);
        }
        Self {
            whole_nodes: whole,
            rest_gpus: rest,
        }
    }

    /// So many whole nodes.
    #[must_use]
    pub fn nodes_whole(whole_nodes: u32) -> Self {
        Self {
            whole_nodes,
            rest_gpus: 0,
        }
    }

    /// Nodes touched.
    #[must_use]
    pub fn nodes(self) -> u32 {
        self.whole_nodes + u32::from(self.rest_gpus > 0)
    }

    /// GPUs held, those of whole nodes included that the job may not use.
    #[must_use]
    pub fn gpus(self, gpus_per_node: u32) -> u32 {
        self.whole_nodes * gpus_per_node + self.rest_gpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_become_nodes_by_the_rules_of_sharing() {
        let of = |gpus, sub, last| Demand::of(gpus, 8, sub, last);
        let shared = Demand {
            whole_nodes: 0,
            rest_gpus: 3,
        };
        assert_eq!(of(3, SubNode::Share, LastNode::Whole), shared);
        assert_eq!(
            of(3, SubNode::Whole, LastNode::Share),
            Demand::nodes_whole(1)
        );
        assert_eq!(
            of(8, SubNode::Share, LastNode::Share),
            Demand::nodes_whole(1)
        );
        assert_eq!(
            of(12, SubNode::Share, LastNode::Whole),
            Demand::nodes_whole(2)
        );
        let rest = of(12, SubNode::Whole, LastNode::Share);
        assert_eq!((rest.whole_nodes, rest.rest_gpus, rest.nodes()), (1, 4, 2));
        assert_eq!(rest.gpus(8), 12);
    }
}
