//! Writes a plan. What is written is validated as a reader would, so that a planner's mistake is
//! an error here and not in production.

use std::io::Write;

use super::layout::SECTIONS;
use super::model::{Plan, Step};
use super::section::allocs::AllocRecord;
use super::section::ops::OpRecord;
use super::section::placements::PlacementRecord;
use super::section::pointers::PointerRecord;
use super::section::ranges::RangeRecord;
use super::section::shape::ShapeRecord;
use super::section::steps::StepRecord;
use super::section::streams::StreamRecord;
use super::section::{bytes_of, names};
use super::toc;
use super::view::View;
use crate::error::Error;
use crate::ids::{Ordinal, StreamId};

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
        Err(Error::Damaged { section, what, .. }) => Err(Error::Invalid { section, what }),
        Err(error) => Err(error),
    }
}

/// The sections of a plan, in file order.
pub(super) fn sections(plan: &Plan) -> Result<[Vec<u8>; SECTIONS], Error> {
    let meta = serde_json::to_vec(&plan.meta).map_err(|error| Error::Invalid {
        section: "meta",
        what: error.to_string(),
    })?;
    let (names, name_bytes) = names::encode(&plan.names)?;
    let ops = Ops::collect(plan)?;
    let allocs: Vec<_> = plan.allocs.iter().map(AllocRecord::new).collect();
    let step_ranges = plan.steps.iter().flat_map(|step| &step.ranges);
    let step_ranges: Vec<_> = step_ranges.map(RangeRecord::new).collect();
    let placements: Vec<_> = plan.placements.iter().map(PlacementRecord::new).collect();
    let resident: Vec<_> = plan.start_resident.iter().map(RangeRecord::new).collect();
    Ok([
        meta,
        bytes_of(&[ShapeRecord::new(&plan.shape)]),
        bytes_of(&names),
        name_bytes,
        bytes_of(&allocs),
        bytes_of(&ops.streams),
        bytes_of(&ops.ops),
        bytes_of(&ops.pointers),
        bytes_of(&steps(plan)?),
        bytes_of(&step_ranges),
        bytes_of(&placements),
        bytes_of(&resident),
    ])
}

fn steps(plan: &Plan) -> Result<Vec<StepRecord>, Error> {
    let mut first_range = 0;
    let record = |step: &Step| {
        let record = StepRecord::new(step, first_range);
        first_range += step.ranges.len();
        record
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
        let mut all = Self::default();
        let mut rest = plan.steps.as_slice();
        for (stream, planned) in (0_u32..).map(StreamId).zip(&plan.streams) {
            all.streams.push(StreamRecord::new(planned, all.ops.len())?);
            for (ordinal, op) in (0_u32..).map(Ordinal).zip(&planned.ops) {
                let is_of_op = |step: &&Step| (step.stream, step.ordinal) == (stream, ordinal);
                let steps = rest.iter().take_while(is_of_op).count();
                let first_step = plan.steps.len() - rest.len();
                all.ops
                    .push(OpRecord::new(op, all.pointers.len(), first_step, steps)?);
                all.pointers
                    .extend(op.pointers.iter().map(PointerRecord::new));
                rest = rest.get(steps..).unwrap_or_default();
            }
        }
        match rest.first() {
            None => Ok(all),
            Some(Step {
                stream, ordinal, ..
            }) => Err(Error::Invalid {
                section: "steps",
                what: format!(
                    "a step for op {ordinal} of stream {stream}, which is not there, or steps are \
                     not sorted by stream and ordinal"
                ),
            }),
        }
    }
}
