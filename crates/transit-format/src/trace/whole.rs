//! A whole trace in memory, and the ways to get one and to write it anew.

use std::io::Write;
use std::path::Path;

use super::Writer;
use super::model::{
    Alloc, Event, Fault, Free, Function, Header, Mark, Migration, Op, Pointer, Stream, Totals,
};
use super::reader::{self, Salvage};
use crate::error::Error;

/// How a trace ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The writer closed it.
    #[default]
    Clean,
    /// The writer was killed or is still at work: everything up to the last whole block is there.
    Cut {
        /// Where the usable part ends, in bytes.
        offset: u64,
        /// What was found there.
        reason: String,
    },
}

/// A whole trace in memory. Every id in it lies within its table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Facts about the process.
    pub header: Header,
    /// Functions, by [`crate::ids::FunctionId`].
    pub functions: Vec<Function>,
    /// Streams, by [`crate::ids::StreamId`].
    pub streams: Vec<Stream>,
    /// Allocations, by [`crate::ids::AllocId`].
    pub allocs: Vec<Alloc>,
    /// Frees, in order.
    pub frees: Vec<Free>,
    /// Ops, by [`crate::ids::OpSeq`].
    pub ops: Vec<Op>,
    /// Pointers of ops. Ops with equal pointer lists share them: find them with
    /// [`Trace::pointers_of`].
    pub pointers: Vec<Pointer>,
    /// Migrations, in the order recorded.
    pub migrations: Vec<Migration>,
    /// Faults, in the order recorded.
    pub faults: Vec<Fault>,
    /// Marks, in order.
    pub marks: Vec<Mark>,
    /// The last totals written.
    pub totals: Totals,
    /// How the file ends.
    pub end: End,
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// Every kind of [`Error`] but `Invalid`. A file that merely ends early is no error: see
    /// [`End::Cut`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let bytes = reader::load(path, &name, true)?;
        Self::read(&bytes, &name)
    }

    /// Reads a trace from memory; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, Error> {
        reader::read(bytes, name, false).map(|salvage| salvage.trace)
    }

    /// Reads a trace file and keeps every good block, whatever happened to the others.
    ///
    /// # Errors
    /// As [`Trace::open`], but damage is an error only if no block at all is good.
    pub fn open_lenient(path: &Path) -> Result<Salvage, Error> {
        let name = path.display().to_string();
        let bytes = reader::load(path, &name, false)?;
        Self::read_lenient(&bytes, &name)
    }

    /// [`Trace::open_lenient`] from memory.
    ///
    /// # Errors
    /// As [`Trace::open_lenient`].
    pub fn read_lenient(bytes: &[u8], name: &str) -> Result<Salvage, Error> {
        reader::read(bytes, name, true)
    }

    /// The managed pointers in an op's arguments.
    #[must_use]
    pub fn pointers_of(&self, op: &Op) -> &[Pointer] {
        let first = usize::try_from(op.first_pointer).unwrap_or(usize::MAX);
        let list = self
            .pointers
            .get(first..)
            .and_then(|rest| rest.get(..op.pointers as usize));
        list.unwrap_or_default()
    }

    /// Writes the trace anew, as a closed file. Tables and time-line entries are placed by the
    /// ops they precede, so that a reader of a part of it finds what it needs.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn write_to<W: Write>(&self, sink: W) -> Result<W, Error> {
        let mut writer = Writer::new(sink, &self.header)?;
        for function in &self.functions {
            writer.push(Event::Function(function.clone()))?;
        }
        for stream in &self.streams {
            writer.push(Event::Stream(*stream))?;
        }
        let mut allocs = self.allocs.iter().peekable();
        let mut frees = self.frees.iter().peekable();
        let mut marks = self.marks.iter().peekable();
        let mut migrations = self.migrations.iter().peekable();
        let mut faults = self.faults.iter().peekable();
        for (number, op) in (0_u64..).zip(&self.ops) {
            while let Some(alloc) = allocs.next_if(|alloc| alloc.at_op.0 <= number) {
                writer.push(Event::Alloc(alloc.clone()))?;
            }
            while let Some(free) = frees.next_if(|free| free.at_op.0 <= number) {
                writer.push(Event::Free(*free))?;
            }
            while let Some(mark) = marks.next_if(|mark| mark.at_op.0 <= number) {
                writer.push(Event::Mark(*mark))?;
            }
            while let Some(move_) = migrations.next_if(|move_| move_.start_ns <= op.issued_ns) {
                writer.push(Event::Migration(*move_))?;
            }
            while let Some(fault) = faults.next_if(|fault| fault.start_ns <= op.issued_ns) {
                writer.push(Event::Fault(*fault))?;
            }
            writer.push(Event::Op(*op, self.pointers_of(op).to_vec()))?;
        }
        allocs.try_for_each(|alloc| writer.push(Event::Alloc(alloc.clone())))?;
        frees.try_for_each(|free| writer.push(Event::Free(*free)))?;
        marks.try_for_each(|mark| writer.push(Event::Mark(*mark)))?;
        migrations.try_for_each(|migration| writer.push(Event::Migration(*migration)))?;
        faults.try_for_each(|fault| writer.push(Event::Fault(*fault)))?;
        writer.push(Event::Totals(self.totals.clone()))?;
        writer.finish()
    }
}
