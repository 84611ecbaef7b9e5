//! What `transit-record` and `transit-replay` share: finding the shim, starting the job under it,
//! passing signals and the exit status through, and the file name templates of traces and plans.
//! Depends on nothing but libc, so that shims can use [`template`] too.

mod exclusions;
mod failure;
mod job;
mod program;
mod shim;
mod signals;
pub mod template;

pub use exclusions::exclusion_file;
pub use failure::{Failure, dashes_missing, say};
pub use job::{Job, LAUNCHED_NS, Outcome};
pub use shim::find_shim;
