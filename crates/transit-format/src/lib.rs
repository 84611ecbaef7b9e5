//! TRANSIT's files. This is the only crate that knows bytes: a trace is what the recorder saw, a
//! plan is what the replayer does. `FORMAT.md` beside this crate describes both to the byte.

mod error;
pub mod ids;
#[cfg(feature = "plan")]
pub mod plan;
pub mod trace;

pub use error::Error;
