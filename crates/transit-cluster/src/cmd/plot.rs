//! tmp
use std::path::Path;
use crate::simulate::Run;
/// x
pub struct Chart;
/// x
/// # Errors
/// x
pub fn kind_of(_: &Path) -> anyhow::Result<()> { Ok(()) }
/// x
/// # Errors
/// x
pub fn save(_: &Path, _: &Chart) -> anyhow::Result<()> { Ok(()) }
/// x
#[must_use]
pub fn of_run(_: &Run) -> Chart { Chart }
/// x
#[must_use]
pub fn of_queues(_: &[(&str, &Run)]) -> Chart { Chart }
