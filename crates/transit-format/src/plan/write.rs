//! Writes a plan. What is written is validated as a reader would, so that a planner's mistake is
//! an error here and not in production.

use std::io::Write;

use zerocopy::{Immutable, IntoBytes};

use super::layout::{
    AllocRecord, NameRecord, OpRecord, PlacementRecord, PointerRecord, RangeRecord, SECTIONS,
    ShapeRecord, StepRecord, StreamRecord,
};
use super::model::{Plan, PlanOp, Shape, Step};
use super::records::{action_code, op_kind_code, stream_kind_code};
use super::view::View;
use super::{name_hash, toc};
use crate::error::Error;
use crate::ids::{Ordinal, StreamId};

fn invalid(section: &'static str, what: String) -> Error {
    Error::Invalid { section, what }
}

fn bytes_of<T: IntoBytes + Immutable>(records: &[T]) -> Vec<u8> {
    records.as_bytes().to_vec()
}

/// A table index or length; plans have fewer than 2^32 entries of any kind.
fn small(section: &'static str, value: usize) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| invalid(section, format!("{value} entries, over 32 bits")))
}

/// Writes a plan, in one `write_all`.
///
/// # Errors
/// [`Error::Invalid`] for a plan that no reader would accept (a step of an op that is not there, a
/// range outside its allocation, steps out of order, a wrong name hash); [`Error::Io`] if the
/// sink fails.
pub fn write<W: Write>(plan: &Plan, mut sink: W) -> Result<(), Error> {
    let bytes = toc::encode(&sections(plan)?);
    match View::from_bytes(bytes, "<plan>") {
        Ok(view) => {
            sink.write_all(view.file())
                .map_err(|error| Error::io("<sink>", error))?;
            sink.flush().map_err(|error| Error::io("<sink>", error))
        }
        Err(Error::Damaged { section, what, .. }) => Err(invalid(section, what)),
        Err(error) => Err(error),
    }
}

fn sections(plan: &Plan) -> Result<[Vec<u8>; SECTIONS], Error> {
    let meta =
        serde_json::to_vec(&plan.meta).map_err(|error| invalid("meta", error.to_string()))?;
    let (names, name_bytes) = names(plan)?;
    let ops = Ops::collect(plan)?;
    let ranges: Vec<_> = plan.steps.iter().flat_map(|step| &step.ranges).collect();
    let ranges: Vec<_> = ranges.into_iter().map(RangeRecord::new).collect();
    let resident: Vec<_> = plan.start_resident.iter().map(RangeRecord::new).collect();
    let placements: Vec<_> = plan
        .placements
        .iter()
        .map(|placement| PlacementRecord {
            range: RangeRecord::new(&placement.range),
            action: action_code(placement.action).into(),
            reserved: 0.into(),
        })
        .collect();
    Ok([
        meta,
        bytes_of(&[shape_record(&plan.shape)]),
        bytes_of(&names),
        name_bytes,
        bytes_of(&alloc_records(plan)),
        bytes_of(&ops.streams),
        bytes_of(&ops.ops),
        bytes_of(&ops.pointers),
        bytes_of(&step_records(plan)?),
        bytes_of(&ranges),
        bytes_of(&placements),
        bytes_of(&resident),
    ])
}

fn shape_record(shape: &Shape) -> ShapeRecord {
    ShapeRecord {
        capacity_bytes: shape.capacity_bytes.into(),
        card_bytes: shape.card_bytes.into(),
        min_convert_bytes: shape.min_convert_bytes.into(),
        main_stream: shape.main_stream.0.into(),
        anchor_ops: shape.anchor_ops.into(),
        midpoint: shape.midpoint.0.into(),
        flags: u32::from(shape.advise_all_at_midpoint).into(),
        reserved: 0.into(),
    }
}

fn names(plan: &Plan) -> Result<(Vec<NameRecord>, Vec<u8>), Error> {
    let mut bytes = Vec::new();
    let mut records = Vec::with_capacity(plan.names.len());
    for name in &plan.names {
        records.push(NameRecord {
            hash: name_hash(name.as_bytes()).into(),
            first_byte: small("names", bytes.len())?.into(),
            bytes: small("names", name.len())?.into(),
        });
        bytes.extend_from_slice(name.as_bytes());
    }
    Ok((records, bytes))
}

fn alloc_records(plan: &Plan) -> Vec<AllocRecord> {
    let record = |alloc: &super::model::PlanAlloc| AllocRecord {
        bytes: alloc.bytes.into(),
        ordinal: alloc.ordinal.into(),
        turn: alloc.turn.into(),
        device: alloc.device.into(),
        reserved: 0.into(),
    };
    plan.allocs.iter().map(record).collect()
}

fn step_records(plan: &Plan) -> Result<Vec<StepRecord>, Error> {
    let mut first_range = 0;
    let record = |step: &Step| {
        let record = StepRecord {
            action: action_code(step.action).into(),
            stream: step.stream.0.into(),
            ordinal: step.ordinal.0.into(),
            first_range: small("step ranges", first_range)?.into(),
            ranges: small("step ranges", step.ranges.len())?.into(),
            reserved: 0.into(),
        };
        first_range += step.ranges.len();
        Ok(record)
    };
    plan.steps.iter().map(record).collect()
}

/// Streams, ops and pointers, with each op's stretch of the steps.
#[derive(Default)]
struct Ops {
    streams: Vec<StreamRecord>,
    ops: Vec<OpRecord>,
    pointers: Vec<PointerRecord>,
}

impl Ops {
    fn collect(plan: &Plan) -> Result<Self, Error> {
        let mut ops = Self::default();
        let mut rest = plan.steps.as_slice();
        for (stream, planned) in (0_u32..).map(StreamId).zip(&plan.streams) {
            ops.streams.push(StreamRecord {
                kind: stream_kind_code(planned.stream.kind).into(),
                device: planned.stream.device.into(),
                turn: planned.stream.turn.into(),
                first_op: small("ops", ops.ops.len())?.into(),
                ops: small("ops", planned.ops.len())?.into(),
                reserved: 0.into(),
            });
            for (ordinal, op) in (0_u32..).map(Ordinal).zip(&planned.ops) {
                let is_of_op = |step: &Step| (step.stream, step.ordinal) == (stream, ordinal);
                let steps = rest.iter().take_while(|step| is_of_op(step)).count();
                ops.push(op, plan.steps.len() - rest.len(), steps)?;
                rest = rest.get(steps..).unwrap_or_default();
            }
        }
        match rest.first() {
            None => Ok(ops),
            Some(step) => {
                let Step {
                    stream, ordinal, ..
                } = step;
                let what =
                    format!("step at op {ordinal} of stream {stream}: no such op, or not in order");
                Err(invalid("steps", what))
            }
        }
    }

    fn push(&mut self, op: &PlanOp, first_step: usize, steps: usize) -> Result<(), Error> {
        self.ops.push(OpRecord {
            name_hash: op.name_hash.into(),
            shape: op.shape.into(),
            name: op.name.into(),
            kind: op_kind_code(op.kind).into(),
            pointers: small("pointers", op.pointers.len())?.into(),
            first_pointer: small("pointers", self.pointers.len())?.into(),
            first_step: small("steps", first_step)?.into(),
            steps: small("steps", steps)?.into(),
            reserved: 0.into(),
        });
        self.pointers
            .extend(op.pointers.iter().map(|(alloc, offset)| PointerRecord {
                offset: (*offset).into(),
                alloc: (*alloc).into(),
                reserved: 0.into(),
            }));
        Ok(())
    }
}
