//! The real driver's entry points that TRANSIT itself calls, found once after `cuInit`.

/// The real driver, as a table of optional entry points.
#[derive(Debug)]
pub struct Driver {}
