//! What the process' shim is doing: inert before `cuInit`, live, disabled, or a forked child that
//! must not touch CUDA.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use transit_format::ids::OpSeq;

use crate::driver::{self as table, Driver};
use crate::ledger::Ledger;
use crate::observer::Observer;
use crate::settings::Settings;
use crate::{callers, exclusions, guard, kept, ledger, log};

const INERT: u8 = 0;
const STARTING: u8 = 1;
const LIVE: u8 = 2;
const DISABLED: u8 = 3;
const CHILD: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(INERT);
static OPS: AtomicU64 = AtomicU64::new(0);
static CAPTURED_OPS: AtomicU64 = AtomicU64::new(0);
static SHIM: OnceLock<Shim> = OnceLock::new();
static DRIVER: OnceLock<Driver> = OnceLock::new();
/// The process that went live. A child made past `fork` (`vfork`, a bare `clone`) runs no handler
/// of ours and is known by its number.
static PROCESS: AtomicI32 = AtomicI32::new(0);

struct Shim {
    observer: &'static dyn Observer,
    settings: Settings,
}

/// What a hook works with, in one place: a launch looks it up once.
pub(crate) struct Live {
    pub(crate) driver: &'static Driver,
    pub(crate) ledger: &'static Ledger,
    pub(crate) observer: &'static dyn Observer,
    /// Ops are written down: they are numbered and their shapes hashed.
    pub(crate) writes_down: bool,
}

/// Set while the state is [`LIVE`], so that a launch asks one thing alone.
static TOGETHER: AtomicPtr<Live> = AtomicPtr::new(ptr::null_mut());

/// Says who observes. Called once by a shim's set-up function; nothing else happens until the
/// first `cuInit` has succeeded. Later calls are ignored.
pub fn install(observer: &'static dyn Observer, settings: Settings) {
    if settings.disable {
        STATE.store(DISABLED, Ordering::Release);
    }
    let _ = SHIM.set(Shim { observer, settings });
}

/// Runs a shim's set-up function, once in the process. A panic in it leaves the shim disabled.
#[doc(hidden)]
pub fn set_up_once(set_up: fn()) {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() || guard::inside() {
        return;
    }
    ONCE.call_once(|| {
        let _ours = guard::ours();
        let _ = guard::protect(set_up);
    });
}

/// The settings given to [`install`].
#[must_use]
pub fn settings() -> Option<&'static Settings> {
    SHIM.get().map(|shim| &shim.settings)
}

/// The observer; `None` before [`install`].
pub(crate) fn observer() -> Option<&'static dyn Observer> {
    SHIM.get().map(|shim| shim.observer)
}

/// The real driver, once `cuInit` has succeeded.
#[must_use]
pub fn driver() -> Option<&'static Driver> {
    DRIVER.get()
}

pub(crate) fn prefix() -> &'static str {
    SHIM.get().map_or("transit", |shim| shim.settings.prefix)
}

pub(crate) fn quiet() -> bool {
    SHIM.get().is_some_and(|shim| shim.settings.quiet)
}

/// What hooks work with; `None` where they do not observe.
#[inline]
pub(crate) fn live() -> Option<&'static Live> {
    // SAFETY: null, or what `go_live` leaked.
    unsafe { TOGETHER.load(Ordering::Acquire).as_ref() }
}

/// Ends observation for the rest of the process (fail open): the job goes on, wrappers pass
/// through, frees stay matched. Says `reason` once on stderr.
pub fn disable(reason: &str) {
    let before = STATE
        .try_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state != CHILD && state != DISABLED).then_some(DISABLED)
        })
        .unwrap_or(DISABLED);
    TOGETHER.store(ptr::null_mut(), Ordering::Release);
    if before != DISABLED && before != CHILD {
        log::complain(format_args!("{reason}; the job runs on without us"));
    }
}

/// Ops numbered so far in this process: the sequence number the next op will get.
#[must_use]
pub fn ops_issued() -> OpSeq {
    OpSeq(OPS.load(Ordering::Acquire))
}

/// The next op's number. A captured op takes its number from a count of its own.
#[inline]
pub(crate) fn number_op(captured: bool) -> OpSeq {
    let counter = if captured { &CAPTURED_OPS } else { &OPS };
    OpSeq(counter.fetch_add(1, Ordering::AcqRel))
}

/// Runs `work` with this thread marked as ours: driver calls made in it pass straight through.
/// For helper threads of a shim.
pub fn as_our_own<T>(work: impl FnOnce() -> T) -> T {
    let _ours = guard::ours();
    work()
}

/// The first `cuInit` has succeeded: goes live. Called with every success; only the first counts.
/// Another thread that comes meanwhile waits, at most two seconds.
pub(crate) fn started() {
    let first = STATE
        .compare_exchange(INERT, STARTING, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if first {
        let _ours = guard::ours();
        let _ = guard::protect(go_live);
        return;
    }
    for _ in 0..2000 {
        if STATE.load(Ordering::Acquire) != STARTING || guard::inside() {
            return;
        }
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
}

fn go_live() {
    let Some(shim) = SHIM.get() else { return };
    let Some(found) = table::resolve_from_process() else {
        disable("libcuda.so.1 is not where the process found cuInit");
        return;
    };
    let driver = DRIVER.get_or_init(|| found);
    for variable in &shim.settings.unreadable {
        log::complain(format_args!(
            "{variable} is not a number of bytes or items; ignored"
        ));
    }
    let ledger = match ledger::start() {
        Ok(ledger) => ledger,
        Err(reason) => return disable(reason),
    };
    callers::start(&shim.settings);
    exclusions::start(&shim.settings);
    // SAFETY: the handler touches atomics and closes descriptors only, as a child of a threaded
    // process must.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    close_before_what_is_loaded();
    // SAFETY: as `atexit`'s handler; `quick_exit` runs no other handlers.
    let _ = unsafe { at_quick_exit(at_exit) };
    PROCESS.store(this_process(), Ordering::Release);
    shim.observer.started(driver);
    let live = Box::leak(Box::new(Live {
        driver,
        ledger,
        observer: shim.observer,
        writes_down: shim.observer.writes_down(),
    }));
    TOGETHER.store(live, Ordering::Release);
    let lives = STATE.compare_exchange(STARTING, LIVE, Ordering::AcqRel, Ordering::Acquire);
    if lives.is_err() {
        // Disabled meanwhile.
        TOGETHER.store(ptr::null_mut(), Ordering::Release);
    }
}

unsafe extern "C" {
    // Missing from the `libc` crate.
    fn at_quick_exit(handler: extern "C" fn()) -> libc::c_int;
}

fn this_process() -> i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::getpid() }
}

extern "C" fn in_child() {
    STATE.store(CHILD, Ordering::Release);
    TOGETHER.store(ptr::null_mut(), Ordering::Release);
    kept::close_in_child();
}

/// Makes the observer's closing run before the exit handlers of everything loaded until now. To be
/// called again by a shim that has loaded a library it needs for closing: exit handlers run in the
/// reverse order of registration, and CUPTI crashes when it is called after its own (CuPy on an
/// H200: the job's results were out, then signal 11). Closing happens once, however often it is
/// registered.
pub fn close_before_what_is_loaded() {
    // SAFETY: `at_exit` is a function without arguments that does not unwind.
    let _ = unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let _ours = guard::ours();
    let _ = guard::protect(close_once);
}

/// Tells the observer to finish, at most once and never in a forked child.
pub(crate) fn close_once() {
    static CLOSED: AtomicBool = AtomicBool::new(false);
    if STATE.load(Ordering::Acquire) == CHILD
        || DRIVER.get().is_none()
        || PROCESS.load(Ordering::Acquire) != this_process()
    {
        return;
    }
    if !CLOSED.swap(true, Ordering::AcqRel)
        && let Some(observer) = observer()
    {
        observer.closing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_ops_take_no_number_of_the_process() {
        let before = ops_issued();
        let captured = number_op(true);
        assert_eq!(ops_issued(), before);
        assert_eq!(number_op(true).0, captured.0 + 1);
        assert_eq!(number_op(false), before);
        assert_eq!(ops_issued().0, before.0 + 1);
    }
}
