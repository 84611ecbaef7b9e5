//! Gives ops their device times. The hooks know the order of ops on a stream, CUPTI knows when
//! work ran on which stream and in which order it was called (correlation ids rise), so the two
//! are matched in order: kernels by name, copies by size, graphs as a whole.
//!
//! CUPTI hands over buffers in any order, so a record counts only once a later flush has brought
//! nothing before it. Lost records and work the hooks did not see cost a few times, never a shift
//! of all that follow: after a mismatch the nearest agreement is sought within [`LOOK_AHEAD`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use transit_format::ids::{Nanos, OpSeq, StreamId};
use transit_format::trace::model::OpKind;

/// How far a mismatch is followed on either side.
const LOOK_AHEAD: usize = 32;
/// Unmatched ops kept per stream.
const MOST_WAITING: usize = 1 << 18;
/// Host and device times agree to within this.
const CLOCK_ERROR_NS: u64 = 200_000;

/// An op without its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Its number in the trace.
    pub(crate) op: OpSeq,
    pub(crate) kind: OpKind,
    pub(crate) issued: Nanos,
    /// 0 if unknown.
    pub(crate) name_hash: u64,
    /// Size of a copy or memset, else 0.
    pub(crate) bytes: u64,
}

/// Device work of one driver call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) kind: OpKind,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) name_hash: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    ran: Ran,
    records: u64,
    generation: u64,
}

/// An op's times, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) op: OpSeq,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

#[derive(Debug, Default)]
struct Lane {
    /// An op has been matched: what ran before the first one was issued before the window.
    begun: bool,
    ops: VecDeque<Waiting>,
    groups: BTreeMap<u32, Group>,
}

enum Choice {
    Take(u32),
    /// This op has no record.
    NoRecord,
    Wait,
}

/// All streams' ops and records.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    lanes: HashMap<(u32, u32), Lane>,
    /// CUPTI's numbers of a stream.
    streams: HashMap<StreamId, (u32, u32)>,
    /// Graph launches of all streams: their nodes run on streams of the driver's own.
    graphs: Lane,
    generation: u64,
    /// Records that belong to the recorded ops, or ran among them without an op.
    counted: u64,
}

impl Matcher {
    /// Tells which CUPTI stream a stream is.
    pub(crate) fn stream(&mut self, stream: StreamId, cupti: (u32, u32)) {
        self.streams.insert(stream, cupti);
    }

    /// An op was issued on a stream.
    pub(crate) fn issued(&mut self, stream: StreamId, op: Waiting) {
        let lane = if op.kind == OpKind::Graph {
            &mut self.graphs
        } else if let Some(cupti) = self.streams.get(&stream) {
            self.lanes.entry(*cupti).or_default()
        } else {
            return;
        };
        if lane.ops.len() == MOST_WAITING {
            lane.ops.pop_front();
        }
        lane.ops.push_back(op);
    }

    /// A record came. `graph` if it is of a node of a graph.
    pub(crate) fn ran(&mut self, cupti: (u32, u32), correlation: u32, graph: bool, ran: Ran) {
        let generation = self.generation;
        let lane = if graph {
            &mut self.graphs
        } else {
            self.lanes.entry(cupti).or_default()
        };
        let group = lane.groups.entry(correlation).or_insert(Group {
            ran,
            records: 0,
            generation,
        });
        if group.records > 0 {
            group.ran.start = group.ran.start.min(ran.start);
            group.ran.end = group.ran.end.max(ran.end);
            group.ran.bytes += ran.bytes;
        }
        group.records += 1;
        group.generation = generation;
        if lane.groups.len() > MOST_WAITING {
            lane.groups.pop_first();
        }
    }

    /// A flush was made, its records are still to come: those that came before are complete now.
    pub(crate) fn flushed(&mut self) {
        self.generation += 1;
    }

    /// Matches what can be matched; with `last`, all there is.
    pub(crate) fn run(&mut self, last: bool, out: &mut Vec<Timed>) {
        let ready = if last { u64::MAX } else { self.generation };
        let mut counted = 0;
        for lane in self.lanes.values_mut() {
            counted += lane.run(ready, last, out);
        }
        counted += self.graphs.run(ready, last, out);
        self.counted += counted;
    }

    /// Whether every op has its times or will never have any.
    pub(crate) fn all_timed(&self) -> bool {
        self.graphs.ops.is_empty() && self.lanes.values().all(|lane| lane.ops.is_empty())
    }

    /// Kernel and graph records seen up to now, and records of copies and memsets that are ops.
    /// With `rest`, also those behind the last matched op.
    pub(crate) fn counted(&self, rest: bool) -> u64 {
        let lanes = self.lanes.values().flat_map(|lane| lane.groups.values());
        let behind: u64 = lanes
            .filter(|group| group.ran.kind == OpKind::Kernel)
            .chain(self.graphs.groups.values())
            .map(|group| group.records)
            .sum();
        self.counted + if rest { behind } else { 0 }
    }
}

impl Lane {
    /// Matches with groups of generations before `ready`. Returns the number of records
    /// accounted for.
    fn run(&mut self, ready: u64, last: bool, out: &mut Vec<Timed>) -> u64 {
        let mut counted = 0;
        while let Some(op) = self.ops.front().copied() {
            let choice = match op.kind {
                OpKind::Graph => self.choose_graph(&op, ready),
                OpKind::Kernel => self.choose_kernel(&op, ready),
                OpKind::Memset | OpKind::Memcpy => self.choose_copy(&op, ready),
            };
            match choice {
                Choice::Take(correlation) => {
                    let after = self.groups.split_off(&correlation);
                    let skipped = std::mem::replace(&mut self.groups, after);
                    let begun = std::mem::replace(&mut self.begun, true);
                    counted += skipped
                        .values()
                        .filter(|_| begun)
                        .filter(|group| {
                            op.kind == OpKind::Graph || group.ran.kind == OpKind::Kernel
                        })
                        .map(|group| group.records)
                        .sum::<u64>();
                    let Some(group) = self.groups.remove(&correlation) else {
                        break;
                    };
                    counted += group.records;
                    out.push(Timed {
                        op: op.op,
                        start: group.ran.start,
                        end: group.ran.end,
                    });
                }
                Choice::NoRecord => {}
                Choice::Wait if last => {}
                Choice::Wait => break,
            }
            self.ops.pop_front();
        }
        counted
    }

    fn choose_graph(&self, op: &Waiting, ready: u64) -> Choice {
        for (correlation, group) in &self.groups {
            if group.generation >= ready {
                return Choice::Wait;
            }
            if !before(&group.ran, op) {
                return Choice::Take(*correlation);
            }
        }
        Choice::Wait
    }

    fn choose_copy(&self, op: &Waiting, ready: u64) -> Choice {
        for (correlation, group) in &self.groups {
            if group.generation >= ready {
                return Choice::Wait;
            }
            if before(&group.ran, op) {
                continue;
            }
            if group.ran.kind == OpKind::Kernel {
                // Kernels are all ops, so this one is a later op's.
                return Choice::NoRecord;
            }
            if group.ran.kind == op.kind && (op.bytes == 0 || group.ran.bytes == op.bytes) {
                return Choice::Take(*correlation);
            }
        }
        Choice::Wait
    }

    fn choose_kernel(&self, op: &Waiting, ready: u64) -> Choice {
        let mut kernels = self
            .groups
            .iter()
            .filter(|(_, group)| group.ran.kind == OpKind::Kernel && !before(&group.ran, op));
        let Some((&first, group)) = kernels.next() else {
            return Choice::Wait;
        };
        if group.generation >= ready {
            return Choice::Wait;
        }
        if agree(op, &group.ran) {
            return Choice::Take(first);
        }
        let found = |(_, group): &(&u32, &Group)| group.generation < ready && agree(op, &group.ran);
        let later = kernels
            .take(LOOK_AHEAD)
            .enumerate()
            .find(|(_, entry)| found(entry));
        let skipped_ops = self
            .ops
            .iter()
            .skip(1)
            .filter(|later| later.kind == OpKind::Kernel)
            .take(LOOK_AHEAD)
            .position(|later| agree(later, &group.ran));
        match (later, skipped_ops) {
            (Some((records, (&correlation, _))), ops) if ops.is_none_or(|ops| records <= ops) => {
                Choice::Take(correlation)
            }
            (_, Some(_)) => Choice::NoRecord,
            // Names that never agree say nothing: CUPTI and the driver name it differently.
            _ => Choice::Take(first),
        }
    }
}

/// Whether the work was over before the op was issued.
fn before(ran: &Ran, op: &Waiting) -> bool {
    ran.end.0.saturating_add(CLOCK_ERROR_NS) < op.issued.0
}

fn agree(op: &Waiting, ran: &Ran) -> bool {
    op.name_hash == 0 || ran.name_hash == 0 || op.name_hash == ran.name_hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: (u32, u32) = (1, 7);

    fn matcher() -> Matcher {
        let mut matcher = Matcher::default();
        matcher.stream(StreamId(0), STREAM);
        matcher
    }

    fn issue(matcher: &mut Matcher, op: u64, kind: OpKind, name_hash: u64, bytes: u64) {
        let issued = Nanos(op * 1_000_000);
        matcher.issued(
            StreamId(0),
            Waiting {
                op: OpSeq(op),
                kind,
                issued,
                name_hash,
                bytes,
            },
        );
    }

    fn ran(op: u64, kind: OpKind, name_hash: u64, bytes: u64) -> Ran {
        let start = Nanos(op * 1_000_000 + 10);
        Ran {
            kind,
            start,
            end: Nanos(start.0 + 5),
            name_hash,
            bytes,
        }
    }

    fn run(matcher: &mut Matcher, last: bool) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        matcher.run(last, &mut out);
        out.iter()
            .map(|timed| (timed.op.0, timed.start.0 / 1_000_000))
            .collect()
    }

    #[test]
    fn records_in_any_order_are_matched_once_a_later_flush_shows_them_complete() {
        let mut matcher = matcher();
        for op in 0..3 {
            issue(&mut matcher, op, OpKind::Kernel, 50 + op, 0);
        }
        matcher.ran(STREAM, 12, false, ran(2, OpKind::Kernel, 52, 0));
        matcher.ran(STREAM, 11, false, ran(1, OpKind::Kernel, 51, 0));
        assert_eq!(run(&mut matcher, false), []);
        matcher.ran(STREAM, 10, false, ran(0, OpKind::Kernel, 50, 0));
        matcher.flushed();
        assert_eq!(run(&mut matcher, false), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(matcher.counted(true), 3);
    }

    #[test]
    fn a_lost_record_and_an_unseen_launch_shift_nothing() {
        let mut matcher = matcher();
        for op in 0..4 {
            issue(&mut matcher, op, OpKind::Kernel, 50 + op, 0);
        }
        // Record of op 1 is lost; between 2 and 3 something ran that no hook saw.
        matcher.ran(STREAM, 10, false, ran(0, OpKind::Kernel, 50, 0));
        matcher.ran(STREAM, 12, false, ran(2, OpKind::Kernel, 52, 0));
        matcher.ran(STREAM, 13, false, ran(2, OpKind::Kernel, 99, 0));
        matcher.ran(STREAM, 14, false, ran(3, OpKind::Kernel, 53, 0));
        assert_eq!(run(&mut matcher, true), [(0, 0), (2, 2), (3, 3)]);
        assert_eq!(matcher.counted(true), 4);
    }

    #[test]
    fn copies_of_other_memory_are_passed_over() {
        let mut matcher = matcher();
        issue(&mut matcher, 0, OpKind::Kernel, 50, 0);
        issue(&mut matcher, 1, OpKind::Memset, 0, 4096);
        issue(&mut matcher, 2, OpKind::Memcpy, 0, 64);
        issue(&mut matcher, 3, OpKind::Kernel, 51, 0);
        matcher.ran(STREAM, 9, false, ran(0, OpKind::Memcpy, 0, 64));
        matcher.ran(STREAM, 10, false, ran(0, OpKind::Kernel, 50, 0));
        matcher.ran(STREAM, 11, false, ran(1, OpKind::Memset, 0, 16));
        matcher.ran(STREAM, 12, false, ran(1, OpKind::Memset, 0, 4096));
        matcher.ran(STREAM, 14, false, ran(3, OpKind::Kernel, 51, 0));
        assert_eq!(
            run(&mut matcher, true),
            [(0, 0), (1, 1), (3, 3)],
            "op 2 has no record"
        );
        assert_eq!(matcher.counted(true), 3);
    }

    #[test]
    fn a_graph_is_one_op_from_its_first_node_to_its_last() {
        let mut matcher = matcher();
        issue(&mut matcher, 0, OpKind::Graph, 0, 0);
        matcher.ran((1, 20), 5, true, ran(2, OpKind::Kernel, 1, 0));
        matcher.ran((1, 21), 5, true, ran(0, OpKind::Memset, 0, 8));
        let mut out = Vec::new();
        matcher.run(true, &mut out);
        let [timed] = out[..] else { panic!("{out:?}") };
        assert_eq!((timed.start, timed.end), (Nanos(10), Nanos(2_000_015)));
        assert_eq!(matcher.counted(true), 2);
    }

    #[test]
    fn names_that_never_agree_are_matched_by_order() {
        let mut matcher = matcher();
        for op in 0..3 {
            issue(&mut matcher, op, OpKind::Kernel, 50 + op, 0);
            let correlation = u32::try_from(op).unwrap();
            matcher.ran(
                STREAM,
                correlation,
                false,
                ran(op, OpKind::Kernel, 80 + op, 0),
            );
        }
        assert_eq!(run(&mut matcher, true), [(0, 0), (1, 1), (2, 2)]);
    }
}
