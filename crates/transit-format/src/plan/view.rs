//! A plan file open for reading: mapped, validated once, then borrowed from without a check.
//!
//! Files under 64 MiB are read into anonymous memory instead of being mapped, so that somebody
//! who truncates the file under a running job cannot kill it with SIGBUS.

use std::io::Read;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::layout::{Kind, SECTIONS};
use super::model::{Meta, Plan, PlanOp, PlanStream, Shape, Step};
use super::section::allocs::AllocRecord;
use super::section::names::NameRecord;
use super::section::ops::OpRecord;
use super::section::placements::PlacementRecord;
use super::section::pointers::PointerRecord;
use super::section::ranges::RangeRecord;
use super::section::shape::ShapeRecord;
use super::section::steps::StepRecord;
use super::section::streams::StreamRecord;
use super::{toc, validate};
use crate::error::Error;
use crate::ids::{Ordinal, StreamId};

/// Files up to this size are copied.
const COPY_BYTES: u64 = 64 << 20;

/// Where a section's records lie in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// A validated plan file. Everything it hands out is borrowed from the file's bytes; no accessor
/// allocates, blocks or fails.
#[derive(Debug)]
pub struct View {
    bytes: Bytes,
    spans: [Span; SECTIONS],
}

/// The file's bytes.
#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    /// Tests and tools that have the bytes already.
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl View {
    /// Opens and validates a plan.
    ///
    /// # Errors
    /// Every kind of [`Error`] but `Invalid`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let map = map(path).map_err(|error| Error::io(name.as_str(), error))?;
        Self::validated(
            map.map_or_else(|| Bytes::Owned(Vec::new()), Bytes::Mapped),
            &name,
        )
    }

    /// Validates a plan held in memory; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self, Error> {
        Self::validated(Bytes::Owned(bytes), name)
    }

    fn validated(bytes: Bytes, name: &str) -> Result<Self, Error> {
        let spans = toc::decode(bytes.get(), name)?;
        let view = Self { bytes, spans };
        validate::check(&view, name)?;
        Ok(view)
    }

    /// The whole file.
    pub(super) fn file(&self) -> &[u8] {
        self.bytes.get()
    }

    pub(super) fn section(&self, kind: Kind) -> &[u8] {
        let span = self.span(kind);
        let rest = self.bytes.get().get(span.offset..).unwrap_or_default();
        rest.get(..span.bytes).unwrap_or_default()
    }

    pub(super) fn span(&self, kind: Kind) -> Span {
        self.spans
            .get(kind as usize - 1)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn records<T: FromBytes + Immutable + KnownLayout>(&self, kind: Kind) -> &[T] {
        // Records are unaligned types and section sizes are checked, so that this cannot fail.
        <[T]>::ref_from_bytes(self.section(kind)).unwrap_or_default()
    }

    /// Provenance as JSON text.
    #[must_use]
    pub fn meta_json(&self) -> &str {
        std::str::from_utf8(self.section(Kind::Meta)).unwrap_or_default()
    }

    /// Provenance as values. Allocates: for tools, not for the launch path.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the text is not what this version understands.
    pub fn meta(&self, name: &str) -> Result<Meta, Error> {
        serde_json::from_slice(self.section(Kind::Meta)).map_err(|error| Error::Damaged {
            file: name.to_owned(),
            section: Kind::Meta.name(),
            offset: self.span(Kind::Meta).offset as u64,
            what: error.to_string(),
        })
    }

    /// Numbers the replayer needs first.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let records: &[ShapeRecord] = self.records(Kind::Shape);
        records.first().map(ShapeRecord::get).unwrap_or_default()
    }

    /// Function names, by index.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        let records: &[NameRecord] = self.records(Kind::Names);
        records.iter().map(|record| self.name_of(record))
    }

    /// One function name; empty if there is none of this index.
    #[must_use]
    pub fn name(&self, index: u32) -> &str {
        let records: &[NameRecord] = self.records(Kind::Names);
        records
            .get(index as usize)
            .map_or("", |record| self.name_of(record))
    }

    fn name_of(&self, record: &NameRecord) -> &str {
        let bytes = slice_of(self.section(Kind::NameBytes), record.span());
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Allocations the plan speaks of.
    #[must_use]
    pub fn allocs(&self) -> &[AllocRecord] {
        self.records(Kind::Allocs)
    }

    /// Streams, by [`StreamId`].
    #[must_use]
    pub fn streams(&self) -> &[StreamRecord] {
        self.records(Kind::Streams)
    }

    /// Ops of a stream, by [`Ordinal`]; empty for an unknown stream.
    #[must_use]
    pub fn ops(&self, stream: StreamId) -> &[OpRecord] {
        let Some(record) = self.streams().get(stream.index()) else {
            return &[];
        };
        slice_of(self.records(Kind::Ops), record.span())
    }

    /// Managed pointers of an op.
    #[must_use]
    pub fn pointers(&self, op: &OpRecord) -> &[PointerRecord] {
        slice_of(self.records(Kind::Pointers), op.pointer_span())
    }

    /// Managed pointers of all ops.
    #[must_use]
    pub fn all_pointers(&self) -> &[PointerRecord] {
        self.records(Kind::Pointers)
    }

    /// Steps of an op, in order.
    #[must_use]
    pub fn steps(&self, op: &OpRecord) -> &[StepRecord] {
        slice_of(self.records(Kind::Steps), op.step_span())
    }

    /// Steps of the op with this ordinal on this stream, in order. Constant time.
    #[must_use]
    pub fn steps_of(&self, stream: StreamId, ordinal: Ordinal) -> &[StepRecord] {
        self.ops(stream)
            .get(ordinal.index())
            .map_or(&[], |op| self.steps(op))
    }

    /// What a step acts on.
    #[must_use]
    pub fn ranges(&self, step: &StepRecord) -> &[RangeRecord] {
        slice_of(self.records(Kind::StepRanges), step.range_span())
    }

    /// All steps of the plan, sorted by stream and ordinal.
    #[must_use]
    pub fn all_steps(&self) -> &[StepRecord] {
        self.records(Kind::Steps)
    }

    /// Placements that hold from the moment their allocation is bound.
    #[must_use]
    pub fn placements(&self) -> &[PlacementRecord] {
        self.records(Kind::Placements)
    }

    /// Ranges on the device when a steady iteration starts.
    #[must_use]
    pub fn start_resident(&self) -> &[RangeRecord] {
        self.records(Kind::StartResident)
    }

    /// Everything as plain values.
    ///
    /// # Errors
    /// As [`View::meta`].
    pub fn to_plan(&self, name: &str) -> Result<Plan, Error> {
        let ops_of = |index: usize| {
            let stream = StreamId(u32::try_from(index).unwrap_or(u32::MAX));
            self.ops(stream).iter().map(|op| self.plan_op(op)).collect()
        };
        let streams = self.streams().iter().enumerate();
        let streams = streams.map(|(index, stream)| PlanStream {
            stream: stream.get(),
            ops: ops_of(index),
        });
        let steps = self.all_steps().iter().map(|step| Step {
            stream: step.stream(),
            ordinal: step.ordinal(),
            action: step.action(),
            ranges: self.ranges(step).iter().map(RangeRecord::get).collect(),
        });
        Ok(Plan {
            meta: self.meta(name)?,
            shape: self.shape(),
            names: self.names().map(str::to_owned).collect(),
            allocs: self.allocs().iter().map(AllocRecord::get).collect(),
            streams: streams.collect(),
            steps: steps.collect(),
            placements: self.placements().iter().map(PlacementRecord::get).collect(),
            start_resident: self.start_resident().iter().map(RangeRecord::get).collect(),
        })
    }

    fn plan_op(&self, op: &OpRecord) -> PlanOp {
        let pointers = self.pointers(op).iter();
        PlanOp {
            kind: op.kind(),
            name_hash: op.name_hash(),
            shape: op.shape(),
            name: op.name(),
            pointers: pointers
                .map(|pointer| (pointer.alloc(), pointer.offset()))
                .collect(),
        }
    }
}

/// A stretch of a table, empty if it does not lie within.
pub(super) fn slice_of<T>(table: &[T], (first, count): (usize, usize)) -> &[T] {
    table
        .get(first..)
        .and_then(|rest| rest.get(..count))
        .unwrap_or_default()
}

/// Maps the file; `None` for an empty one, which cannot be mapped.
fn map(path: &Path) -> std::io::Result<Option<Mmap>> {
    let (mut file, size) = crate::file::open(path)?;
    if size == 0 {
        return Ok(None);
    }
    if size > COPY_BYTES {
        // SAFETY: the mapping is private and read-only, and only read through checked slices. A
        // plan of this size is far beyond any real one; docs say not to truncate it in use.
        return Ok(Some(unsafe { Mmap::map(&file) }?));
    }
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let mut copy = MmapOptions::new().len(length).populate().map_anon()?;
    file.read_exact(&mut copy)?;
    copy.make_read_only().map(Some)
}
