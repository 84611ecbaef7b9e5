//! Writing on a thread of the job's where files have a size limit (`ulimit -f`): the kernel answers
//! a write beyond it with SIGXFSZ, whose default action would end the job for a file of ours.

use transit_hook::spared::spared;

/// Runs `write` with SIGXFSZ (and SIGPIPE) held back from this thread and taken away afterwards, so
/// that a write beyond the limit is an error like any other.
pub fn without_size_signal<T>(write: impl FnOnce() -> T) -> T {
    spared(write)
}

#[cfg(test)]
mod tests {
    use std::mem::zeroed;

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
