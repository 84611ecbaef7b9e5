//! TRANSIT's files. This is the only crate that knows bytes: a trace is what the recorder saw, a
//! plan is what the replayer does. `FORMAT.md` beside this crate describes both to the byte.

pub mod ids;
pub mod plan;
pub mod trace;
