//! Section 6: streams, each with its ops.
//!
//! ```text
//!  0  4  kind: 0 legacy, 1 per-thread, 2 created
//!  4  4  device
//!  8  4  turn: the n-th stream of this kind on this device
//! 12  4  first op in section 7
//! 16  4  ops
//! 20  4  0
//! ```
//!
//! Streams divide the ops among them in order.

use zerocopy::little_endian::U32;

use super::codes::Code;
use super::{Division, Fault, record, small, unknown};
use crate::error::Error;
use crate::plan::model::PlanStream;
use crate::trace::model::{Stream, StreamKind};

record! {
    /// A stream and its ops.
    pub StreamRecord, 24 {
        0 kind: U32,
        4 device: U32,
        8 turn: U32,
        12 first_op: U32,
        16 ops: U32,
        20 reserved: U32,
    }
}

impl StreamRecord {
    /// Which stream it is.
    #[must_use]
    pub fn get(&self) -> Stream {
        let kind = StreamKind::from_code(self.kind.get()).unwrap_or_default();
        Stream {
            kind,
            device: self.device.get(),
            turn: self.turn.get(),
        }
    }

    /// Ops in its iteration.
    #[must_use]
    pub fn op_count(&self) -> u32 {
        self.ops.get()
    }

    pub(in crate::plan) fn span(&self) -> (usize, usize) {
        (self.first_op.get() as usize, self.ops.get() as usize)
    }

    pub(in crate::plan) fn new(planned: &PlanStream, first_op: usize) -> Result<Self, Error> {
        Ok(Self {
            kind: planned.stream.kind.code().into(),
            device: planned.stream.device.into(),
            turn: planned.stream.turn.into(),
            first_op: small("ops", first_op)?.into(),
            ops: small("ops", planned.ops.len())?.into(),
            reserved: 0.into(),
        })
    }
}

/// Checks one record.
pub(in crate::plan) fn check(record: &StreamRecord, ops: &mut Division) -> Result<(), Fault> {
    if StreamKind::from_code(record.kind.get()).is_none() {
        return unknown("stream kind", record.kind.get());
    }
    ops.take(record.span())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn streams_that_do_not_divide_the_ops_are_damage() {
        for (at, value) in [(12, 1), (16, u32::MAX), (16, 0)] {
            assert_eq!(
                refused(Kind::Streams, |bytes| set(bytes, at, value)),
                "damaged streams"
            );
        }
        assert_eq!(
            refused(Kind::Streams, |bytes| bytes.truncate(24)),
            "damaged ops"
        );
    }

    #[test]
    fn an_unknown_kind_is_newer() {
        assert_eq!(
            refused(Kind::Streams, |bytes| set(bytes, 0, 3)),
            "newer streams"
        );
    }
}
