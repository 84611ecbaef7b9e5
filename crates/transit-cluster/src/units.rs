//! Ids and times. Time is whole milliseconds: sums are exact, so work is conserved to the last one and
//! the same input gives the same bytes on every machine.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in simulated time, or a stretch of it, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// From seconds; negative and unordered values become 0, too large ones saturate.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1000.0).round() as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// In hours.
    #[must_use]
    pub fn hours(self) -> f64 {
        self.0 as f64 / 3_600_000.0
    }

    /// The stretch from `earlier` to here, 0 if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Millis {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Millis {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

/// Seconds with three decimals, which is exact.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A node, numbered from 0; nodes of one rack follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A job's place in the simulated trace: by submission, then by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

impl JobId {
    /// As a position in a table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
