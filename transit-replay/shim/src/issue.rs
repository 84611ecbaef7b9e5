//! Steps become driver calls. Errors are counted and never reach the job: a prefetch is a hint.

use std::sync::atomic::Ordering;

use transit_format::plan::model::{Action, Range};
use transit_hook::driver::Driver;
use transit_hook::observer::OpCall;

use crate::follow::bind::Bindings;
use crate::follow::script::{OpRecord, Script};
use crate::tally::{Tally, add};

/// Largest request towards the device: long ones evict their own head near capacity, and from
/// 64 MiB on the transfer rate no longer grows (measured on an H200).
const PREFETCH_BYTES: u64 = 64 << 20;
/// Largest request towards the host: larger ones stall the device's other work (measured: GEMMs
/// keep their speed beside 2 MiB requests and lose four fifths of it beside 64 MiB ones).
pub(crate) const EVICT_BYTES: u64 = 2 << 20;

/// What is needed to issue.
#[derive(Clone, Copy)]
pub(crate) struct Issuer<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) script: &'a Script,
    pub(crate) bindings: &'a Bindings,
    pub(crate) tally: &'a Tally,
}

/// Where an issued request belongs.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) device: u32,
    pub(crate) stream: usize,
}

impl Target {
    /// The op's own device and stream.
    pub(crate) fn of(call: &OpCall<'_>) -> Self {
        Self {
            device: call.device,
            stream: call.stream_handle,
        }
    }
}

impl Issuer<'_> {
    /// Issues the steps of the plan's `op` before it.
    pub(crate) fn steps(&self, op: &OpRecord, target: Target) {
        for step in self.script.steps_of(op) {
            let mut issued = false;
            for range in self.script.ranges_of(step) {
                issued |= self.range(step.action, range, target);
            }
            add(&self.tally.steps, u64::from(issued));
        }
    }

    /// Does `action` on `range`; whether a call was made.
    pub(crate) fn range(&self, action: Action, range: &Range, target: Target) -> bool {
        let Some((address, bytes)) = self.bindings.resolve(range) else {
            add(&self.tally.unresolved, 1);
            return false;
        };
        self.act(action, address, bytes, target);
        true
    }

    /// Does `action` on an address range.
    pub(crate) fn act(&self, action: Action, address: u64, bytes: u64, target: Target) {
        let device = target.device;
        match action {
            Action::PrefetchToDevice | Action::EvictToHost => {
                let moved = self.send(action, address, bytes, target);
                let counter = if action == Action::EvictToHost {
                    &self.tally.evicted_bytes
                } else {
                    &self.tally.prefetched_bytes
                };
                add(counter, moved);
            }
            Action::AdviseAccessedBy => {
                let outcome = self.driver.advise_accessed_by(address, bytes, device);
                self.advised(outcome, bytes);
            }
            Action::AdvisePreferHost => {
                let outcome = self.driver.advise_prefer_host(address, bytes);
                self.advised(outcome, bytes);
            }
            Action::AdviseReadMostly => {
                let outcome = self.driver.advise_read_mostly(address, bytes, true);
                self.advised(outcome, bytes);
            }
        }
    }

    /// Asks for a range to come to the device or go to the host; the bytes that were asked for.
    pub(crate) fn send(&self, action: Action, address: u64, bytes: u64, target: Target) -> u64 {
        let Target { device, stream } = target;
        if action == Action::EvictToHost {
            return in_requests(address, bytes, EVICT_BYTES, |address, bytes| {
                self.count(self.driver.mem_prefetch_to_host(address, bytes, stream))
            });
        }
        in_requests(address, bytes, PREFETCH_BYTES, |address, bytes| {
            self.count(
                self.driver
                    .mem_prefetch_to_device(address, bytes, device, stream),
            )
        })
    }

    /// Takes back what [`Issuer::act`] advised.
    pub(crate) fn undo(&self, action: Action, address: u64, bytes: u64, device: u32) {
        let outcome = match action {
            Action::PrefetchToDevice | Action::EvictToHost => return,
            Action::AdviseAccessedBy => self.driver.unadvise_accessed_by(address, bytes, device),
            Action::AdvisePreferHost => self.driver.unadvise_prefer(address, bytes),
            Action::AdviseReadMostly => self.driver.advise_read_mostly(address, bytes, false),
        };
        self.count(outcome);
    }

    fn advised(&self, outcome: Result<(), u32>, bytes: u64) {
        if self.count(outcome) {
            add(&self.tally.advised_bytes, bytes);
        }
    }

    fn count(&self, outcome: Result<(), u32>) -> bool {
        if let Err(error) = outcome {
            add(&self.tally.errors, 1);
            self.tally
                .last_error
                .store(u64::from(error), Ordering::Relaxed);
        }
        outcome.is_ok()
    }
}

/// Cuts a range into requests that end at multiples of `most` in address space; the bytes of
/// those that succeeded.
fn in_requests(
    address: u64,
    bytes: u64,
    most: u64,
    mut request: impl FnMut(u64, u64) -> bool,
) -> u64 {
    let (mut at, mut left, mut done) = (address, bytes, 0);
    while left > 0 {
        let size = left.min(most - at % most);
        if request(at, size) {
            done += size;
        }
        at = at.saturating_add(size);
        left -= size;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cover_the_range_once_and_end_at_block_boundaries() {
        let mut seen = Vec::new();
        let mib = 1 << 20;
        let done = in_requests(3 * mib, 4 * mib, EVICT_BYTES, |address, bytes| {
            seen.push((address / mib, bytes / mib));
            address != 4 * mib
        });
        assert_eq!(seen, [(3, 1), (4, 2), (6, 1)]);
        assert_eq!(done, 2 * mib);
    }
}
