//! Joins decoded blocks into one trace: shares equal pointer lists over the whole file, joins
//! device times to their ops, fills the place of lost blocks, and checks ids once all is there.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::block::{Before, BlockHeader, Flaw, FlawKind};
use super::model::{Alloc, Function, Op, Pointer, Stream};
use super::reader::{Block, Content};
use super::section::Events;
use super::section::end::EndFacts;
use super::section::ops::List;
use super::section::times::OpTime;
use super::{End, Trace};
use crate::error::Error;
use crate::ids::{FunctionId, Nanos};

/// Memory any trace may take, whatever its size.
const FREE_BYTES: u64 = 1 << 30;
/// Memory a trace may take besides, per byte of its file. Real traces need about 10.
const BYTES_PER_FILE_BYTE: u64 = 512;
/// Most table entries invented for ids whose own entry was lost.
const MAX_FILLED: usize = 1 << 20;
/// Name of what was lost.
const LOST: &str = "(lost)";

/// Hashes of a block's pointer lists, computed where blocks are decoded in parallel.
pub(super) fn list_hashes(events: &Events) -> Vec<u64> {
    let hash = |list: &List| {
        pointers_in(events, list)
            .iter()
            .fold(0_u64, |hash, pointer| {
                let word = pointer.offset ^ u64::from(pointer.alloc.0) << 40 ^ pointer.bytes << 20;
                (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
    };
    events.lists.iter().map(hash).collect()
}

fn pointers_in<'a>(events: &'a Events, list: &List) -> &'a [Pointer] {
    let rest = events.pointers.get(list.first..).unwrap_or_default();
    rest.get(..list.count as usize).unwrap_or_default()
}

/// The hashes above are good enough as they are.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value ^ value >> 29;
    }
}

/// Blocks missing before one that was joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// How many.
    pub(super) blocks: u32,
    /// Ops lost with them: the first, and how many.
    pub(super) lost_ops: Option<(u64, u64)>,
}

/// Table sizes that the ids in use need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    functions: usize,
    streams: usize,
    allocs: usize,
}

impl Needs {
    /// Of one block; computed where blocks are decoded in parallel.
    pub(super) fn of(events: &Events) -> Self {
        let mut needs = Self::default();
        for Op {
            function, stream, ..
        } in &events.ops
        {
            needs.functions = needs.functions.max(function.index() + 1);
            needs.streams = needs.streams.max(stream.index() + 1);
        }
        let pointers = events.pointers.iter().map(|pointer| pointer.alloc);
        let frees = events.frees.iter().map(|free| free.alloc);
        let migrations = events.migrations.iter().map(|migration| migration.alloc);
        let faults = events.faults.iter().map(|fault| fault.alloc);
        let allocs = pointers.chain(frees).chain(migrations).chain(faults);
        needs.allocs = allocs.map(|alloc| alloc.index() + 1).max().unwrap_or(0);
        needs
    }

    fn max(self, other: Self) -> Self {
        Self {
            functions: self.functions.max(other.functions),
            streams: self.streams.max(other.streams),
            allocs: self.allocs.max(other.allocs),
        }
    }
}

/// A trace in the making.
#[derive(Default)]
pub(super) struct Stitch {
    trace: Trace,
    /// Where a pointer list with this hash lies in the trace's pointers.
    shared: HashMap<u64, (u64, u32), BuildHasherDefault<AsIs>>,
    /// Device times seen before their op (a lost or later block).
    early_times: Vec<OpTime>,
    /// Sequence number the next block should have.
    sequence: u32,
    begun: bool,
    end: Option<EndFacts>,
    budget_bytes: u64,
    used_bytes: u64,
    ops_lost: bool,
    needs: Needs,
}

impl Stitch {
    /// Begins a trace read from a file of this size.
    pub(super) fn new(file_bytes: usize) -> Self {
        let more = BYTES_PER_FILE_BYTE.saturating_mul(file_bytes as u64);
        Self {
            budget_bytes: FREE_BYTES.saturating_add(more),
            ..Self::default()
        }
    }

    /// Whether any block was joined.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    /// Whether the end block was joined.
    pub(super) fn ended(&self) -> bool {
        self.end.is_some()
    }

    /// Joins the next block. With `lenient`, missing blocks before it are accepted and returned.
    pub(super) fn join(&mut self, block: Block, lenient: bool) -> Result<Option<Gap>, Flaw> {
        let Block { header, content } = block;
        if self.end.is_some() {
            return Err(Flaw::damaged("block header", "a block after the end block"));
        }
        self.check_order(&header, &content, lenient)?;
        self.reserve(&header)?;
        let lost_ops = self.fill_gap(&header.before);
        let blocks = header.sequence.saturating_sub(self.sequence);
        match content {
            Content::Header(header) => self.trace.header = *header,
            Content::Events(events, hashes, needs) => {
                self.needs = self.needs.max(needs);
                self.append(*events, &hashes);
            }
            Content::End(facts) => {
                if !lenient && facts.ops != self.trace.ops.len() as u64 {
                    let what = format!("{} ops read, {} written", self.trace.ops.len(), facts.ops);
                    return Err(Flaw::damaged("end block", what));
                }
                self.end = Some(facts);
            }
        }
        self.sequence = header.sequence.saturating_add(1);
        self.begun = true;
        Ok((blocks > 0 || lost_ops.is_some()).then_some(Gap { blocks, lost_ops }))
    }

    fn check_order(
        &self,
        header: &BlockHeader,
        content: &Content,
        lenient: bool,
    ) -> Result<(), Flaw> {
        let flaw = |what| Err(Flaw::damaged("block header", what));
        let BlockHeader {
            sequence, before, ..
        } = *header;
        let first = matches!(content, Content::Header(_));
        if first != (sequence == 0) {
            return flaw(format!("block {sequence} is of the wrong kind"));
        }
        if sequence < self.sequence {
            return flaw(format!("block {sequence} where {} is due", self.sequence));
        }
        let have = self.have();
        if lenient {
            let back = before.ops < have.ops
                || before.functions < have.functions
                || before.streams < have.streams
                || before.allocs < have.allocs;
            return if back {
                flaw("ids run backwards".to_owned())
            } else {
                Ok(())
            };
        }
        if sequence != self.sequence {
            return flaw(format!("block {sequence} where {} is due", self.sequence));
        }
        if before != have {
            return flaw(format!(
                "block {sequence} counts from {before:?}, read were {have:?}"
            ));
        }
        Ok(())
    }

    fn have(&self) -> Before {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Before {
            functions: count(self.trace.functions.len()),
            streams: count(self.trace.streams.len()),
            allocs: count(self.trace.allocs.len()),
            ops: self.trace.ops.len() as u64,
        }
    }

    /// Accounts for the memory that a block will take in the trace.
    fn reserve(&mut self, header: &BlockHeader) -> Result<(), Flaw> {
        let have = self.have();
        let (before, counts) = (&header.before, &header.counts);
        let grow = |have: u64, before: u64, count: u32, entry: usize| {
            let entries = before.saturating_sub(have).saturating_add(u64::from(count));
            entries.saturating_mul(entry as u64)
        };
        let bytes = [
            grow(have.ops, before.ops, counts.ops, size_of::<Op>()),
            grow(
                u64::from(have.functions),
                u64::from(before.functions),
                counts.functions,
                size_of::<Function>() + LOST.len(),
            ),
            grow(
                u64::from(have.streams),
                u64::from(before.streams),
                counts.streams,
                size_of::<Stream>(),
            ),
            grow(
                u64::from(have.allocs),
                u64::from(before.allocs),
                counts.allocs,
                size_of::<Alloc>() + LOST.len(),
            ),
            u64::from(counts.migrations) * size_of::<super::model::Migration>() as u64,
            u64::from(counts.faults) * size_of::<super::model::Fault>() as u64,
        ];
        let bytes = bytes
            .iter()
            .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.budget_bytes {
            let what = format!(
                "the trace would take over {} bytes of memory; `transit-plan cut` shortens one",
                self.budget_bytes
            );
            return Err(Flaw::new(FlawKind::TooMuch, "trace", what));
        }
        Ok(())
    }

    /// Fills tables up to the ids that a block counts from. Nothing to do in a good file.
    fn fill_gap(&mut self, before: &Before) -> Option<(u64, u64)> {
        let first = self.trace.ops.len() as u64;
        self.trace.fill_tables(
            before.functions as usize,
            before.streams as usize,
            before.allocs as usize,
        );
        if before.ops <= first {
            return None;
        }
        // The function of lost ops gets its place when all others have theirs.
        let function = FunctionId(u32::MAX);
        self.ops_lost = true;
        let target = usize::try_from(before.ops).unwrap_or(usize::MAX);
        self.trace.ops.resize(
            target,
            Op {
                function,
                ..Op::default()
            },
        );
        Some((first, before.ops - first))
    }

    fn append(&mut self, events: Events, hashes: &[u64]) {
        let pointers_before = self.trace.pointers.len();
        let places = self.share_lists(&events, hashes);
        let pointers = self.trace.pointers.len() - pointers_before;
        let names = events.functions.iter().map(|function| function.name.len());
        let texts = names.chain(events.allocs.iter().map(|alloc| alloc.caller.len()));
        self.used_bytes += (pointers * size_of::<Pointer>() + texts.sum::<usize>()) as u64;
        let trace = &mut self.trace;
        let place_of = |list: u64| {
            let index = usize::try_from(list).unwrap_or(usize::MAX);
            places.get(index).copied().unwrap_or_default()
        };
        let ops = events.ops.iter();
        trace.ops.extend(ops.map(|op| Op {
            first_pointer: place_of(op.first_pointer),
            ..*op
        }));
        trace.functions.extend(events.functions);
        trace.streams.extend(events.streams);
        trace.allocs.extend(events.allocs);
        trace.frees.extend_from_slice(&events.frees);
        trace.migrations.extend_from_slice(&events.migrations);
        trace.faults.extend_from_slice(&events.faults);
        trace.marks.extend_from_slice(&events.marks);
        if let Some(totals) = events.totals {
            trace.totals = totals;
        }
        for time in events.op_times {
            if !trace.set_time(&time) {
                self.early_times.push(time);
            }
        }
    }

    /// Where each pointer list of a block lies in the trace's pointers, adding new ones.
    fn share_lists(&mut self, events: &Events, hashes: &[u64]) -> Vec<u64> {
        let pointers = &mut self.trace.pointers;
        let mut place = |(list, hash): (&List, &u64)| {
            let wanted = pointers_in(events, list);
            let (first, count) = self.shared.get(hash).copied().unwrap_or((0, u32::MAX));
            let start = usize::try_from(first).unwrap_or(usize::MAX);
            let known = pointers
                .get(start..)
                .and_then(|rest| rest.get(..count as usize));
            if known == Some(wanted) {
                return first;
            }
            let first = pointers.len() as u64;
            pointers.extend_from_slice(wanted);
            self.shared.insert(*hash, (first, list.count));
            first
        };
        events.lists.iter().zip(hashes).map(&mut place).collect()
    }

    /// Checks that every id lies in its table; a trace with lost parts gets entries for those
    /// that do not.
    pub(super) fn finish(mut self, end: End, name: &str, lenient: bool) -> Result<Trace, Error> {
        let tolerant = lenient || end != End::Clean;
        self.trace.end = end;
        let early = std::mem::take(&mut self.early_times);
        let missed = early
            .iter()
            .filter(|time| !self.trace.set_time(time))
            .count();
        let damaged = |what| Err(Flaw::damaged("ids", what).at(name, 0));
        if missed > 0 && !tolerant {
            return damaged(format!("device times of {missed} ops that are not there"));
        }
        if self.ops_lost {
            self.trace.name_lost_ops();
        }
        let Needs {
            functions,
            streams,
            allocs,
        } = self.needs;
        let trace = &mut self.trace;
        let lacking = functions.saturating_sub(trace.functions.len())
            + streams.saturating_sub(trace.streams.len())
            + allocs.saturating_sub(trace.allocs.len());
        if lacking > 0 && (!tolerant || lacking > MAX_FILLED) {
            return damaged(format!(
                "ids up to function {functions}, stream {streams}, allocation {allocs} in tables \
                 of {}, {}, {}",
                trace.functions.len(),
                trace.streams.len(),
                trace.allocs.len()
            ));
        }
        trace.fill_tables(functions, streams, allocs);
        Ok(self.trace)
    }
}

impl Trace {
    fn set_time(&mut self, time: &OpTime) -> bool {
        let op = usize::try_from(time.op)
            .ok()
            .and_then(|number| self.ops.get_mut(number));
        let Some(op) = op else { return false };
        op.start_ns = Nanos(time.start_ns);
        op.end_ns = Nanos(time.end_ns);
        true
    }

    /// Lengthens tables to at least these sizes with entries called `(lost)`.
    fn fill_tables(&mut self, functions: usize, streams: usize, allocs: usize) {
        while self.functions.len() < functions {
            self.functions.push(Function {
                name: LOST.to_owned(),
                params: 0,
            });
        }
        while self.streams.len() < streams {
            self.streams.push(Stream::default());
        }
        while self.allocs.len() < allocs {
            self.allocs.push(Alloc {
                caller: LOST.to_owned(),
                ..Alloc::default()
            });
        }
    }

    /// Gives ops of lost blocks a function of their own.
    fn name_lost_ops(&mut self) {
        let lost = FunctionId(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        self.functions.push(Function {
            name: LOST.to_owned(),
            params: 0,
        });
        for op in self
            .ops
            .iter_mut()
            .filter(|op| op.function == FunctionId(u32::MAX))
        {
            op.function = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::{Counts, Kind};
    use super::super::model::Alloc;
    use super::*;

    fn header_block() -> Block {
        let header = BlockHeader {
            kind: Kind::Header,
            ..BlockHeader::default()
        };
        Block {
            header,
            content: Content::Header(Box::default()),
        }
    }

    /// A block of one stream, function and allocation, and ops with one pointer.
    fn events_block(ops: u32) -> Block {
        let pointer = Pointer {
            offset: 512,
            ..Pointer::default()
        };
        let events = Events {
            functions: vec![Function::default()],
            streams: vec![Stream::default()],
            allocs: vec![Alloc::default()],
            ops: vec![
                Op {
                    pointers: 1,
                    ..Op::default()
                };
                ops as usize
            ],
            pointers: vec![pointer],
            lists: vec![List { first: 0, count: 1 }],
            ..Events::default()
        };
        let counts = Counts {
            ops,
            functions: 1,
            streams: 1,
            allocs: 1,
            ..Counts::default()
        };
        let header = BlockHeader {
            sequence: 1,
            counts,
            ..BlockHeader::default()
        };
        let (hashes, needs) = (list_hashes(&events), Needs::of(&events));
        Block {
            header,
            content: Content::Events(Box::new(events), hashes, needs),
        }
    }

    #[test]
    fn memory_is_bounded_by_the_size_of_the_file() {
        let mut stitch = Stitch::new(0);
        stitch.join(header_block(), false).unwrap();
        stitch.budget_bytes = 5_000;
        let flaw = stitch.join(events_block(1_000), false).unwrap_err();
        assert_eq!(flaw.kind, FlawKind::TooMuch);
        assert_eq!(stitch.trace.ops.len(), 0);
    }

    #[test]
    fn lists_that_differ_but_share_a_hash_stay_apart() {
        let mut stitch = Stitch::new(0);
        stitch.join(header_block(), false).unwrap();
        let other = vec![(9_u64, 1_u32)];
        let mut block = events_block(1);
        if let Content::Events(_, hashes, _) = &mut block.content {
            stitch.shared.extend(hashes.iter().copied().zip(other));
        }
        stitch.join(block, false).unwrap();
        let trace = stitch.finish(End::Clean, "made", false).unwrap();
        assert_eq!(trace.pointers_of(&trace.ops[0])[0].offset, 512);
    }

    #[test]
    fn an_earlier_block_is_never_joined_twice() {
        let mut stitch = Stitch::new(0);
        stitch.join(header_block(), true).unwrap();
        stitch.join(events_block(5), true).unwrap();
        assert!(stitch.join(events_block(5), true).is_err());
        assert!(stitch.join(header_block(), true).is_err());
    }
}
