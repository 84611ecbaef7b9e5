//! Writing on a thread of the job's where files have a size limit (`ulimit -f`): the kernel answers
//! a write beyond it with SIGXFSZ, whose default action would end the job for a file of ours.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Runs `write` with SIGXFSZ held back from this thread and taken away afterwards, so that a write
/// beyond the limit is an error like any other.
pub fn without_size_signal<T>(write: impl FnOnce() -> T) -> T {
    // SAFETY: an all-zero sigset is a valid value of this plain C struct.
    let mut signal: libc::sigset_t = unsafe { zeroed() };
    let mut before = signal;
    // SAFETY: `signal` is writable, and the number is a signal's.
    unsafe { libc::sigaddset(&raw mut signal, libc::SIGXFSZ) };
    // SAFETY: both sets are valid; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, &raw mut before) };
    let result = write();
    // SAFETY: a set just filled in.
    let blocked_before = unsafe { libc::sigismember(&raw const before, libc::SIGXFSZ) } == 1;
    if !blocked_before {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a valid set and time; no description is asked for. -1 if none is pending.
        while unsafe { libc::sigtimedwait(&raw const signal, null_mut(), &raw const at_once) } > 0 {
        }
    }
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_a_write_causes_is_gone_and_the_mask_is_as_before() {
        let mask = || {
            // SAFETY: as above.
            let mut mask: libc::sigset_t = unsafe { zeroed() };
            // SAFETY: a null set changes nothing and the mask is written back.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
            // SAFETY: a set just filled in.
            unsafe { libc::sigismember(&raw const mask, libc::SIGXFSZ) }
        };
        let inside = without_size_signal(|| {
            // SAFETY: a signal to this thread; delivered, it would end the test run.
            unsafe { libc::raise(libc::SIGXFSZ) };
            mask()
        });
        assert_eq!((inside, mask()), (1, 0));
    }
}
