//! Section 9: things to do before ops, sorted by stream and ordinal.
//!
//! ```text
//!  0  4  action: 0 prefetch to device, 1 evict to host, 2 advise accessed-by,
//!        3 advise prefer-host, 4 advise read-mostly
//!  4  4  stream of the op
//!  8  4  ordinal of the op
//! 12  4  first range in section 10
//! 16  4  ranges
//! 20  4  0
//! ```
//!
//! Steps divide the ranges among them in order. No action can discard data: none may ever be
//! added that does.

use zerocopy::little_endian::U32;

use super::codes::Code;
use super::{Division, Fault, record, small, unknown};
use crate::error::Error;
use crate::ids::{Ordinal, StreamId};
use crate::plan::model::{Action, Step};

record! {
    /// A step.
    pub StepRecord, 24 {
        0 action: U32,
        4 stream: U32,
        8 ordinal: U32,
        12 first_range: U32,
        16 ranges: U32,
        20 reserved: U32,
    }
}

impl StepRecord {
    /// What to do.
    #[must_use]
    pub fn action(&self) -> Action {
        Action::from_code(self.action.get()).unwrap_or_default()
    }

    /// Stream of the op it belongs to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId(self.stream.get())
    }

    /// Ordinal of the op it belongs to.
    #[must_use]
    pub fn ordinal(&self) -> Ordinal {
        Ordinal(self.ordinal.get())
    }

    pub(in crate::plan) fn range_span(&self) -> (usize, usize) {
        (self.first_range.get() as usize, self.ranges.get() as usize)
    }

    /// A step whose ranges begin at this place.
    pub(in crate::plan) fn new(step: &Step, first_range: usize) -> Result<Self, Error> {
        Ok(Self {
            action: step.action.code().into(),
            stream: step.stream.0.into(),
            ordinal: step.ordinal.0.into(),
            first_range: small("step ranges", first_range)?.into(),
            ranges: small("step ranges", step.ranges.len())?.into(),
            reserved: 0.into(),
        })
    }
}

/// Refuses an action this build does not know.
pub(in crate::plan) fn check_action(code: U32) -> Result<(), Fault> {
    match Action::from_code(code.get()) {
        Some(_) => Ok(()),
        None => unknown("action", code.get()),
    }
}

/// Checks one record.
pub(in crate::plan) fn check(step: &StepRecord, ranges: &mut Division) -> Result<(), Fault> {
    check_action(step.action)?;
    ranges.take(step.range_span())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn steps_of_other_ops_or_with_other_ranges_are_damage() {
        for (at, value) in [(4, 1), (8, 1), (12, 1), (16, u32::MAX), (16, 9)] {
            let refusal = refused(Kind::Steps, |bytes| set(bytes, at, value));
            assert_eq!(refusal, "damaged steps", "field at {at}");
        }
    }

    #[test]
    fn an_unknown_action_is_newer() {
        assert_eq!(
            refused(Kind::Steps, |bytes| set(bytes, 0, 5)),
            "newer steps"
        );
    }
}
