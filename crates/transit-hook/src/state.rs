//! What the process' shim is doing: inert before `cuInit`, live, disabled, or a forked child.

use transit_format::ids::OpSeq;

use crate::observer::Observer;
use crate::settings::Settings;

/// Says who observes. Called once by a shim's set-up function; nothing else happens until the
/// first `cuInit` has succeeded. Later calls are ignored.
pub fn install(observer: &'static dyn Observer, settings: Settings) {
    let _ = (observer, settings);
}

/// Ends observation for the rest of the process (fail open): the job goes on, wrappers pass
/// through, frees stay matched. Says `reason` once on stderr.
pub fn disable(reason: &str) {
    let _ = reason;
}

/// Ops numbered so far in this process: the sequence number the next op will get.
#[must_use]
pub fn ops_issued() -> OpSeq {
    OpSeq(0)
}

/// Runs `work` with this thread marked as ours: driver calls made in it pass straight through.
/// For helper threads of a shim.
pub fn as_our_own<T>(work: impl FnOnce() -> T) -> T {
    work()
}
