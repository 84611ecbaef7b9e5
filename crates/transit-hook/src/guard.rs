//! Per thread: are we inside a hook of our own? Nested driver calls (ours, CUPTI's, those of a
//! callback run by the driver) pass straight through. Per hook: no panic leaves it.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::state::{self, Live};

thread_local! {
    // `const` and without a destructor: a plain thread-local load, usable at any time of a
    // thread's life, never allocating.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Held while a hook works; dropped, the thread's calls are observed again. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Guard {
    /// This thread's flag: in a library, finding it costs as much as the rest of a guard.
    inside: *const Cell<bool>,
    outer: bool,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the flag has no destructor and lives as long as its thread, which a guard does
        // not leave: a raw pointer is not `Send`.
        unsafe { &*self.inside }.set(self.outer);
    }
}

/// Enters a hook. `None`: not live, or already inside one on this thread: pass straight through.
#[inline]
pub(crate) fn enter() -> Option<(Guard, &'static Live)> {
    let live = state::live()?;
    INSIDE.with(|inside| {
        if inside.get() {
            return None;
        }
        inside.set(true);
        let outer = false;
        Some((Guard { inside, outer }, live))
    })
}

/// Marks the thread as ours until the guard is dropped, whatever the state.
pub(crate) fn ours() -> Guard {
    INSIDE.with(|inside| Guard {
        inside,
        outer: inside.replace(true),
    })
}

/// Whether this thread is inside a hook.
pub(crate) fn inside() -> bool {
    INSIDE.with(Cell::get)
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
