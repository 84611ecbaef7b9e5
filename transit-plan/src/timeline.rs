//! A trace laid out the way every verb reads it: ops per stream, migrations per op, lifetimes of
//! allocations. Built once per trace in time linear in its events; holds only indices, so that
//! 10 million events stay well under 1 GiB.

use transit_format::ids::{AllocId, OpSeq, StreamId};
use transit_format::trace::Trace;
use transit_format::trace::model::{Alloc, Migration, Op, Pointer};

use crate::assign::{self, NO_OP};
use crate::num::index;

/// Indices into a [`Trace`].
pub struct Timeline<'t> {
    trace: &'t Trace,
    by_stream: Vec<Vec<u32>>,
    migration_op: Vec<u32>,
    /// For each op the place of its first migration in `migration_order`, and one past the end.
    first_migration: Vec<u32>,
    migration_order: Vec<u32>,
    freed_at: Vec<OpSeq>,
}

impl<'t> Timeline<'t> {
    /// Lays out a trace.
    #[must_use]
    pub fn new(trace: &'t Trace) -> Self {
        let mut by_stream = vec![Vec::new(); trace.streams.len()];
        for (seq, op) in (0_u32..).zip(&trace.ops) {
            if by_stream.len() <= op.stream.index() {
                by_stream.resize(op.stream.index() + 1, Vec::new());
            }
            if let Some(ops) = by_stream.get_mut(op.stream.index()) {
                ops.push(seq);
            }
        }
        let migration_op = assign::migrations_to_ops(trace);
        let (first_migration, migration_order) = group(&migration_op, trace.ops.len());
        let mut freed_at = vec![OpSeq(u64::MAX); trace.allocs.len()];
        for free in &trace.frees {
            if let Some(at) = freed_at.get_mut(free.alloc.index()) {
                *at = free.at_op;
            }
        }
        Self {
            trace,
            by_stream,
            migration_op,
            first_migration,
            migration_order,
            freed_at,
        }
    }

    /// The trace it was made from.
    #[must_use]
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Number of ops in the trace.
    #[must_use]
    pub fn op_count(&self) -> u32 {
        u32::try_from(self.trace.ops.len()).unwrap_or(NO_OP)
    }

    /// An op by its sequence number within the process.
    #[must_use]
    pub fn op(&self, seq: u32) -> Option<&'t Op> {
        self.trace.ops.get(index(seq))
    }

    /// The name of an op's function, mangled; empty if the trace does not hold it.
    #[must_use]
    pub fn name(&self, op: &Op) -> &'t str {
        self.trace
            .functions
            .get(op.function.index())
            .map_or("", |function| &function.name)
    }

    /// The managed pointers in an op's arguments.
    #[must_use]
    pub fn pointers(&self, seq: u32) -> &'t [Pointer] {
        self.op(seq).map_or(&[], |op| self.trace.pointers_of(op))
    }

    /// Sequence numbers of a stream's ops, in issue order.
    #[must_use]
    pub fn ops_of(&self, stream: StreamId) -> &[u32] {
        self.by_stream
            .get(stream.index())
            .map_or(&[], Vec::as_slice)
    }

    /// All streams that hold an op.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        (0_u32..)
            .zip(&self.by_stream)
            .filter(|(_, ops)| !ops.is_empty())
            .map(|(stream, _)| StreamId(stream))
    }

    /// The stream with the most ops; the first of them if several have as many.
    #[must_use]
    pub fn busiest_stream(&self) -> Option<StreamId> {
        self.streams()
            .max_by_key(|stream| (self.ops_of(*stream).len(), std::cmp::Reverse(stream.0)))
    }

    /// The place of an op among its stream's ops in the whole trace (not within an iteration).
    #[must_use]
    pub fn place_on_stream(&self, seq: u32) -> Option<usize> {
        let ops = self.ops_of(self.op(seq)?.stream);
        ops.binary_search(&seq).ok()
    }

    /// The op a migration belongs to: the recorder's word where it knows, else by device time.
    #[must_use]
    pub fn op_of_migration(&self, migration: usize) -> Option<u32> {
        self.migration_op
            .get(migration)
            .copied()
            .filter(|op| *op != NO_OP)
    }

    /// Migrations that belong to an op, in trace order.
    pub fn migrations_of(&self, seq: u32) -> impl Iterator<Item = &'t Migration> + '_ {
        let at = |op: u32| self.first_migration.get(index(op)).copied().unwrap_or(0);
        let range = index(at(seq))..index(at(seq.saturating_add(1)));
        let order = self.migration_order.get(range).unwrap_or(&[]);
        order
            .iter()
            .filter_map(|place| self.trace.migrations.get(index(*place)))
    }

    /// The op before which an allocation was freed, `u64::MAX` if never.
    #[must_use]
    pub fn freed_at(&self, alloc: AllocId) -> OpSeq {
        self.freed_at
            .get(alloc.index())
            .copied()
            .unwrap_or(OpSeq(u64::MAX))
    }

    /// Whether an allocation exists when an op is issued.
    #[must_use]
    pub fn is_live(&self, alloc: AllocId, at: OpSeq) -> bool {
        self.trace
            .allocs
            .get(alloc.index())
            .is_some_and(|entry| entry.at_op <= at && at < self.freed_at(alloc))
    }

    /// Allocations that exist when an op is issued, in the order they were made.
    pub fn live_at(&self, at: OpSeq) -> impl Iterator<Item = (AllocId, &'t Alloc)> + '_ {
        (0_u32..)
            .map(AllocId)
            .zip(&self.trace.allocs)
            .filter(move |(alloc, _)| self.is_live(*alloc, at))
    }
}

/// Sorts migrations by op without comparing: counts, then places.
fn group(migration_op: &[u32], ops: usize) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![0_u32; ops + 1];
    for op in migration_op {
        if let Some(count) = first.get_mut(index(*op).saturating_add(1)) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for count in &mut first {
        sum += *count;
        *count = sum;
    }
    let mut next = first.clone();
    let mut order = vec![0_u32; index(sum)];
    for (place, op) in (0_u32..).zip(migration_op) {
        let Some(slot) = next.get_mut(index(*op)).filter(|_| index(*op) < ops) else {
            continue;
        };
        if let Some(entry) = order.get_mut(index(*slot)) {
            *entry = place;
        }
        *slot += 1;
    }
    (first, order)
}
