//! Signals while the job runs: what someone sends to the launcher is meant for the job.
//!
//! A signal the terminal makes (control-C) reaches the whole foreground group, so the job has it
//! already and a second one would be read as "now, at once"; only signals that a process sent are
//! passed on. Signals that were ignored when we started (`nohup`) stay ignored for both.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const PASSED_ON: [libc::c_int; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// The job has been waited for: nobody to signal any more.
const GONE: i32 = -1;

/// Process id of the job, 0 before it is known.
static JOB: AtomicI32 = AtomicI32::new(0);
/// Signals that came before the job's process id was known, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if info.is_null() {
        return;
    }
    // SAFETY: the kernel hands a valid siginfo to a handler installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if code > 0 {
        return;
    }
    let job = JOB.load(Ordering::SeqCst);
    if job == GONE {
        return;
    }
    if job == 0 {
        EARLY.fetch_or(1 << signal, Ordering::SeqCst);
        // The job may have been announced between the two lines above.
        deliver_early();
    } else {
        // SAFETY: kill is async-signal-safe and takes plain numbers.
        unsafe { libc::kill(job, signal) };
    }
}

fn deliver_early() {
    let job = JOB.load(Ordering::SeqCst);
    if job == 0 || job == GONE {
        return;
    }
    let early = EARLY.swap(0, Ordering::SeqCst);
    for signal in PASSED_ON {
        if early & (1 << signal) != 0 {
            // SAFETY: kill is async-signal-safe and takes plain numbers.
            unsafe { libc::kill(job, signal) };
        }
    }
}

/// From here on signals are kept for the job.
pub(crate) fn install() {
    for signal in PASSED_ON {
        // SAFETY: an all-zero sigaction is a valid value of this plain C struct.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `old` is writable and a null new action only asks.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) };
        if asked != 0 || old.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: an all-zero sigaction is a valid value of this plain C struct.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = pass_on as *const () as libc::sighandler_t;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler only uses async-signal-safe calls and atomics.
        unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) };
    }
}

/// Tells who the job is and passes on what came before.
pub(crate) fn announce(job: u32) {
    JOB.store(i32::try_from(job).unwrap_or(0), Ordering::SeqCst);
    deliver_early();
}

/// The job is gone and its process id may be given to somebody else.
pub(crate) fn retire() {
    JOB.store(GONE, Ordering::SeqCst);
}

/// Ends this process by `signal`, as the job ended. Returns only if the signal cannot kill.
pub(crate) fn die_by(signal: libc::c_int) {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `no_core` is a valid limit; the job's own core dump is the useful one.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    // SAFETY: restores the default action of a signal.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: an all-zero sigset is a valid value of this plain C struct.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: `set` is initialised.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: unblocks one signal of this thread.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    // SAFETY: raise takes a plain number.
    unsafe { libc::raise(signal) };
}
