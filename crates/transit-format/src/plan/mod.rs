//! Plan files: fixed little-endian records, memory-mapped and validated once. `FORMAT.md` beside
//! this crate describes them to the byte.
//!
//! A planner fills a [`model::Plan`] and [`write()`]s it; a replayer opens a [`View`], whose
//! accessors cost a load or two; tools [`read`] everything back as plain values.

mod layout;
pub mod model;
mod section;
mod toc;
mod validate;
mod view;
mod write;

use std::path::Path;

use crate::error::Error;

pub use layout::VERSION;
pub use section::allocs::AllocRecord;
pub use section::names::NameRecord;
pub use section::ops::OpRecord;
pub use section::placements::PlacementRecord;
pub use section::pointers::PointerRecord;
pub use section::ranges::RangeRecord;
pub use section::steps::StepRecord;
pub use section::streams::StreamRecord;
pub use view::View;
pub use write::write;

/// Reads a whole plan as plain values.
///
/// # Errors
/// As [`View::open`].
pub fn read(path: &Path) -> Result<model::Plan, Error> {
    let name = path.display().to_string();
    View::open(path)?.to_plan(&name)
}

/// 64-bit FNV-1a of a function's mangled name: how a plan recognises a kernel.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
