//! Where a job goes. One rack is preferred (the paper's locality-aware policy); within that, packing
//! leaves the largest holes and spreading leaves the fewest neighbours. Ties go to the lowest number.

use clap::ValueEnum;
use serde::Serialize;

use super::{Demand, Free, Part};
use crate::units::NodeId;

/// How a place is chosen among those that would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The fullest node or rack that still fits; across racks: the emptiest first, so that few are used.
    Pack,
    /// The emptiest node or rack; across racks: the emptiest first, so that few are used.
    Spread,
    /// As `spread`, and a job that fits no rack goes over as many racks as it can.
    SpreadRacks,
}

/// Chooses GPUs for a job into `parts` and says how many racks they touch; `None` if they do not fit.
pub fn choose(
    free: &Free,
    demand: Demand,
    placement: Placement,
    parts: &mut Vec<Part>,
) -> Option<u32> {
    parts.clear();
    if !free.fits(demand) {
        return None;
    }
    if demand.whole_nodes == 0 {
        parts.push(shared(free, demand.rest_gpus, placement)?);
        return Some(1);
    }
    if let Some(rack) = one_rack(free, demand, placement) {
        take_whole(free, rack, demand.whole_nodes, parts);
        if demand.rest_gpus > 0 {
            parts.push(rest_in(free, rack, demand.rest_gpus, placement, parts)?);
        }
        return Some(1);
    }
    several_racks(free, demand, placement, parts)
}

/// A node for a job that takes a part of it.
fn shared(free: &Free, gpus: u32, placement: Placement) -> Option<Part> {
    let most = free.shape().gpus_per_node;
    let has = |level: &u32| free.at_level(*level) > 0;
    let level = match placement {
        Placement::Pack => (gpus..=most).find(has)?,
        Placement::Spread | Placement::SpreadRacks => (gpus..=most).rev().find(has)?,
    };
    let racks = (0..free.shape().racks()).filter(|&rack| free.rack_at_level(rack, level) > 0);
    let rack = match placement {
        Placement::Pack => racks.min_by_key(|&rack| (free.in_rack(rack), rack))?,
        Placement::Spread | Placement::SpreadRacks => {
            racks.min_by_key(|&rack| (u32::MAX - free.in_rack(rack), rack))?
        }
    };
    at_level(free, rack, level).map(|node| Part { node, gpus })
}

fn at_level(free: &Free, rack: u32, level: u32) -> Option<NodeId> {
    let mut nodes = free.shape().nodes_of(rack).map(NodeId);
    nodes.find(|&node| free.on(node) == level)
}

/// The rack that takes the whole job, if one can.
fn one_rack(free: &Free, demand: Demand, placement: Placement) -> Option<u32> {
    if demand.nodes() > free.shape().nodes_per_rack {
        return None;
    }
    let racks = (0..free.shape().racks()).filter(|&rack| free.fits_rack(rack, demand));
    match placement {
        Placement::Pack => racks.min_by_key(|&rack| (free.whole_in_rack(rack), free.in_rack(rack))),
        Placement::Spread | Placement::SpreadRacks => {
            let key = |rack| u32::MAX - free.in_rack(rack);
            racks.min_by_key(|&rack| (u32::MAX - free.whole_in_rack(rack), key(rack)))
        }
    }
}

/// The first whole free nodes of a rack.
fn take_whole(free: &Free, rack: u32, count: u32, parts: &mut Vec<Part>) {
    let gpus = free.shape().gpus_per_node;
    let nodes = free.shape().nodes_of(rack).map(NodeId);
    let whole = nodes.filter(|&node| free.on(node) == gpus);
    parts.extend(whole.take(count as usize).map(|node| Part { node, gpus }));
}

/// A node of the rack for the part of a node that a job takes besides `taken`.
fn rest_in(
    free: &Free,
    rack: u32,
    gpus: u32,
    placement: Placement,
    taken: &[Part],
) -> Option<Part> {
    let nodes = free.shape().nodes_of(rack).map(NodeId);
    let open =
        nodes.filter(|node| free.on(*node) >= gpus && taken.iter().all(|part| part.node != *node));
    let node = match placement {
        Placement::Pack => open.min_by_key(|&node| (free.on(node), node))?,
        Placement::Spread | Placement::SpreadRacks => {
            open.min_by_key(|&node| (u32::MAX - free.on(node), node))?
        }
    };
    Some(Part { node, gpus })
}

/// The fallback: as few racks as possible, or as many.
fn several_racks(
    free: &Free,
    demand: Demand,
    placement: Placement,
    parts: &mut Vec<Part>,
) -> Option<u32> {
    let all = 0..free.shape().racks();
    let mut racks: Vec<(u32, u32)> = all
        .map(|rack| (free.whole_in_rack(rack), rack))
        .filter(|&(whole, _)| whole > 0)
        .collect();
    racks.sort_by_key(|&(whole, rack)| (u32::MAX - whole, rack));
    let shares = match placement {
        Placement::Pack => few_racks(&racks, demand.whole_nodes, true),
        Placement::Spread => few_racks(&racks, demand.whole_nodes, false),
        Placement::SpreadRacks => many_racks(&racks, demand.whole_nodes),
    };
    for &(rack, nodes) in &shares {
        take_whole(free, rack, nodes, parts);
    }
    let mut used = shares.len() as u32;
    if demand.rest_gpus > 0 {
        let near = shares
            .iter()
            .find_map(|&(rack, _)| rest_in(free, rack, demand.rest_gpus, placement, parts));
        let far = || {
            (0..free.shape().racks())
                .find_map(|rack| rest_in(free, rack, demand.rest_gpus, placement, parts))
        };
        used += u32::from(near.is_none());
        let part = near.or_else(far)?;
        parts.push(part);
    }
    Some(used)
}

/// Nodes by rack from the emptiest rack on; packing puts the remainder where it leaves least behind.
fn few_racks(racks: &[(u32, u32)], mut nodes: u32, pack: bool) -> Vec<(u32, u32)> {
    let mut shares = Vec::new();
    for (place, &(whole, rack)) in racks.iter().enumerate() {
        if nodes <= whole {
            let tightest = racks.iter().skip(place).rfind(|(other, _)| *other >= nodes);
            let last = tightest.filter(|_| pack).map_or(rack, |&(_, rack)| rack);
            shares.push((last, nodes));
            break;
        }
        shares.push((rack, whole));
        nodes -= whole;
    }
    shares
}

/// Nodes by rack, one at a time around all racks.
fn many_racks(racks: &[(u32, u32)], nodes: u32) -> Vec<(u32, u32)> {
    let mut shares: Vec<(u32, u32)> = racks.iter().map(|&(_, rack)| (rack, 0)).collect();
    let mut left = nodes;
    while left > 0 {
        let before = left;
        for (share, &(whole, _)) in shares.iter_mut().zip(racks) {
            if left > 0 && share.1 < whole {
                share.1 += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    shares.retain(|&(_, nodes)| nodes > 0);
    shares
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::*;

    fn cluster(nodes: &[u8]) -> Free {
        let racks = nodes.len() as f64 / 4.0;
        Free::from_nodes(Shape::new(racks, 32, 8).unwrap(), nodes.to_vec())
    }

    fn at(free: &Free, whole: u32, rest: u32, placement: Placement) -> (u32, Vec<(u32, u32)>) {
        let demand = Demand {
            whole_nodes: whole,
            rest_gpus: rest,
        };
        let mut parts = Vec::new();
        let racks = choose(free, demand, placement, &mut parts).unwrap();
        (racks, parts.iter().map(|p| (p.node.0, p.gpus)).collect())
    }

    #[test]
    fn packing_fills_holes_and_spreading_makes_them() {
        let free = cluster(&[8, 8, 8, 8, 8, 2, 3, 0]);
        assert_eq!(at(&free, 0, 2, Placement::Pack), (1, vec![(5, 2)]));
        assert_eq!(at(&free, 0, 4, Placement::Pack), (1, vec![(4, 4)]));
        assert_eq!(at(&free, 0, 2, Placement::Spread), (1, vec![(0, 2)]));
        assert_eq!(at(&free, 1, 0, Placement::Pack), (1, vec![(4, 8)]));
        assert_eq!(at(&free, 1, 0, Placement::Spread), (1, vec![(0, 8)]));
        assert_eq!(at(&free, 1, 3, Placement::Pack), (1, vec![(4, 8), (6, 3)]));
    }

    #[test]
    fn one_rack_is_preferred_and_several_are_the_fallback() {
        let free = cluster(&[8, 8, 8, 0, 8, 8, 0, 0, 8, 0, 0, 0]);
        assert_eq!(at(&free, 3, 0, Placement::Spread).0, 1);
        let nodes = |answer: (u32, Vec<(u32, u32)>)| {
            let nodes: Vec<u32> = answer.1.iter().map(|&(node, _)| node).collect();
            (answer.0, nodes)
        };
        let four = |placement| nodes(at(&free, 4, 0, placement));
        assert_eq!(four(Placement::Pack), (2, vec![0, 1, 2, 8]));
        assert_eq!(four(Placement::Spread), (2, vec![0, 1, 2, 4]));
        assert_eq!(four(Placement::SpreadRacks), (3, vec![0, 1, 4, 8]));
    }

    #[test]
    fn what_does_not_fit_is_not_placed() {
        let free = cluster(&[7, 7, 7, 7]);
        let mut parts = Vec::new();
        let whole = Demand::nodes_whole(1);
        assert_eq!(choose(&free, whole, Placement::Pack, &mut parts), None);
    }
}
