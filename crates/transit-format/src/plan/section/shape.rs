//! Section 2: numbers the replayer needs first. Exactly one record.
//!
//! ```text
//!  0  8  capacity the plan was built for, bytes
//!  8  8  emulated card, bytes; 0: none
//! 16  8  smallest converted allocation, bytes
//! 24  4  main stream, a stream of the plan
//! 28  4  anchor ops: leading ops of its iteration that identify the start
//! 32  4  midpoint, an ordinal of the main stream
//! 36  4  flags: 1 advise accessed-by on all at the midpoint
//! 40  8  0
//! ```

use zerocopy::little_endian::{U32, U64};

use super::{Fault, record, unknown, wrong};
use crate::ids::{Ordinal, StreamId};
use crate::plan::model::Shape;
use crate::plan::view::View;

record! {
    /// Numbers the replayer needs first.
    pub(in crate::plan) ShapeRecord, 48 {
        0 capacity_bytes: U64,
        8 card_bytes: U64,
        16 min_convert_bytes: U64,
        24 main_stream: U32,
        28 anchor_ops: U32,
        32 midpoint: U32,
        36 flags: U32,
        40 reserved: U64,
    }
}

impl ShapeRecord {
    /// The record as a value.
    pub(in crate::plan) fn get(&self) -> Shape {
        Shape {
            capacity_bytes: self.capacity_bytes.get(),
            card_bytes: self.card_bytes.get(),
            main_stream: StreamId(self.main_stream.get()),
            anchor_ops: self.anchor_ops.get(),
            midpoint: Ordinal(self.midpoint.get()),
            advise_all_at_midpoint: self.flags.get() & 1 != 0,
            min_convert_bytes: self.min_convert_bytes.get(),
        }
    }

    pub(in crate::plan) fn new(shape: &Shape) -> Self {
        Self {
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
}

/// Checks the section. A plan without streams (placements only) has no main stream to check.
pub(in crate::plan) fn check(view: &View, records: &[ShapeRecord]) -> Result<(), Fault> {
    let [record] = records else {
        return wrong(format!("{} records, not 1", records.len()));
    };
    if record.flags.get() > 1 {
        return unknown("flag set", record.flags.get());
    }
    let shape = record.get();
    let streams = view.streams();
    if streams.is_empty() {
        return Ok(());
    }
    let Some(main) = streams.get(shape.main_stream.index()) else {
        return wrong(format!(
            "main stream {} of {}",
            shape.main_stream,
            streams.len()
        ));
    };
    let ops = main.op_count();
    if shape.anchor_ops > ops || shape.midpoint.0 > ops {
        return wrong(format!(
            "{} anchor ops and midpoint {} in an iteration of {ops}",
            shape.anchor_ops, shape.midpoint
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn streams_and_ops_outside_the_plan_are_damage() {
        for (at, value) in [(24, 2), (28, 4), (32, 4)] {
            assert_eq!(
                refused(Kind::Shape, |bytes| set(bytes, at, value)),
                "damaged shape"
            );
        }
        assert_eq!(
            refused(Kind::Shape, |bytes| bytes.extend([0; 48])),
            "damaged shape"
        );
        assert_eq!(refused(Kind::Shape, Vec::clear), "damaged shape");
    }

    #[test]
    fn an_unknown_flag_is_newer() {
        assert_eq!(
            refused(Kind::Shape, |bytes| set(bytes, 36, 2)),
            "newer shape"
        );
    }
}
