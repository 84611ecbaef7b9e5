//! Conversions between counts and table positions, in one place and without `as`.

/// A position in a table.
#[must_use]
pub fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A count or position as stored; saturates, which no table here can reach.
#[must_use]
pub fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A count as a 64-bit number.
#[must_use]
pub fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A share of a whole, 0 of nothing.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "a share is shown with two digits"
)]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// A count as a float for estimates.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "estimates are shown with three digits"
)]
pub fn float(value: u64) -> f64 {
    value as f64
}
