//! The plan laid out for following: flat arrays, copied out of the file once at the start so that
//! every page is ours and touched before the first launch, and a plan file that shrinks or is
//! replaced while the job runs cannot hurt it.

use transit_format::ids::{Ordinal, StreamId};
use transit_format::plan::model::{Action, Placement, Plan, PlanAlloc, Range, Shape};
use transit_format::trace::model::{OpKind, Stream};

use super::anchor::Anchor;
use super::landmarks::Landmarks;
use super::stretch;

/// One op of the iteration. Steps and pointers lie in the script's arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpRecord {
    /// FNV-1a of the function's name.
    pub(crate) name_hash: u64,
    /// What it is.
    pub(crate) kind: OpKind,
    /// Index of the first pointer.
    pub(crate) first_pointer: u32,
    /// Number of managed pointers.
    pub(crate) pointers: u32,
    /// Index of the first step.
    pub(crate) first_step: u32,
    /// Number of steps.
    pub(crate) steps: u32,
    /// The pointers by which it is a landmark, a bit each.
    pub(crate) landmark: u8,
    /// Ops from this one on that may be a [stretch](super::stretch).
    pub(crate) quiet: u16,
    /// It is the last of its stream in the iteration.
    pub(crate) last: bool,
}

/// A managed pointer of a plan op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PointerRecord {
    /// Index into the plan's allocations.
    pub(crate) alloc: u32,
    /// Offset within it.
    pub(crate) offset: u64,
}

/// One step of an op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRecord {
    /// What to do.
    pub(crate) action: Action,
    /// Index of the first range.
    pub(crate) first_range: u32,
    /// Number of ranges.
    pub(crate) ranges: u32,
}

/// The ops of one stream: a stretch of the script's ops.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamRecord {
    /// Which stream it was.
    pub(crate) stream: Stream,
    /// Index of the first op.
    pub(crate) first_op: u32,
    /// Number of ops in an iteration.
    pub(crate) ops: u32,
}

/// A whole plan, ready to follow.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) shape: Shape,
    pub(crate) streams: Vec<StreamRecord>,
    pub(crate) ops: Vec<OpRecord>,
    pub(crate) pointers: Vec<PointerRecord>,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) allocs: Vec<PlanAlloc>,
    pub(crate) placements: Vec<Placement>,
    pub(crate) start_resident: Vec<Range>,
    /// How an iteration's start is recognised.
    pub(crate) anchor: Anchor,
    /// Where within one a lost place is found again.
    pub(crate) landmarks: Landmarks,
}

impl Script {
    /// Lays out `plan`. Steps that name a stream or op the plan does not have are dropped.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut script = Self {
            shape: plan.shape,
            allocs: plan.allocs.clone(),
            placements: plan.placements.clone(),
            start_resident: plan.start_resident.clone(),
            ..Self::default()
        };
        for stream in &plan.streams {
            script.streams.push(StreamRecord {
                stream: stream.stream,
                first_op: index32(script.ops.len()),
                ops: index32(stream.ops.len()),
            });
            for (at, op) in stream.ops.iter().enumerate() {
                script.ops.push(OpRecord {
                    name_hash: op.name_hash,
                    kind: op.kind,
                    first_pointer: index32(script.pointers.len()),
                    pointers: index32(op.pointers.len()),
                    last: at + 1 == stream.ops.len(),
                    ..OpRecord::default()
                });
                let records = op.pointers.iter();
                script
                    .pointers
                    .extend(records.map(|&(alloc, offset)| PointerRecord { alloc, offset }));
            }
        }
        script.add_steps(plan);
        let loud = script.ops.iter().map(|op| op.steps > 0 || op.last);
        let quiet = stretch::quiet(loud);
        for (op, quiet) in script.ops.iter_mut().zip(quiet) {
            op.quiet = quiet;
        }
        script.anchor = Anchor::of(&script);
        script.landmarks = Landmarks::of(&mut script);
        script
    }

    fn add_steps(&mut self, plan: &Plan) {
        let mut order: Vec<usize> = (0..plan.steps.len()).collect();
        order.sort_by_key(|&at| plan.steps.get(at).map(|step| (step.stream, step.ordinal)));
        for step in order.iter().filter_map(|&at| plan.steps.get(at)) {
            let first_step = index32(self.steps.len());
            let first_range = index32(self.ranges.len());
            let Some(op) = self.op_index(step.stream, step.ordinal) else {
                continue;
            };
            let Some(record) = self.ops.get_mut(op) else {
                continue;
            };
            if record.steps == 0 {
                record.first_step = first_step;
            }
            record.steps += 1;
            self.ranges.extend_from_slice(&step.ranges);
            let ranges = index32(step.ranges.len());
            self.steps.push(StepRecord {
                action: step.action,
                first_range,
                ranges,
            });
        }
    }

    fn op_index(&self, stream: StreamId, ordinal: Ordinal) -> Option<usize> {
        let stream = self.streams.get(stream.index())?;
        if ordinal.0 >= stream.ops {
            return None;
        }
        Some(stream.first_op as usize + ordinal.index())
    }

    /// The ops of plan stream `stream`.
    pub(crate) fn ops_of(&self, stream: usize) -> &[OpRecord] {
        let Some(stream) = self.streams.get(stream) else {
            return &[];
        };
        let first = stream.first_op as usize;
        self.ops
            .get(first..first + stream.ops as usize)
            .unwrap_or(&[])
    }

    /// The op at position `at` of plan stream `stream`.
    pub(crate) fn op(&self, stream: usize, at: u32) -> Option<&OpRecord> {
        let place = self.place_of(stream, at)?;
        self.ops.get(place as usize)
    }

    /// The place of that op among all ops.
    pub(crate) fn place_of(&self, stream: usize, at: u32) -> Option<u32> {
        let stream = self.streams.get(stream)?;
        (at < stream.ops).then(|| stream.first_op + at)
    }

    /// The same, to note something in it.
    pub(super) fn op_mut(&mut self, stream: usize, at: u32) -> Option<&mut OpRecord> {
        let first_op = self.streams.get(stream)?.first_op;
        self.ops.get_mut((first_op + at) as usize)
    }

    /// Ops per iteration on plan stream `stream`.
    pub(crate) fn length(&self, stream: usize) -> u32 {
        self.streams.get(stream).map_or(0, |stream| stream.ops)
    }

    /// The pointers of `op`.
    pub(crate) fn pointers_of(&self, op: &OpRecord) -> &[PointerRecord] {
        let first = op.first_pointer as usize;
        self.pointers
            .get(first..first + op.pointers as usize)
            .unwrap_or(&[])
    }

    /// The steps of `op`.
    pub(crate) fn steps_of(&self, op: &OpRecord) -> &[StepRecord] {
        let first = op.first_step as usize;
        self.steps
            .get(first..first + op.steps as usize)
            .unwrap_or(&[])
    }

    /// The ranges of `step`.
    pub(crate) fn ranges_of(&self, step: &StepRecord) -> &[Range] {
        let first = step.first_range as usize;
        self.ranges
            .get(first..first + step.ranges as usize)
            .unwrap_or(&[])
    }

    /// Index of the stream whose ops define the iteration.
    pub(crate) fn main_stream(&self) -> usize {
        self.shape.main_stream.index()
    }
}

/// Tables of a plan are far below 2^32 entries (the format bounds them); a larger index would
/// only ever be looked up and not found.
fn index32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
