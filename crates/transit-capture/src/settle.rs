//! The emulated card's loop: after an op, wait for the device, read what moved in, move the oldest
//! chunks over the limit back to the host.
//!
//! No wait is without bound: a stream may stand behind anything, be it another rank's half of a send
//! or a value that this very thread writes next. Ops of excluded callers (NCCL) are never waited
//! for: an unmatched send never finishes. Another op is waited for on its own stream, for
//! [`PATIENCE`] at most while an excluded op is in flight, else for [`LONGEST`]; then it is left to a
//! later op's turn, and nobody waits on its stream again until it is done. Nothing is done while any
//! stream is captured.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use transit_hook::card::CHUNK_BYTES;
use transit_hook::{Driver, OpCall, OwnStreams};

use crate::collect::Extent;

/// Longest wait for one op while an excluded caller's op is in flight, and for another thread
/// that is settling.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest wait for one op otherwise: faulting in a whole card of 80 GB takes as long.
const LONGEST: Duration = Duration::from_secs(10);
/// Longest wait of a capture's beginning for a thread that is settling: what settles waits for the
/// device, and a capture begun meanwhile is lost.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(15);
/// Queries of an event before the first sleep between two of them.
const EAGER_QUERIES: u32 = 64;
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

/// An op that may still run: the event behind it.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    event: usize,
    context: usize,
    stream: usize,
}

/// Ops that may still run, those that are done forgotten whenever somebody asks.
#[derive(Debug)]
struct Unfinished(Mutex<Vec<InFlight>>);

impl Unfinished {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn list(&self) -> MutexGuard<'_, Vec<InFlight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, driver: &Driver, event: usize, stream: usize) {
        let context = driver.ctx_current().unwrap_or(0);
        self.list().push(InFlight {
            event,
            context,
            stream,
        });
    }

    /// Whether one of those that `which` holds for still runs. No lock is held over a driver call.
    fn any(&self, driver: &Driver, which: impl Fn(&InFlight) -> bool) -> bool {
        let mut list = std::mem::take(&mut *self.list());
        list.retain(|op| {
            let done = driver.event_query(op.event).unwrap_or(true);
            if done {
                let _ = driver.event_destroy(op.event);
            }
            !done
        });
        let found = list.iter().any(which);
        self.list().append(&mut list);
        found
    }

    fn forget(&self, context: usize) {
        self.list().retain(|op| op.context != context);
    }
}

/// One process' settling.
#[derive(Debug)]
pub(crate) struct Settler {
    busy: Mutex<bool>,
    idle: Condvar,
    /// The process ends: CUPTI may be gone at any moment.
    closed: AtomicBool,
    /// Streams of the job under capture.
    captures: AtomicI64,
    /// Ops of excluded callers.
    excluded: Unfinished,
    /// Ops that were not done in time: what comes behind them is not waited for.
    given_up: Unfinished,
    streams: OwnStreams,
    settled: AtomicU64,
    deferred: AtomicU64,
    evicted_bytes: AtomicU64,
    refused: AtomicU64,
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
            closed: AtomicBool::new(false),
            captures: AtomicI64::new(0),
            excluded: Unfinished::new(),
            given_up: Unfinished::new(),
            streams: OwnStreams::new(),
            settled: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
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

    /// Gives no more turns and waits, not for long, for a thread that has one.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let _idle = self.idle.wait_timeout_while(busy, PATIENCE, |busy| *busy);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
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
        if *busy || self.captured() || self.is_closed() {
            return None;
        }
        *busy = true;
        Some(Turn(self))
    }

    /// Remembers an excluded caller's op, so that nobody waits long for what may need it.
    pub(crate) fn excluded(&self, driver: &Driver, op: &OpCall<'_>) {
        if let Some(event) = event_behind(driver, op.stream_handle) {
            self.excluded.push(driver, event, op.stream_handle);
        }
    }

    /// Waits until `op` has run. False if it did not in time: it may have to wait for what this
    /// thread or another rank does next.
    pub(crate) fn wait(&self, driver: &Driver, op: &OpCall<'_>) -> bool {
        let stream = op.stream_handle;
        if self.given_up.any(driver, |op| op.stream == stream) {
            return false;
        }
        let patience = if self.excluded.any(driver, |_| true) {
            PATIENCE
        } else {
            LONGEST
        };
        let Some(event) = event_behind(driver, stream) else {
            return false;
        };
        let over = || self.is_closed() || driver.event_query(event).unwrap_or(true);
        if done_within(patience, over) {
            let _ = driver.event_destroy(event);
            return !self.is_closed();
        }
        self.given_up.push(driver, event, stream);
        false
    }

    /// A context is gone, and what we had in it.
    pub(crate) fn forget(&self, context: usize) {
        self.streams.forget(context);
        self.excluded.forget(context);
        self.given_up.forget(context);
    }

    /// Moves `extents` to the host in requests of at most one chunk, and waits for that. Returns
    /// what the driver refused, which is still on the device.
    pub(crate) fn to_host(&self, driver: &Driver, extents: &[Extent]) -> Vec<Extent> {
        let mut refused = Vec::new();
        if extents.is_empty() {
            return refused;
        }
        let Some(stream) = self.streams.current(driver) else {
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

/// An event recorded behind everything on `stream` so far.
fn event_behind(driver: &Driver, stream: usize) -> Option<usize> {
    let event = driver.event_create().ok()?;
    if driver.event_record(event, stream).is_err() {
        let _ = driver.event_destroy(event);
        return None;
    }
    Some(event)
}

/// Asks until the answer is yes, for `patience` at most; most ops are done at once, so the first
/// questions come without a pause.
fn done_within(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    let mut asked = 0;
    while !done() {
        if began.elapsed() > patience {
            return false;
        }
        if asked < EAGER_QUERIES {
            asked += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(POLL);
        }
    }
    true
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
        settler.close();
        assert!(settler.turn().is_none(), "the process ends");
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
    fn a_wait_ends_when_the_answer_comes_and_when_patience_does() {
        let mut left = 2 * EAGER_QUERIES;
        let counted = || {
            left -= 1;
            left == 0
        };
        assert!(done_within(LONGEST, counted));
        assert!(!done_within(Duration::ZERO, || false));
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
