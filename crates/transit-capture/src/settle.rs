//! The emulated card's loop: after an op, wait for the device, read what moved in, move the oldest
//! chunks over the limit back to the host.
//!
//! It never waits for ops of excluded callers: an unmatched send of NCCL's would never finish. While
//! one is in flight only the op's own stream is waited for, and that for [`PATIENCE`] at most; then
//! the op is left to the next ordinary op's turn. Nothing is done while any stream is captured.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use transit_hook::card::CHUNK_BYTES;
use transit_hook::{Driver, OpCall};

use crate::collect::Extent;

/// Longest wait for one op while an excluded caller's op is in flight, and for another thread
/// that is settling.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest wait of a capture's beginning for a thread that is settling: what settles waits for the
/// device, and a capture begun meanwhile is lost.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_micros(50);

/// Counts for the header and the last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettleCounts {
    /// Ops after which the card was brought back to its limit.
    pub settled: u64,
    /// Ops left to a later one's turn: captured, excluded, or not done in time.
    pub deferred: u64,
    /// Bytes moved back to the host.
    pub evicted_bytes: u64,
    /// Requests that the driver refused.
    pub refused: u64,
}

/// An op of an excluded caller that may still run: its event.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    event: usize,
    context: usize,
}

/// One process' settling.
#[derive(Debug)]
pub(crate) struct Settler {
    busy: Mutex<bool>,
    idle: Condvar,
    /// Streams of the job under capture.
    captures: AtomicI64,
    in_flight: Mutex<Vec<InFlight>>,
    /// Our own stream in each context.
    streams: Mutex<Vec<(usize, usize)>>,
    settled: AtomicU64,
    deferred: AtomicU64,
    evicted_bytes: AtomicU64,
    refused: AtomicU64,
    /// An excluded caller's op has been seen: the whole context is never waited for again.
    shared: AtomicBool,
    broken: AtomicBool,
}

/// Held by the one thread that settles.
pub(crate) struct Turn<'a>(&'a Settler);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.idle.notify_all();
    }
}

impl Settler {
    pub(crate) const fn new() -> Self {
        Self {
            busy: Mutex::new(false),
            idle: Condvar::new(),
            captures: AtomicI64::new(0),
            in_flight: Mutex::new(Vec::new()),
            streams: Mutex::new(Vec::new()),
            settled: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// A capture is about to begin or has ended. The beginning waits for a thread that is making
    /// driver calls for us, which would ruin the capture; [`Self::turn`] gives no more turns.
    pub(crate) fn capturing(&self, begin: bool) {
        self.captures
            .fetch_add(if begin { 1 } else { -1 }, Ordering::SeqCst);
        if begin {
            let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            let _idle = self
                .idle
                .wait_timeout_while(busy, CAPTURE_PATIENCE, |busy| *busy);
        }
    }

    /// Whether any stream is captured.
    pub(crate) fn captured(&self) -> bool {
        self.captures.load(Ordering::SeqCst) > 0
    }

    /// This thread's turn to make driver calls that a capture does not bear; `None` while any
    /// stream is captured, or if another thread did not finish in time.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut busy, _) = self
            .idle
            .wait_timeout_while(busy, PATIENCE, |busy| *busy)
            .unwrap_or_else(PoisonError::into_inner);
        if *busy || self.captured() {
            return None;
        }
        *busy = true;
        Some(Turn(self))
    }

    /// Remembers an excluded caller's op, so that nobody waits for it.
    pub(crate) fn excluded(&self, driver: &Driver, op: &OpCall<'_>) {
        self.shared.store(true, Ordering::Relaxed);
        let Ok(event) = driver.event_create() else {
            self.broken.store(true, Ordering::Relaxed);
            return;
        };
        if driver.event_record(event, op.stream_handle).is_err() {
            let _ = driver.event_destroy(event);
            return;
        }
        let context = driver.ctx_current().unwrap_or(0);
        let mut list = self
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        list.push(InFlight { event, context });
    }

    /// Whether an excluded caller's op may still run. Forgets those that are done.
    fn waits_for_others(&self, driver: &Driver) -> bool {
        let mut list = {
            let mut list = self
                .in_flight
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *list)
        };
        list.retain(|in_flight| {
            let done = driver.event_query(in_flight.event).unwrap_or(true);
            if done {
                let _ = driver.event_destroy(in_flight.event);
            }
            !done
        });
        let waits = !list.is_empty();
        if waits {
            self.in_flight
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .append(&mut list);
        }
        waits
    }

    /// Waits until `op` has run. False if that may never be.
    pub(crate) fn wait(&self, driver: &Driver, op: &OpCall<'_>) -> bool {
        if self.broken.load(Ordering::Relaxed) {
            return false;
        }
        if !self.shared.load(Ordering::Relaxed) {
            return driver.ctx_synchronize().is_ok();
        }
        let alone = !self.waits_for_others(driver);
        let Ok(event) = driver.event_create() else {
            return false;
        };
        let began = Instant::now();
        let mut done = driver.event_record(event, op.stream_handle).is_ok();
        while done && !driver.event_query(event).unwrap_or(true) {
            if !alone && began.elapsed() > PATIENCE {
                done = false;
            } else {
                std::thread::sleep(POLL);
            }
        }
        let _ = driver.event_destroy(event);
        done
    }

    /// Our stream in the current context; it never synchronises with the job's.
    fn stream(&self, driver: &Driver) -> Option<usize> {
        let context = driver.ctx_current().ok()?;
        {
            let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, stream)) = streams.iter().find(|(of, _)| *of == context) {
                return Some(*stream);
            }
        }
        let stream = driver.stream_create_nonblocking().ok()?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.push((context, stream));
        Some(stream)
    }

    /// A context is gone, and what we had in it.
    pub(crate) fn forget(&self, context: usize) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|(of, _)| *of != context);
        let mut list = self
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        list.retain(|in_flight| in_flight.context != context);
    }

    /// Moves `extents` to the host in requests of at most one chunk, and waits for that. Returns
    /// what the driver refused, which is still on the device.
    pub(crate) fn to_host(&self, driver: &Driver, extents: &[Extent]) -> Vec<Extent> {
        let mut refused = Vec::new();
        if extents.is_empty() {
            return refused;
        }
        let Some(stream) = self.stream(driver) else {
            self.refused
                .fetch_add(extents.len() as u64, Ordering::Relaxed);
            return extents.to_vec();
        };
        for &(base, bytes) in extents {
            let (mut at, end) = (base, base.saturating_add(bytes));
            while at < end {
                let next = ((at / CHUNK_BYTES + 1) * CHUNK_BYTES).min(end);
                match driver.mem_prefetch_to_host(at, next - at, stream) {
                    Ok(()) => self.evicted_bytes.fetch_add(next - at, Ordering::Relaxed),
                    Err(_) => {
                        refused.push((at, next - at));
                        self.refused.fetch_add(1, Ordering::Relaxed)
                    }
                };
                at = next;
            }
        }
        let _ = driver.stream_synchronize(stream);
        refused
    }

    pub(crate) fn count(&self, settled: bool) {
        let counter = if settled {
            &self.settled
        } else {
            &self.deferred
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> SettleCounts {
        SettleCounts {
            settled: self.settled.load(Ordering::Relaxed),
            deferred: self.deferred.load(Ordering::Relaxed),
            evicted_bytes: self.evicted_bytes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_settles_at_a_time_and_others_do_not_wait_for_ever() {
        let settler = Settler::new();
        let turn = settler.turn().unwrap();
        assert!(settler.turn().is_none());
        drop(turn);
        assert!(settler.turn().is_some());
    }

    #[test]
    fn nested_captures_end_with_the_last_one() {
        let settler = Settler::new();
        settler.capturing(true);
        settler.capturing(true);
        settler.capturing(false);
        assert!(settler.captured());
        settler.capturing(false);
        assert!(!settler.captured());
    }

    #[test]
    fn a_driver_that_can_do_nothing_is_never_waited_for() {
        let settler = Settler::new();
        let driver = Driver::default();
        let refused = settler.to_host(&driver, &[(0, CHUNK_BYTES)]);
        assert_eq!(refused, [(0, CHUNK_BYTES)]);
        assert_eq!(settler.counts().refused, 1);
    }
}
