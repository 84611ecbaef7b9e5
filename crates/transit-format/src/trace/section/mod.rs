//! The parts of a block's body, in the order they are stored. One module per part, with its table
//! and its tests.

pub(super) mod end;
pub(super) mod head;
pub(super) mod marks;
pub(super) mod ops;
mod references;
pub(super) mod tables;
pub(super) mod times;
pub(super) mod transfers;

#[cfg(test)]
mod testing;

use super::block::{BlockHeader, Counts, Flaw};
use super::coding::{Body, Sink, Source};
use super::model::{Alloc, Fault, Free, Function, Mark, Migration, Op, Pointer, Stream, Totals};
use times::OpTime;

/// Everything in one events block. While writing, `Op::first_pointer` counts within `pointers`;
/// while reading, it is the number of the op's pointer list within `lists`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Events {
    pub(super) functions: Vec<Function>,
    pub(super) streams: Vec<Stream>,
    pub(super) allocs: Vec<Alloc>,
    pub(super) frees: Vec<Free>,
    pub(super) ops: Vec<Op>,
    pub(super) pointers: Vec<Pointer>,
    pub(super) lists: Vec<ops::List>,
    pub(super) op_times: Vec<OpTime>,
    pub(super) migrations: Vec<Migration>,
    pub(super) faults: Vec<Fault>,
    pub(super) marks: Vec<Mark>,
    pub(super) totals: Option<Totals>,
}

impl Events {
    /// Entries of each kind.
    pub(super) fn counts(&self) -> Counts {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Counts {
            functions: count(self.functions.len()),
            streams: count(self.streams.len()),
            allocs: count(self.allocs.len()),
            frees: count(self.frees.len()),
            ops: count(self.ops.len()),
            op_times: count(self.op_times.len()),
            migrations: count(self.migrations.len()),
            faults: count(self.faults.len()),
            marks: count(self.marks.len()),
            totals: u32::from(self.totals.is_some()),
        }
    }

    /// Empties the block and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.functions.clear();
        self.streams.clear();
        self.allocs.clear();
        self.frees.clear();
        self.ops.clear();
        self.pointers.clear();
        self.lists.clear();
        self.op_times.clear();
        self.migrations.clear();
        self.faults.clear();
        self.marks.clear();
        self.totals = None;
    }

    /// Whether the totals have ops that CUPTI was not asked to time.
    pub(super) fn sampled(&self) -> bool {
        let totals = self.totals.as_ref();
        totals.is_some_and(|totals| totals.unasked_ops > 0)
    }

    /// The body of an events block.
    pub(super) fn encode(&self) -> Result<Body, String> {
        let mut sink = Sink::default();
        tables::put_functions(&mut sink, &self.functions);
        tables::put_streams(&mut sink, &self.streams);
        tables::put_allocs(&mut sink, &self.allocs);
        tables::put_frees(&mut sink, &self.frees);
        ops::put(&mut sink, &self.ops, &self.pointers);
        times::put(&mut sink, &self.op_times);
        transfers::put_migrations(&mut sink, &self.migrations);
        transfers::put_faults(&mut sink, &self.faults);
        marks::put_marks(&mut sink, &self.marks);
        if let Some(totals) = &self.totals {
            marks::put_totals(&mut sink, totals);
        }
        sink.finish()
    }

    /// Reads what [`Events::encode`] wrote.
    pub(super) fn decode(body: &[u8], header: &BlockHeader) -> Result<Self, Flaw> {
        let counts = &header.counts;
        let mut reading = Source::new(body);
        let source = &mut reading;
        let functions = tables::get_functions(source, counts.functions as usize)?;
        let streams = tables::get_streams(source, counts.streams as usize)?;
        let allocs = tables::get_allocs(source, counts.allocs as usize)?;
        let frees = tables::get_frees(source, counts.frees as usize)?;
        let ops::Decoded {
            ops,
            pointers,
            lists,
        } = ops::get(source, counts.ops as usize, header.by_recency)?;
        let op_times = times::get(source, counts.op_times as usize)?;
        let migrations = transfers::get_migrations(source, counts.migrations as usize)?;
        let faults = transfers::get_faults(source, counts.faults as usize)?;
        let marks = marks::get_marks(source, counts.marks as usize)?;
        let totals = match counts.totals {
            0 => None,
            _ => Some(marks::get_totals(source, header.checked, header.sampled)?),
        };
        reading.finish()?;
        Ok(Self {
            functions,
            streams,
            allocs,
            frees,
            ops,
            pointers,
            lists,
            op_times,
            migrations,
            faults,
            marks,
            totals,
        })
    }
}

/// Reads a column whose numbers are ids of 32 bits.
pub(super) fn narrow(source: &Source<'_>, value: u64, what: &str) -> Result<u32, Flaw> {
    u32::try_from(value).map_err(|_| source.flaw(format!("{what} is {value}, over 32 bits")))
}
