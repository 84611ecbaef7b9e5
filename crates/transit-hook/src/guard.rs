//! Per thread: are we inside a hook of our own? Nested driver calls (ours, CUPTI's, those of a
//! callback run by the driver) pass straight through. Per hook: no panic leaves it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::state::{self, Live};
use crate::thread::{self, Thread};

/// Held while a hook works; dropped, the thread's calls are observed again. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Guard {
    thread: *const Thread,
    outer: bool,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a thread's words live as long as the thread, which a guard does not leave: a raw
        // pointer is not `Send`.
        unsafe { &*self.thread }.inside.set(self.outer);
    }
}

/// Enters a hook. `None`: not live, or already inside one on this thread: pass straight through.
#[inline]
pub(crate) fn enter() -> Option<(Guard, &'static Live)> {
    let live = state::live()?;
    thread::with(|thread| {
        if thread.inside.get() {
            return None;
        }
        thread.inside.set(true);
        let outer = false;
        Some((Guard { thread, outer }, live))
    })
}

/// Marks the thread as ours until the guard is dropped, whatever the state.
pub(crate) fn ours() -> Guard {
    thread::with(|thread| Guard {
        thread,
        outer: thread.inside.replace(true),
    })
}

/// Whether this thread is inside a hook.
pub(crate) fn inside() -> bool {
    thread::with(|thread| thread.inside.get())
}

/// Runs `work`; a panic in it disables the shim and gives `None`.
#[inline]
pub(crate) fn protect<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| state::disable("an internal fault"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_ours_stays_ours_until_the_outermost_guard_goes() {
        assert!(!inside());
        let outer = ours();
        let inner = ours();
        assert!(inside());
        drop(inner);
        assert!(inside());
        drop(outer);
        assert!(!inside());
    }
}
