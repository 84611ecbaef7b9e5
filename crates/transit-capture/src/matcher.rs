//! Gives ops their device times, and checks hooks against the device. The hooks know the order of
//! ops on a stream, CUPTI knows when work ran on which stream and in which order it was called
//! (correlation ids rise), so the two are matched in order: kernels by name, copies by the bytes
//! they write, graphs as a whole.
//!
//! CUPTI hands over buffers in any order, so a record counts only once a later flush has brought
//! nothing before it, and none is waited for ([`Arrivals`]). Lost records and work the hooks did not
//! see cost a few times, never a shift of all that follow: after a mismatch the nearest agreement is
//! sought within [`LOOK_AHEAD`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use transit_format::ids::{Nanos, OpSeq, StreamId};
use transit_format::trace::model::OpKind;
use transit_hook::DeviceRecords;

use crate::arrivals::Arrivals;
use crate::balance::{Balance, KIND_COUNT, kind_index};

/// How far a mismatch is followed on either side.
const LOOK_AHEAD: usize = 32;
/// Unmatched ops kept per stream.
const MOST_WAITING: usize = 1 << 18;
/// Host and device times agree to within this.
pub(crate) const CLOCK_ERROR_NS: u64 = 200_000;
/// In place of a stream: the nodes of graphs launched in a context run on streams of the driver's
/// own.
const GRAPHS: u32 = u32::MAX;

/// An op without its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Its number in the trace.
    pub(crate) op: OpSeq,
    pub(crate) kind: OpKind,
    pub(crate) issued: Nanos,
    /// 0 if unknown.
    pub(crate) name_hash: u64,
    /// Bytes a copy or memset writes; 0 if unknown, and for others.
    pub(crate) bytes: u64,
    /// What CUPTI should report for it.
    pub(crate) records: DeviceRecords,
}

/// Device work of one driver call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) kind: OpKind,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) name_hash: u64,
    /// Address of a kernel's name, 0 if CUPTI gives none.
    pub(crate) name: u64,
    pub(crate) bytes: u64,
}

/// All records of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) ran: Ran,
    /// Kernels, memsets, copies.
    pub(crate) records: [u64; KIND_COUNT],
    generation: u64,
}

/// An op's times, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) op: OpSeq,
    pub(crate) issued: Nanos,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

#[derive(Debug, Default)]
struct Lane {
    ops: VecDeque<Waiting>,
    groups: BTreeMap<u32, Group>,
}

/// Which groups can be relied on.
#[derive(Clone, Copy)]
struct Ready<'a> {
    /// Those of earlier generations ...
    generation: u64,
    /// ... before which nothing is missing. `None`: all.
    arrivals: Option<&'a Arrivals>,
}

impl Ready<'_> {
    fn has(self, correlation: u32, group: &Group) -> bool {
        self.arrivals.is_none_or(|arrivals| {
            group.generation < self.generation && arrivals.whole(correlation)
        })
    }

    /// The first of the next [`LOOK_AHEAD`] records that is like that, with its place among them.
    /// `Err` while what is still to come may change the answer.
    fn search<'g>(
        self,
        records: impl Iterator<Item = (&'g u32, &'g Group)>,
        like: impl Fn(&Ran) -> bool,
    ) -> Result<Option<(usize, u32)>, StillToCome> {
        let mut seen = 0;
        for (place, (&correlation, group)) in records.take(LOOK_AHEAD).enumerate() {
            if !self.has(correlation, group) {
                return Err(StillToCome);
            }
            if like(&group.ran) {
                return Ok(Some((place, correlation)));
            }
            seen = place + 1;
        }
        if seen == LOOK_AHEAD || self.arrivals.is_none() {
            Ok(None)
        } else {
            Err(StillToCome)
        }
    }
}

/// Records that decide a search.
struct StillToCome;

enum Choice {
    Take(u32),
    /// This op has no record.
    NoRecord,
    Wait,
}

/// All streams' ops and records.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    /// By CUPTI's numbers of context and stream, or context and [`GRAPHS`].
    lanes: HashMap<(u32, u32), Lane>,
    /// CUPTI's numbers of a stream.
    streams: HashMap<StreamId, (u32, u32)>,
    generation: u64,
    arrivals: Arrivals,
    /// What of both sides has found its counterpart.
    pub(crate) balance: Balance,
}

impl Matcher {
    /// Tells which CUPTI stream a stream is.
    pub(crate) fn stream(&mut self, stream: StreamId, cupti: (u32, u32)) {
        self.streams.insert(stream, cupti);
    }

    /// An op was issued on a stream.
    pub(crate) fn issued(&mut self, stream: StreamId, op: Waiting) {
        self.balance.issued(&op);
        let Some(&(context, number)) = self.streams.get(&stream) else {
            self.balance.placeless(&op);
            return;
        };
        let number = if op.kind == OpKind::Graph {
            GRAPHS
        } else {
            number
        };
        let lane = self.lanes.entry((context, number)).or_default();
        if lane.ops.len() == MOST_WAITING {
            lane.ops.pop_front();
        }
        lane.ops.push_back(op);
    }

    /// A record came. `graph` if it is of a node of a graph.
    pub(crate) fn ran(&mut self, cupti: (u32, u32), correlation: u32, graph: bool, ran: Ran) {
        let generation = self.generation;
        self.arrivals.came(correlation, generation);
        let lane = if graph {
            self.graph_lane(cupti.0, correlation)
        } else {
            self.lanes.entry(cupti).or_default()
        };
        let group = lane.groups.entry(correlation).or_insert(Group {
            ran: Ran { bytes: 0, ..ran },
            records: [0; KIND_COUNT],
            generation,
        });
        group.ran.start = group.ran.start.min(ran.start);
        group.ran.end = group.ran.end.max(ran.end);
        group.ran.bytes += ran.bytes;
        if let Some(count) = group.records.get_mut(kind_index(ran.kind)) {
            *count += 1;
        }
        group.generation = generation;
        if lane.groups.len() > MOST_WAITING {
            lane.groups.pop_first();
        }
    }

    /// Where a graph's records go: the nodes of one launch may run in several contexts.
    fn graph_lane(&mut self, context: u32, correlation: u32) -> &mut Lane {
        let begun = self
            .lanes
            .iter()
            .filter(|((_, stream), _)| *stream == GRAPHS)
            .find(|(_, lane)| lane.groups.contains_key(&correlation))
            .map(|(key, _)| *key);
        self.lanes
            .entry(begun.unwrap_or((context, GRAPHS)))
            .or_default()
    }

    /// A flush was made, its records are still to come: those that came before are complete now.
    pub(crate) fn flushed(&mut self) {
        self.generation += 1;
        self.arrivals.flushed(self.generation);
    }

    /// Matches what can be matched; with `last`, all there is.
    pub(crate) fn run(&mut self, last: bool, out: &mut Vec<Timed>) {
        let ready = Ready {
            generation: self.generation,
            arrivals: (!last).then_some(&self.arrivals),
        };
        for ((_, stream), lane) in &mut self.lanes {
            lane.run(ready, last, *stream == GRAPHS, &mut self.balance, out);
        }
    }

    /// Whether every op has its times or will never have any.
    pub(crate) fn all_timed(&self) -> bool {
        self.lanes.values().all(|lane| lane.ops.is_empty())
    }
}

impl Lane {
    /// Matches with groups that are ready.
    fn run(
        &mut self,
        ready: Ready<'_>,
        last: bool,
        graphs: bool,
        balance: &mut Balance,
        out: &mut Vec<Timed>,
    ) {
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
                    for group in skipped.values() {
                        balance.beside(group, graphs);
                    }
                    let Some(group) = self.groups.remove(&correlation) else {
                        break;
                    };
                    balance.matched(&op, &group);
                    out.push(Timed {
                        op: op.op,
                        issued: op.issued,
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
        if last {
            for group in std::mem::take(&mut self.groups).values() {
                balance.behind(group, graphs);
            }
        }
    }

    /// Graph launches in order: nothing in the records tells one graph from another for sure.
    fn choose_graph(&self, op: &Waiting, ready: Ready<'_>) -> Choice {
        if op.records.sum() == 0 && !op.records.open {
            return Choice::NoRecord;
        }
        for (correlation, group) in &self.groups {
            if !ready.has(*correlation, group) {
                return Choice::Wait;
            }
            if !before(&group.ran, op) {
                return Choice::Take(*correlation);
            }
        }
        Choice::Wait
    }

    fn choose_copy(&self, op: &Waiting, ready: Ready<'_>) -> Choice {
        if op.records.sum() == 0 {
            return Choice::NoRecord;
        }
        for (correlation, group) in &self.groups {
            if !ready.has(*correlation, group) {
                return Choice::Wait;
            }
            if before(&group.ran, op) {
                continue;
            }
            if group.ran.kind == OpKind::Kernel && self.awaits(&group.ran) {
                // It is a later op's, and so is all that follows; or nobody's, and so is each of its
                // name that would be left over after it.
                let behind = self.groups.range(correlation..);
                return match ready.search(behind, |ran| suits(op, ran)) {
                    Err(StillToCome) => Choice::Wait,
                    Ok(Some((_, own))) if self.fits(own + 1) > self.fits(*correlation) => {
                        Choice::Take(own)
                    }
                    Ok(_) => Choice::NoRecord,
                };
            }
            if suits(op, &group.ran) {
                return Choice::Take(*correlation);
            }
        }
        Choice::Wait
    }

    /// How many of the ops behind the first one find their like, one by one, in the records from
    /// `correlation` on; all where none that came is another's.
    fn fits(&self, correlation: u32) -> usize {
        let records = self.groups.range(correlation..);
        let mut pairs = self.ops.iter().skip(1).zip(records).take(LOOK_AHEAD);
        let first = pairs.position(|(op, (_, group))| !suits(op, &group.ran));
        first.unwrap_or(LOOK_AHEAD)
    }

    /// Whether one of the next kernels to be matched is of this name.
    fn awaits(&self, ran: &Ran) -> bool {
        self.ops
            .iter()
            .filter(|op| op.kind == OpKind::Kernel)
            .take(LOOK_AHEAD)
            .any(|op| agree(op, ran))
    }

    fn choose_kernel(&self, op: &Waiting, ready: Ready<'_>) -> Choice {
        let mut kernels = self
            .groups
            .iter()
            .filter(|(_, group)| group.ran.kind == OpKind::Kernel && !before(&group.ran, op));
        let Some((&first, group)) = kernels.next() else {
            return Choice::Wait;
        };
        if !ready.has(first, group) {
            return Choice::Wait;
        }
        if agree(op, &group.ran) {
            return Choice::Take(first);
        }
        let Ok(later) = ready.search(kernels, |ran| agree(op, ran)) else {
            return Choice::Wait;
        };
        let skipped_ops = self
            .ops
            .iter()
            .skip(1)
            .filter(|later| later.kind == OpKind::Kernel)
            .take(LOOK_AHEAD)
            .position(|later| agree(later, &group.ran));
        match (later, skipped_ops) {
            (Some((records, own)), ops) if ops.is_none_or(|ops| records <= ops) => {
                Choice::Take(own)
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

/// Whether the work may be the op's by its kind, and by its name or bytes.
fn suits(op: &Waiting, ran: &Ran) -> bool {
    let alike = match op.kind {
        OpKind::Kernel | OpKind::Graph => agree(op, ran),
        OpKind::Memset | OpKind::Memcpy => op.bytes == 0 || ran.bytes == op.bytes,
    };
    ran.kind == op.kind && alike
}

fn agree(op: &Waiting, ran: &Ran) -> bool {
    op.name_hash == 0 || ran.name_hash == 0 || op.name_hash == ran.name_hash
}

#[cfg(test)]
mod tests {
    use transit_format::trace::check::Counted;

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
                records: match kind {
                    OpKind::Graph => DeviceRecords {
                        kernels: 1,
                        memsets: 1,
                        ..DeviceRecords::default()
                    },
                    _ => DeviceRecords::one(kind),
                },
            },
        );
    }

    fn counted(hooked: u64, confirmed: u64, unseen: u64) -> Counted {
        Counted {
            hooked,
            confirmed,
            unseen,
        }
    }

    fn ran(op: u64, kind: OpKind, name_hash: u64, bytes: u64) -> Ran {
        let start = Nanos(op * 1_000_000 + 10);
        Ran {
            kind,
            start,
            end: Nanos(start.0 + 5),
            name_hash,
            name: c"hidden".as_ptr().addr() as u64,
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
        assert!(matcher.balance.check(0).unwrap().complete());
    }

    #[test]
    fn a_buffer_that_comes_after_later_ones_is_waited_for() {
        let mut matcher = matcher();
        // Layers that look alike: without waiting, the second would take the third's times.
        for op in 0..6 {
            issue(&mut matcher, op, OpKind::Kernel, 50 + op % 2, 0);
        }
        let came = |matcher: &mut Matcher, ops: [u64; 2]| {
            for op in ops {
                let correlation = 10 + u32::try_from(op).unwrap();
                let record = ran(op, OpKind::Kernel, 50 + op % 2, 0);
                matcher.ran(STREAM, correlation, false, record);
            }
            matcher.flushed();
        };
        came(&mut matcher, [0, 1]);
        came(&mut matcher, [4, 5]);
        let mut times = run(&mut matcher, false);
        matcher.flushed();
        times.extend(run(&mut matcher, false));
        came(&mut matcher, [2, 3]);
        times.extend(run(&mut matcher, false));
        assert_eq!(times, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
        assert!(matcher.balance.check(0).unwrap().complete());
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
        let check = matcher.balance.check(0).unwrap();
        assert_eq!(check.kernels, counted(4, 3, 1), "as many lost as unseen");
        assert_eq!(check.unseen_kernels, [("hidden".to_owned(), 1)]);
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
        let check = matcher.balance.check(2).unwrap();
        assert_eq!(check.kernels, counted(2, 2, 0));
        assert_eq!(check.memsets, counted(1, 1, 0));
        assert_eq!(check.memcpys, counted(1, 0, 0));
        let check = matcher.balance.check(0).unwrap();
        assert_eq!(
            (check.memsets.unseen, check.memcpys.unseen),
            (1, 1),
            "the hooks let none pass"
        );
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
        let check = matcher.balance.check(0).unwrap();
        assert!(check.complete(), "{check:?}");
    }

    #[test]
    fn a_graph_that_runs_nothing_takes_no_other_graphs_times() {
        let mut matcher = matcher();
        let empty = Waiting {
            op: OpSeq(0),
            kind: OpKind::Graph,
            issued: Nanos(0),
            name_hash: 0,
            bytes: 0,
            records: DeviceRecords::default(),
        };
        matcher.issued(StreamId(0), empty);
        issue(&mut matcher, 1, OpKind::Graph, 0, 0);
        matcher.ran((1, 20), 5, true, ran(1, OpKind::Kernel, 1, 0));
        matcher.ran((1, 20), 5, true, ran(1, OpKind::Memset, 0, 8));
        assert_eq!(run(&mut matcher, true), [(1, 1)]);
        assert!(matcher.balance.check(0).unwrap().complete());
    }

    #[test]
    fn graphs_launched_in_several_contexts_at_once_keep_their_own_times() {
        let mut matcher = matcher();
        matcher.stream(StreamId(1), (2, 7));
        for op in 0..4_u64 {
            let stream = StreamId(u32::try_from(op % 2).unwrap());
            let records = DeviceRecords {
                kernels: 2,
                ..DeviceRecords::default()
            };
            let waiting = Waiting {
                op: OpSeq(op),
                kind: OpKind::Graph,
                issued: Nanos(0),
                name_hash: 0,
                bytes: 0,
                records,
            };
            matcher.issued(stream, waiting);
        }
        // The second thread's calls came first; one of its nodes runs on the other device.
        for (context, correlation, at) in [(2, 1, 10), (1, 3, 20), (2, 2, 30), (1, 4, 40)] {
            matcher.ran(
                (context, 9),
                correlation,
                true,
                ran(at, OpKind::Kernel, 1, 0),
            );
            matcher.ran((1, 9), correlation, true, ran(at, OpKind::Kernel, 1, 0));
        }
        let mut times = run(&mut matcher, true);
        times.sort_unstable();
        assert_eq!(times, [(0, 20), (1, 10), (2, 40), (3, 30)]);
        assert!(matcher.balance.check(0).unwrap().complete());
    }

    #[test]
    fn what_the_device_decides_is_taken_as_it_comes() {
        let mut matcher = matcher();
        let open = Waiting {
            op: OpSeq(0),
            kind: OpKind::Graph,
            issued: Nanos(0),
            name_hash: 0,
            bytes: 0,
            records: DeviceRecords {
                kernels: 1,
                open: true,
                ..DeviceRecords::default()
            },
        };
        matcher.issued(StreamId(0), open);
        for _ in 0..17 {
            matcher.ran((1, 9), 3, true, ran(0, OpKind::Kernel, 1, 0));
        }
        assert_eq!(run(&mut matcher, true), [(0, 0)]);
        let check = matcher.balance.check(0).unwrap();
        assert_eq!(
            (check.kernels, check.open_launches),
            (counted(17, 17, 0), 1)
        );
    }

    #[test]
    fn a_copy_behind_an_unseen_kernel_is_found() {
        let mut matcher = matcher();
        issue(&mut matcher, 0, OpKind::Kernel, 50, 0);
        issue(&mut matcher, 1, OpKind::Memcpy, 0, 64);
        issue(&mut matcher, 2, OpKind::Kernel, 51, 0);
        for (correlation, record) in [
            (10, ran(0, OpKind::Kernel, 50, 0)),
            (11, ran(0, OpKind::Kernel, 99, 0)),
            (12, ran(1, OpKind::Memcpy, 0, 64)),
            (13, ran(2, OpKind::Kernel, 51, 0)),
        ] {
            matcher.ran(STREAM, correlation, false, record);
        }
        assert_eq!(run(&mut matcher, true), [(0, 0), (1, 1), (2, 2)]);
        let check = matcher.balance.check(0).unwrap();
        assert_eq!(
            (check.kernels, check.memcpys),
            (counted(2, 2, 1), counted(1, 1, 0))
        );
    }

    #[test]
    fn one_record_too_many_costs_no_copy_among_kernels_of_one_name_its_own() {
        let mut matcher = matcher();
        // One kernel that was not expected, before rounds of three of its name and a set.
        matcher.ran(STREAM, 1, false, ran(0, OpKind::Kernel, 50, 0));
        for op in 0..40 {
            let correlation = 2 + u32::try_from(op).unwrap();
            let (kind, name, bytes) = match op % 4 {
                3 => (OpKind::Memset, 0, 64),
                _ => (OpKind::Kernel, 50, 0),
            };
            issue(&mut matcher, op, kind, name, bytes);
            let record = Ran {
                // Too soon for the clocks to tell whose it is.
                start: Nanos(39_000_010),
                end: Nanos(39_000_010 + u64::from(correlation)),
                ..ran(op, kind, name, bytes)
            };
            matcher.ran(STREAM, correlation, false, record);
        }
        let times = run(&mut matcher, true);
        assert_eq!(times.len(), 40);
        let check = matcher.balance.check(0).unwrap();
        assert_eq!(check.memsets, counted(10, 10, 0));
        assert_eq!(check.kernels, counted(30, 30, 1));
    }

    #[test]
    fn records_of_a_stream_without_a_number_count_though_others_are_doubtful() {
        let mut matcher = matcher();
        let one = DeviceRecords::one(OpKind::Kernel);
        let placeless = Waiting {
            op: OpSeq(1),
            kind: OpKind::Kernel,
            issued: Nanos(0),
            name_hash: 50,
            bytes: 0,
            records: one,
        };
        matcher.issued(StreamId(9), placeless);
        matcher.balance.process_ends();
        for doubtful_came in [0, 1, 2] {
            matcher.balance.doubtful(&one);
            let came = if doubtful_came == 0 { 1 } else { doubtful_came };
            matcher.ran((3, 3), came, false, ran(1, OpKind::Kernel, 50, 0));
            assert_eq!(run(&mut matcher, true), []);
            let check = matcher.balance.check(0).unwrap();
            assert_eq!(check.kernels, counted(1, 1, 0), "{doubtful_came}");
        }
    }

    #[test]
    fn one_record_too_many_that_comes_before_all_others_costs_no_op_its_own() {
        for first in [1, 2, 4] {
            let mut matcher = matcher();
            matcher.ran(STREAM, 9, false, ran(0, OpKind::Kernel, 50, 0));
            let mut times = Vec::new();
            for op in 0..6_u64 {
                // Kernels 51, 51, 50 by turns.
                issue(
                    &mut matcher,
                    op,
                    OpKind::Kernel,
                    51 - u64::from(op % 3 == 2),
                    0,
                );
            }
            for op in 0..6_u64 {
                if op == first {
                    matcher.flushed();
                    times.extend(run(&mut matcher, false));
                    matcher.flushed();
                    times.extend(run(&mut matcher, false));
                }
                let record = ran(op, OpKind::Kernel, 51 - u64::from(op % 3 == 2), 0);
                if op + 1 != first {
                    matcher.ran(STREAM, 10 + u32::try_from(op).unwrap(), false, record);
                }
                if op == first {
                    // Late, on another buffer.
                    let late = ran(first - 1, OpKind::Kernel, 51 - u64::from(first % 3 == 0), 0);
                    matcher.ran(STREAM, 9 + u32::try_from(first).unwrap(), false, late);
                }
            }
            times.extend(run(&mut matcher, true));
            assert_eq!(
                times,
                (0..6).map(|op| (op, op)).collect::<Vec<_>>(),
                "{first}"
            );
            assert_eq!(matcher.balance.check(0).unwrap().kernels, counted(6, 6, 1));
        }
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
