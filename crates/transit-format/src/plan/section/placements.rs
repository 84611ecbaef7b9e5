//! Section 11: placements, done once when their allocation is bound.
//!
//! ```text
//!  0 24  range, as in section 10
//! 24  4  action, as in section 9
//! 28  4  0
//! ```

use zerocopy::little_endian::U32;

use super::allocs::AllocRecord;
use super::codes::Code;
use super::ranges::RangeRecord;
use super::{Fault, ranges, record, steps};
use crate::plan::model::{Action, Placement};

record! {
    /// A placement.
    pub PlacementRecord, 32 {
        0 range: RangeRecord,
        24 action: U32,
        28 reserved: U32,
    }
}

impl PlacementRecord {
    /// What to do once.
    #[must_use]
    pub fn action(&self) -> Action {
        Action::from_code(self.action.get()).unwrap_or_default()
    }

    /// On what.
    #[must_use]
    pub fn range(&self) -> &RangeRecord {
        &self.range
    }

    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> Placement {
        Placement {
            action: self.action(),
            range: self.range.get(),
        }
    }

    pub(in crate::plan) fn new(placement: &Placement) -> Self {
        Self {
            range: RangeRecord::new(&placement.range),
            action: placement.action.code().into(),
            reserved: 0.into(),
        }
    }
}

/// Checks one record.
pub(in crate::plan) fn check(
    placement: &PlacementRecord,
    allocs: &[AllocRecord],
) -> Result<(), Fault> {
    steps::check_action(placement.action)?;
    ranges::check(placement.range(), allocs)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn ranges_and_actions_are_checked() {
        let change = |at, value| refused(Kind::Placements, |bytes| set(bytes, at, value));
        assert_eq!(change(16, 2), "damaged placements");
        assert_eq!(change(24, 5), "newer placements");
    }
}
