//! Turns what hooks and CUPTI say, in whatever order it reaches the writer thread, into the events
//! of a trace: ops in sequence, allocations and frees at their place among them, addresses as
//! (allocation, offset), times as trace time. No thread, no file and no CUPTI call in here.

use std::collections::VecDeque;

use transit_format::ids::{FunctionId, OpSeq};
use transit_format::plan::name_hash;
use transit_format::trace::check::Check;
use transit_format::trace::model::{
    Alloc, Event, Free, Function, Mark, MarkKind, Op, OpKind, Stream, Totals,
};
use transit_hook::ledger::Counters;

use crate::clock::Clock;
use crate::collect::Collected;
use crate::cupti::{Record, Work};
use crate::iterations::{Iterations, names_an_optimizer};
use crate::matcher::{Matcher, Ran, Timed as OpTimed, Waiting};
use crate::order::InOrder;
use crate::paging;
use crate::places::{Piece, Places};
use crate::sampling::{Asked, Pace};
use crate::told::{Timed, Told, TrackedAlloc};
use crate::wire::OpRecord;

/// Ops held back for a missing one before it counts as lost.
const MOST_HELD: usize = 1 << 16;

/// A run of ops without a gap: number of its first op for the hooks and in the trace.
#[derive(Clone, Copy, Debug)]
struct Run {
    hook: u64,
    trace: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownFunction {
    name_hash: u64,
    optimizer: bool,
}

/// The trace under way.
#[derive(Debug)]
pub(crate) struct Assembler {
    pub(crate) clock: Clock,
    ops: InOrder<OpRecord>,
    /// Numbers given up.
    missing_ops: u64,
    /// The window has begun; before that nothing waits for its place among ops.
    opened: bool,
    /// Where the ops stood when a block was last closed.
    stood_at: u64,
    runs: Vec<Run>,
    trace_ops: u64,
    told: VecDeque<Timed>,
    functions: InOrder<Function>,
    streams: InOrder<Stream>,
    allocs: InOrder<Alloc>,
    known: Vec<KnownFunction>,
    places: Places,
    matcher: Matcher,
    iterations: Option<Iterations>,
    /// Transfers and faults whose op has not come yet.
    paging: VecDeque<Collected>,
    totals: Totals,
    pieces: Vec<Piece>,
    timed: Vec<OpTimed>,
    /// Which of processor and device is behind.
    pub(crate) pace: Pace,
}

impl Assembler {
    /// An empty trace. Iterations are counted only if somebody wants to know.
    pub(crate) fn new(clock: Clock, count_iterations: bool) -> Self {
        Self {
            clock,
            ops: InOrder::default(),
            missing_ops: 0,
            opened: false,
            stood_at: 0,
            runs: Vec::new(),
            trace_ops: 0,
            told: VecDeque::new(),
            functions: InOrder::default(),
            streams: InOrder::default(),
            allocs: InOrder::default(),
            known: Vec::new(),
            places: Places::default(),
            matcher: Matcher::default(),
            iterations: count_iterations.then(Iterations::default),
            paging: VecDeque::new(),
            totals: Totals::default(),
            pieces: Vec::new(),
            timed: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// The window opened at the hooks' op `first`.
    pub(crate) fn open(&mut self, first: OpSeq) {
        self.opened = true;
        self.ops.start_at(first.0);
    }

    /// An op came out of a ring.
    pub(crate) fn op(&mut self, op: OpRecord) {
        self.ops.put(op.seq.0, op);
    }

    /// Something came off the launch path.
    pub(crate) fn tell(&mut self, timed: Timed) {
        match timed.told {
            Told::Function {
                id,
                ref name,
                params,
            } => {
                self.learn(id, name);
                let function = Function {
                    name: name.clone(),
                    params,
                };
                self.functions.put(u64::from(id.0), function);
            }
            Told::Stream {
                id,
                kind,
                device,
                turn,
                cupti,
            } => {
                if let Some(cupti) = cupti {
                    self.matcher.stream(id, cupti);
                }
                self.streams
                    .put(u64::from(id.0), Stream { kind, device, turn });
            }
            Told::StreamNumber(id, cupti) => self.matcher.stream(id, cupti),
            // Placed at once: records may speak of it before its place among the ops has come.
            Told::Alloc(TrackedAlloc {
                id, address, bytes, ..
            }) => {
                self.places
                    .born(id, address, bytes, self.clock.time(timed.raw_ns));
                self.told.push_back(timed);
            }
            Told::Free { id, address } => {
                self.places.died(id, address, self.clock.time(timed.raw_ns));
                self.told.push_back(timed);
            }
            Told::Mark(_) => self.told.push_back(timed),
        }
    }

    fn learn(&mut self, id: FunctionId, name: &str) {
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, KnownFunction::default());
        }
        if let Some(known) = self.known.get_mut(id.index()) {
            *known = KnownFunction {
                name_hash: name_hash(name.as_bytes()),
                optimizer: names_an_optimizer(name),
            };
        }
    }

    /// A CUPTI record came.
    pub(crate) fn record(&mut self, collected: Collected) {
        match collected.record {
            Record::Work(work) => self.work(&work),
            Record::Paging(_) => self.paging.push_back(collected),
            Record::BadTime => self.totals.drops.bad_times += 1,
            Record::Other => {}
        }
    }

    fn work(&mut self, work: &Work) {
        let ran = Ran {
            kind: work.kind,
            start: self.clock.time(work.start),
            end: self.clock.time(work.end),
            name_hash: work.name_hash,
            name: work.name,
            bytes: work.bytes,
        };
        let stream = (work.context, work.stream);
        self.matcher
            .ran(stream, work.correlation, work.graph != 0, ran);
    }

    /// CUPTI was flushed; the records of that flush are still to be handed to [`Self::record`].
    pub(crate) fn flushed(&mut self) {
        self.matcher.flushed();
    }

    /// Appends to `out` what can be said by now. With `give_up`, does not wait any longer for
    /// what is missing; with `last`, there will be no more.
    pub(crate) fn advance(&mut self, give_up: bool, last: bool, out: &mut Vec<Event>) {
        let give_up = give_up || last;
        if give_up {
            self.functions.skip_gap();
            self.streams.skip_gap();
        }
        loop {
            while let Some(function) = self.functions.take() {
                out.push(Event::Function(function));
            }
            while let Some(stream) = self.streams.take() {
                out.push(Event::Stream(stream));
            }
            self.say_what_was_told(last, out);
            if let Some(op) = self.ops.take() {
                self.say_op(op, out);
            } else if self.ops.held() == 0 || !(give_up || self.ops.held() > MOST_HELD) {
                break;
            } else {
                self.missing_ops += self.ops.skip_gap();
            }
        }
        if last {
            self.say_allocs_behind_a_gap(out);
        }
        self.matcher.run(last, &mut self.timed);
        for timed in self.timed.drain(..) {
            self.pace.see(timed.issued, timed.start);
            out.push(Event::OpTime {
                op: timed.op,
                start_ns: timed.start,
                end_ns: timed.end,
            });
        }
        self.say_paging(last, out);
    }

    /// Allocations made by several threads at once are told in any order, so one may stand behind a
    /// number that is still to come: only the end shows which will not. A lost one keeps its place,
    /// since a number is a position.
    fn say_allocs_behind_a_gap(&mut self, out: &mut Vec<Event>) {
        while self.allocs.held() > 0 {
            let lost = self.allocs.skip_gap();
            out.extend((0..lost).map(|_| Event::Alloc(Alloc::default())));
            while let Some(alloc) = self.allocs.take() {
                out.push(Event::Alloc(alloc));
            }
        }
    }

    fn say_what_was_told(&mut self, last: bool, out: &mut Vec<Event>) {
        while let Some(timed) = self.told.front() {
            if self.opened && timed.at_op.0 > self.ops.next() && !last {
                break;
            }
            let at_op = self.trace_op(timed.at_op);
            let at_ns = self.clock.time(timed.raw_ns);
            match timed.told {
                Told::Alloc(alloc) => {
                    let alloc_id = u64::from(alloc.id.0);
                    self.allocs.put(
                        alloc_id,
                        Alloc {
                            address: alloc.address,
                            bytes: alloc.bytes,
                            device: alloc.device,
                            converted: alloc.converted,
                            managed: alloc.managed,
                            pooled: alloc.pooled,
                            caller: alloc.caller.to_owned(),
                            at_op,
                            at_ns,
                        },
                    );
                    while let Some(alloc) = self.allocs.take() {
                        out.push(Event::Alloc(alloc));
                    }
                }
                Told::Free { id, .. } => {
                    out.push(Event::Free(Free {
                        alloc: id,
                        at_op,
                        at_ns,
                    }));
                }
                Told::Mark(kind) => out.push(Event::Mark(Mark { kind, at_op, at_ns })),
                Told::Function { .. } | Told::Stream { .. } | Told::StreamNumber(..) => {}
            }
            self.told.pop_front();
        }
    }

    fn say_op(&mut self, record: OpRecord, out: &mut Vec<Event>) {
        let known = self
            .known
            .get(record.function.index())
            .copied()
            .unwrap_or_default();
        if record.void {
            return;
        }
        let hook = record.seq.0;
        if self
            .runs
            .last()
            .is_none_or(|run| hook - run.hook != self.trace_ops - run.trace)
        {
            self.runs.push(Run {
                hook,
                trace: self.trace_ops,
            });
        }
        let op = OpSeq(self.trace_ops);
        self.trace_ops += 1;
        self.totals.ops += 1;
        if let Some(iterations) = &mut self.iterations {
            let function = u64::from(record.function.0);
            let pointers = &record.pointers;
            iterations.see(
                known.optimizer,
                record.kind,
                function,
                record.shape,
                pointers,
            );
        }
        let issued_ns = self.clock.time(record.raw_ns);
        let kernel = record.kind == OpKind::Kernel;
        let waiting = Waiting {
            op,
            kind: record.kind,
            issued: issued_ns,
            name_hash: if kernel { known.name_hash } else { 0 },
            bytes: record.payload_bytes,
            records: record.records,
        };
        match record.asked {
            Asked::Yes => self.matcher.issued(record.stream, waiting),
            Asked::Doubtful => self.matcher.balance.doubtful(&record.records),
            Asked::No => {}
        }
        self.totals.unasked_ops += u64::from(record.asked != Asked::Yes);
        let op = Op {
            kind: record.kind,
            stream: record.stream,
            function: record.function,
            shape: record.shape,
            issued_ns,
            ..Op::default()
        };
        out.push(Event::Op(op, record.pointers));
    }

    /// The trace's number of the hooks' op `hook`, or of the first op after it.
    fn trace_op(&self, hook: OpSeq) -> OpSeq {
        let after = self.runs.partition_point(|run| run.hook <= hook.0);
        let end = self.runs.get(after).map_or(self.trace_ops, |run| run.trace);
        let Some(run) = after.checked_sub(1).and_then(|at| self.runs.get(at)) else {
            return OpSeq(0);
        };
        OpSeq((run.trace + (hook.0 - run.hook)).min(end))
    }

    fn say_paging(&mut self, last: bool, out: &mut Vec<Event>) {
        while let Some(collected) = self.paging.front().copied() {
            let op = collected.op;
            if op.is_some_and(|op| op.0 >= self.ops.next()) && !last {
                break;
            }
            self.paging.pop_front();
            let Record::Paging(event) = collected.record else {
                continue;
            };
            let start = self.clock.time(event.start);
            let bytes = paging::extent(&event);
            self.places
                .split(event.address, bytes, start, &mut self.pieces);
            if self.pieces.is_empty() {
                self.totals.drops.unplaced += 1;
            }
            let op = op.map(|op| self.trace_op(op));
            let end = self.clock.time(event.end);
            out.extend(
                self.pieces
                    .iter()
                    .map(|piece| paging::event(&event, piece, start, end, op)),
            );
        }
    }

    /// Whether ops have been held back for the same missing one since this was last asked.
    pub(crate) fn stuck(&mut self) -> bool {
        let at = self.ops.next();
        let stuck = at == self.stood_at && self.ops.held() > 0;
        self.stood_at = at;
        stuck
    }

    /// Whether every op has its times or will never have any.
    pub(crate) fn all_timed(&self) -> bool {
        self.matcher.all_timed()
    }

    /// Iterations begun so far, if they are counted.
    pub(crate) fn iterations(&self) -> Option<u32> {
        self.iterations.as_ref().map(Iterations::estimate)
    }

    /// The window ends with the process.
    pub(crate) fn process_ends(&mut self) {
        self.matcher.balance.process_ends();
    }

    /// Totals so far.
    pub(crate) fn totals(&mut self, ledger: &Counters, lost: &Lost) -> Totals {
        self.totals.converted_peak_bytes = ledger.converted_peak_bytes;
        self.totals.unconverted_peak_bytes = ledger.unconverted_peak_bytes;
        let check = self.matcher.balance.check(lost.passed);
        // Without a check CUPTI confirmed nothing.
        self.totals.cupti_ops = check.as_ref().map_or(0, Check::recorded);
        self.totals.hooked_ops = self.matcher.balance.hooked();
        self.totals.check = check.filter(|_| lost.checkable);
        self.totals.drops.ops = lost.ops.max(self.missing_ops);
        self.totals.drops.cupti = lost.cupti;
        self.totals.clone()
    }

    /// Marks a moment that is not bound to an op.
    pub(crate) fn mark_now(&self, kind: MarkKind) -> Event {
        Event::Mark(Mark {
            kind,
            at_op: OpSeq(self.trace_ops),
            at_ns: self.clock.now(),
        })
    }
}

/// What the assembler cannot know: what was lost or let pass outside it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    /// Ops that found their ring full.
    pub(crate) ops: u64,
    /// Records that CUPTI dropped.
    pub(crate) cupti: u64,
    /// Memsets and copies that were no ops, since the window opened.
    pub(crate) passed: u64,
    /// CUPTI records, so that hooks can be checked against it.
    pub(crate) checkable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cupti::{Counter, Paging};
    use transit_format::ids::{AllocId, Nanos, StreamId};
    use transit_format::trace::model::{Migration, Pointer, StreamKind};
    use transit_hook::DeviceRecords;

    fn assembler(first: u64) -> Assembler {
        let mut assembler = Assembler::new(Clock::starting_at(0), false);
        tell(
            &mut assembler,
            0,
            0,
            Told::Function {
                id: FunctionId(0),
                name: "k".to_owned(),
                params: 1,
            },
        );
        let (id, kind) = (StreamId(0), StreamKind::Legacy);
        tell(
            &mut assembler,
            0,
            0,
            Told::Stream {
                id,
                kind,
                device: 0,
                turn: 0,
                cupti: None,
            },
        );
        assembler.open(OpSeq(first));
        assembler
    }

    fn tell(assembler: &mut Assembler, at_op: u64, raw_ns: u64, told: Told) {
        assembler.tell(Timed {
            at_op: OpSeq(at_op),
            raw_ns,
            told,
        });
    }

    fn alloc(assembler: &mut Assembler, id: u32, address: u64, at_op: u64, raw_ns: u64) {
        tell(
            assembler,
            at_op,
            raw_ns,
            Told::Alloc(TrackedAlloc {
                id: AllocId(id),
                address,
                bytes: 1 << 21,
                device: 0,
                converted: true,
                managed: true,
                pooled: false,
                caller: "",
            }),
        );
    }

    fn op(seq: u64, void: bool) -> OpRecord {
        OpRecord {
            seq: OpSeq(seq),
            kind: OpKind::Kernel,
            void,
            raw_ns: seq * 1000,
            stream: StreamId(0),
            function: FunctionId(0),
            shape: 0,
            records: DeviceRecords::one(OpKind::Kernel),
            payload_bytes: 0,
            asked: Asked::Yes,
            pointers: vec![Pointer {
                alloc: AllocId(0),
                offset: seq,
                bytes: 0,
            }],
        }
    }

    fn moved(address: u64, op: Option<u64>) -> Collected {
        let paging = Paging {
            counter: Counter::HtoD,
            value: 4096,
            start: 5_000_000,
            end: 5_000_100,
            address,
            source: u32::MAX,
            target: 0,
            flags: 2,
        };
        Collected {
            record: Record::Paging(paging),
            op: op.map(OpSeq),
        }
    }

    /// The offset of each op's pointer, in order of the trace.
    fn ops(events: &[Event]) -> Vec<u64> {
        let ops = events.iter().filter_map(|event| match event {
            Event::Op(_, pointers) => Some(pointers[0].offset),
            _ => None,
        });
        ops.collect()
    }

    fn migrations(events: &[Event]) -> Vec<Migration> {
        let moved = events.iter().filter_map(|event| match event {
            Event::Migration(migration) => Some(*migration),
            _ => None,
        });
        moved.collect()
    }

    #[test]
    fn ops_of_many_rings_come_out_in_sequence_and_allocations_before_their_use() {
        let mut assembler = assembler(0);
        let mut events = Vec::new();
        assembler.op(op(2, false));
        assembler.op(op(1, false));
        assembler.advance(false, false, &mut events);
        assert!(ops(&events).is_empty(), "op 0 is still on its way");
        alloc(&mut assembler, 0, 1 << 40, 1, 0);
        assembler.op(op(0, false));
        assembler.advance(false, false, &mut events);
        assert_eq!(ops(&events), [0, 1, 2]);
        let at = events
            .iter()
            .position(|event| matches!(event, Event::Alloc(_)))
            .unwrap();
        let user = events.iter().position(|event| {
            matches!(event, Event::Op(op, _)
            if op.issued_ns == Nanos(1000))
        });
        assert!(
            at < user.unwrap(),
            "allocated after op 0 and before op 1: {events:?}"
        );
    }

    #[test]
    fn a_lost_op_and_a_refused_one_leave_no_hole_in_the_traces_numbers() {
        let mut assembler = assembler(100);
        let mut events = Vec::new();
        for seq in [100, 101, 103, 105] {
            assembler.op(op(seq, seq == 101));
        }
        alloc(&mut assembler, 0, 1 << 40, 105, 0);
        assembler.advance(false, false, &mut events);
        assert_eq!(ops(&events), [100]);
        assert!(!assembler.stuck(), "it may still come");
        assert!(assembler.stuck());
        assembler.advance(true, false, &mut events);
        assert_eq!(ops(&events), [100, 103, 105]);
        let Some(Event::Alloc(alloc)) =
            events.iter().find(|event| matches!(event, Event::Alloc(_)))
        else {
            panic!("no allocation")
        };
        assert_eq!(alloc.at_op, OpSeq(2));
        let totals = assembler.totals(&Counters::default(), &Lost::default());
        assert_eq!((totals.ops, totals.drops.ops), (3, 2));
        assembler.record(moved(1 << 40, Some(105)));
        assembler.advance(false, true, &mut events);
        assert_eq!(migrations(&events)[0].op, Some(OpSeq(2)));
    }

    #[test]
    fn a_transfer_waits_for_its_op_and_one_outside_every_allocation_is_counted() {
        let mut assembler = assembler(0);
        let mut events = Vec::new();
        alloc(&mut assembler, 0, 1 << 40, 0, 0);
        assembler.record(moved((1 << 40) + 8192, Some(0)));
        assembler.record(moved(1 << 30, None));
        assembler.advance(false, false, &mut events);
        assert!(migrations(&events).is_empty());
        assembler.op(op(0, false));
        assembler.advance(false, false, &mut events);
        let [only] = migrations(&events)[..] else {
            panic!("{events:?}")
        };
        assert_eq!(
            (only.alloc, only.offset, only.bytes),
            (AllocId(0), 8192, 4096)
        );
        let totals = assembler.totals(&Counters::default(), &Lost::default());
        assert_eq!(totals.drops.unplaced, 1);
    }

    #[test]
    fn allocations_told_out_of_order_are_all_said_and_a_lost_one_keeps_its_place() {
        let mut assembler = assembler(0);
        let mut events = Vec::new();
        // Allocation 1 was made by a thread that told it first; the window closes in between.
        alloc(&mut assembler, 1, 2 << 40, 0, 0);
        alloc(&mut assembler, 0, 1 << 40, 1, 0);
        alloc(&mut assembler, 3, 4 << 40, 1, 0);
        assembler.advance(true, false, &mut events);
        assembler.op(op(0, false));
        assembler.advance(true, true, &mut events);
        let addresses: Vec<u64> = events
            .iter()
            .filter_map(|event| match event {
                Event::Alloc(alloc) => Some(alloc.address),
                _ => None,
            })
            .collect();
        assert_eq!(addresses, [1 << 40, 2 << 40, 0, 4 << 40]);
    }

    #[test]
    fn before_the_window_allocations_are_said_at_once() {
        let mut assembler = Assembler::new(Clock::starting_at(0), false);
        alloc(&mut assembler, 0, 1 << 40, 57, 0);
        let mut events = Vec::new();
        assembler.advance(false, false, &mut events);
        assert!(matches!(&events[..], [Event::Alloc(alloc)] if alloc.at_op == OpSeq(0)));
    }
}
