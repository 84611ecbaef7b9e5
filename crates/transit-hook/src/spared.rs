//! File output on the job's threads. Where nobody reads a pipe any more, or a file has reached the
//! size the process may write, the kernel sends the writing thread a signal, and the job that never
//! wrote there would die of it.

const HELD: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Does `work` with those signals held back and takes away the ones it caused. Signals that were
/// pending before are the job's.
pub fn spared<T>(work: impl FnOnce() -> T) -> T {
    let held = set_of(&HELD);
    let mut before = held;
    // SAFETY: both sets are live locals; only this thread's mask changes.
    let masked =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, &raw mut before) };
    if masked != 0 {
        return work();
    }
    let already = pending();
    let done = work();
    for signal in HELD {
        if member(&pending(), signal) && !member(&already, signal) {
            let one = set_of(&[signal]);
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: takes a blocked, pending signal; nothing is asked about it.
            let _ = unsafe {
                libc::sigtimedwait(&raw const one, core::ptr::null_mut(), &raw const now)
            };
        }
    }
    // SAFETY: gives the thread back the mask it had.
    let _ = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut())
    };
    done
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: an all-zero sigset is a valid value of this plain C struct.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: `set` is writable.
    let _ = unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: `set` is initialised.
        let _ = unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

fn pending() -> libc::sigset_t {
    let mut set = set_of(&[]);
    // SAFETY: `set` is writable.
    let _ = unsafe { libc::sigpending(&raw mut set) };
    set
}

fn member(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: `set` is initialised.
    unsafe { libc::sigismember(core::ptr::from_ref(set), signal) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_reader_kills_nobody() {
        let mut ends = [0; 2];
        // SAFETY: the array holds both ends.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let [read, write] = ends;
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(read) };
        // SAFETY: puts the default action back, which test programs do not have.
        let old = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        // SAFETY: one byte of a live array.
        let wrote = spared(|| unsafe { libc::write(write, c"x".as_ptr().cast(), 1) });
        assert_eq!(wrote, -1);
        assert!(!member(&pending(), libc::SIGPIPE));
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGPIPE, old) };
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(write) };
    }
}
