//! Which stream an op goes to, as (kind, device, turn), and whether it is being captured.
//!
//! A created stream is known by its handle until it is destroyed; the default streams by the
//! current context; a per-thread default stream also by its thread.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use transit_format::ids::StreamId;
use transit_format::trace::model::StreamKind;

use crate::driver::{Driver, Handle};
use crate::handles::HandleMap;
use crate::observer::StreamInfo;
use crate::state;

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: Handle = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: Handle = 2;

/// What an op needs to know of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) device: u32,
    /// Handle that means this stream to calls without the per-thread suffix.
    pub(crate) handle: Handle,
    /// The context it ends with.
    context: Handle,
}

thread_local! {
    /// This thread's per-thread default stream, and when it was looked up.
    static MINE: Cell<(u32, Option<Stream>)> = const { Cell::new((0, None)) };
}

/// Contexts that have ended. Their handles come again for others.
static CONTEXTS_GONE: AtomicU32 = AtomicU32::new(0);

/// A stream that waits for the legacy stream, and makes it wait, has been made or used.
static BOUND: AtomicBool = AtomicBool::new(false);
/// Threads that put something into the legacy stream, as long as it makes no other wait.
static ON_LEGACY: AtomicU32 = AtomicU32::new(0);
/// No call of the job's waits longer for them: populating takes 4.6 ms a GiB.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Captures under way in the process: the length of [`UNDER_WAY`], for the launch path.
static CAPTURES: AtomicU32 = AtomicU32::new(0);
/// Streams that are being captured, each with the context it would end with.
static UNDER_WAY: Mutex<Vec<(Handle, Handle)>> = Mutex::new(Vec::new());

static KNOWN: HandleMap<Stream, { 1 << 14 }> = HandleMap::new();

/// The stream that `handle` means to an entry point, `per_thread` for one with a per-thread
/// suffix. Tells the observer of a new one.
#[inline]
pub(crate) fn of(driver: &Driver, handle: Handle, per_thread: bool) -> Stream {
    let handle = canonical(handle, per_thread);
    if handle > PER_THREAD
        && let Some(stream) = KNOWN.get(handle)
    {
        return *stream;
    }
    by_context(driver, handle)
}

/// A default stream, or a created one that is new.
#[inline(never)]
fn by_context(driver: &Driver, handle: Handle) -> Stream {
    let context = driver.ctx_current().unwrap_or(0);
    if handle > PER_THREAD {
        return first_use(driver, handle, context, handle);
    }
    if handle == PER_THREAD {
        return mine(driver, context);
    }
    // Contexts are pointers, so the low bits are free to tell them from streams.
    let key = context | 1;
    match KNOWN.get(key) {
        Some(stream) => *stream,
        None => first_use(driver, LEGACY, context, key),
    }
}

/// A stream is about to be made, or used, that waits for the legacy stream and makes it wait. The first
/// time, waits until what [`beside_none`] is running is over: were the stream captured meanwhile, work
/// put into the legacy stream would ruin the capture.
pub(crate) fn bound_to_legacy() {
    if BOUND.swap(true, Ordering::SeqCst) {
        return;
    }
    let began = Instant::now();
    while ON_LEGACY.load(Ordering::SeqCst) != 0 && began.elapsed() < LONGEST_WAIT {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Runs `work`, which puts something into the legacy stream, unless that may make another stream of
/// the job's wait.
pub(crate) fn beside_none<T>(work: impl FnOnce() -> T) -> Option<T> {
    ON_LEGACY.fetch_add(1, Ordering::SeqCst);
    let done = (!BOUND.load(Ordering::SeqCst)).then(work);
    ON_LEGACY.fetch_sub(1, Ordering::SeqCst);
    done
}

/// The handle by which calls without the per-thread suffix mean the same stream.
#[inline]
pub(crate) fn canonical(handle: Handle, per_thread: bool) -> Handle {
    match (handle, per_thread) {
        (0, true) => PER_THREAD,
        (0, false) => LEGACY,
        _ => handle,
    }
}

fn mine(driver: &Driver, context: Handle) -> Stream {
    let gone = CONTEXTS_GONE.load(Ordering::Acquire);
    let (looked_up, stream) = MINE.with(Cell::get);
    if looked_up == gone
        && let Some(stream) = stream.filter(|stream| stream.context == context)
    {
        return stream;
    }
    // The thread changed contexts: its streams in others are known by the place of its variable,
    // which no other living thread shares.
    let thread = MINE.with(|mine| core::ptr::from_ref(mine).addr());
    let key = (context.rotate_left(20) ^ thread) | 2;
    let stream = match KNOWN.get(key) {
        Some(stream) => *stream,
        None => {
            bound_to_legacy();
            first_use(driver, PER_THREAD, context, key)
        }
    };
    MINE.with(|mine| mine.set((gone, Some(stream))));
    stream
}

/// What all streams are that come when the table is full: numbering each of their ops' streams
/// anew would never end.
static REST: OnceLock<Stream> = OnceLock::new();

#[derive(Debug, Default)]
struct Turns {
    streams: u32,
    of_kind: HashMap<(u8, u32), u32>,
}

/// Numbers a stream and tells the observer, in one piece so that numbers are told in order and
/// before the first op.
#[cold]
fn first_use(driver: &Driver, handle: Handle, context: Handle, key: usize) -> Stream {
    static TURNS: Mutex<Option<Turns>> = Mutex::new(None);
    let device = driver.ctx_device().unwrap_or(0);
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = KNOWN.get(key) {
        return *stream;
    }
    if let Some(rest) = REST.get() {
        return Stream { handle, ..*rest };
    }
    let turns = turns.get_or_insert_default();
    let (kind, code) = match handle {
        LEGACY => (StreamKind::Legacy, 0),
        PER_THREAD => (StreamKind::PerThread, 1),
        _ => (StreamKind::Created, 2),
    };
    let next = turns.of_kind.entry((code, device)).or_default();
    let turn = *next;
    *next += 1;
    let id = StreamId(turns.streams);
    turns.streams += 1;
    if let Some(observer) = state::observer() {
        observer.stream(&StreamInfo {
            id,
            kind,
            device,
            turn,
            context,
            handle,
        });
    }
    let stream = Stream {
        id,
        device,
        handle,
        context,
    };
    if KNOWN.insert(key, stream).is_none() {
        let _ = REST.set(stream);
    }
    stream
}

/// A created stream is about to be destroyed: its handle may come again for another.
pub(crate) fn destroyed(handle: Handle) {
    if handle > PER_THREAD {
        KNOWN.remove(handle);
    }
}

/// A context is gone, and its streams and captures with it. Returns how many captures went.
pub(crate) fn context_gone(context: Handle) -> usize {
    KNOWN.remove_where(|stream| stream.context == context);
    CONTEXTS_GONE.fetch_add(1, Ordering::AcqRel);
    change_captures(|captures| {
        let before = captures.len();
        captures.retain(|(_, of)| *of != context);
        before - captures.len()
    })
}

fn change_captures<T>(change: impl FnOnce(&mut Vec<(Handle, Handle)>) -> T) -> T {
    let mut captures = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = change(&mut captures);
    let count = u32::try_from(captures.len()).unwrap_or(u32::MAX);
    CAPTURES.store(count, Ordering::Release);
    answer
}

/// A capture is about to begin on a stream of `context`.
pub(crate) fn capture_began(stream: Handle, context: Handle) {
    if stream == PER_THREAD {
        bound_to_legacy();
    }
    change_captures(|captures| captures.push((stream, context)));
}

/// A capture ended, or did not begin after all. False if there was none on this stream.
pub(crate) fn capture_ended(stream: Handle) -> bool {
    change_captures(|captures| {
        let place = captures.iter().rposition(|(of, _)| *of == stream);
        place.map(|place| captures.swap_remove(place)).is_some()
    })
}

/// The context a stream ends with.
pub(crate) fn context_of(driver: &Driver, stream: Handle) -> Handle {
    let own = if stream > PER_THREAD {
        driver.stream_context(stream)
    } else {
        driver.ctx_current()
    };
    own.unwrap_or(0)
}

/// Whether any capture is under way in the process.
#[must_use]
#[inline]
pub fn any_capture() -> bool {
    CAPTURES.load(Ordering::Acquire) != 0
}

/// Whether nothing may be added to a stream now. Asks the driver only while some capture is under
/// way; an answer that is an error counts as captured.
#[inline]
pub(crate) fn captured(driver: &Driver, stream: Handle) -> bool {
    any_capture() && driver.stream_is_capturing(stream).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_stream_means_what_its_entry_point_says() {
        assert_eq!(canonical(0, false), LEGACY);
        assert_eq!(canonical(0, true), PER_THREAD);
        assert_eq!(canonical(1, true), LEGACY);
        assert_eq!(canonical(2, false), PER_THREAD);
        assert_eq!(canonical(0x7f00, true), 0x7f00);
    }

    #[test]
    fn a_stream_that_waits_for_the_legacy_stream_comes_after_what_is_put_into_that() {
        let (begun, wait) = std::sync::mpsc::channel();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let done = beside_none(|| {
                    begun.send(()).unwrap();
                    while !BOUND.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    over.store(true, Ordering::SeqCst);
                });
                assert_eq!(done, Some(()));
            });
            wait.recv().unwrap();
            bound_to_legacy();
            assert!(over.load(Ordering::SeqCst));
        });
        assert_eq!(beside_none(|| ()), None);
    }

    #[test]
    fn captures_end_by_stream_or_with_their_context() {
        assert!(!any_capture());
        assert!(!capture_ended(9));
        capture_began(9, 100);
        assert!(any_capture());
        assert!(!capture_ended(8), "another stream's");
        assert!(capture_ended(9));
        assert!(!any_capture());
        for stream in [9, 10, 11] {
            capture_began(stream, 100 + stream % 2);
        }
        assert_eq!(context_gone(101), 2, "those of its streams go with it");
        assert!(any_capture());
        assert!(capture_ended(10));
        assert!(!any_capture());
    }
}
