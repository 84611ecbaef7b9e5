//! The launch path's way to shared state: a flag that is taken or not, never waited for without
//! bound. One thread launches at a time in nearly every job; where two meet, one goes without.

use std::cell::UnsafeCell;
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Tries on the launch path: a few hundred nanoseconds, some times what the holder needs.
const TRIES: u32 = 200;
/// Tries off the launch path, with the processor given away in between.
const PATIENT_TRIES: u32 = 20_000;

/// A value that one thread at a time may change.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through `Held`, of which there is at most one at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// Gives the flag back, also when unwinding.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    fn take(&self) -> Option<Held<'_>> {
        let free = self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok().then(|| Held(&self.taken))
    }

    /// Runs `work` on the value, or returns `None` if another thread keeps it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        for _ in 0..TRIES {
            if let Some(_held) = self.take() {
                // SAFETY: the flag is ours until `_held` is dropped, so no other reference lives.
                return Some(work(unsafe { &mut *self.value.get() }));
            }
            hint::spin_loop();
        }
        None
    }

    /// The same off the launch path: waits longer, and still not for ever.
    pub(crate) fn with_patience<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        for _ in 0..PATIENT_TRIES {
            if let Some(_held) = self.take() {
                // SAFETY: the flag is ours until `_held` is dropped, so no other reference lives.
                return Some(work(unsafe { &mut *self.value.get() }));
            }
            thread::yield_now();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_the_value_taken_goes_without_and_is_not_held_up() {
        let guarded = Guarded::new(1);
        let inner = guarded.with(|_| guarded.with(|value| *value));
        assert_eq!(inner, Some(None));
        assert_eq!(guarded.with(|value| *value), Some(1));
    }

    #[test]
    fn a_panic_inside_gives_the_value_back() {
        let guarded = Guarded::new(1);
        let work = std::panic::AssertUnwindSafe(|| guarded.with(|_| panic!("inside")));
        assert!(std::panic::catch_unwind(work).is_err());
        assert_eq!(guarded.with(|value| *value), Some(1));
    }

    #[test]
    fn threads_never_overlap() {
        let guarded = Guarded::new(0_u64);
        let done: u64 = thread::scope(|scope| {
            let add = || {
                (0..1000)
                    .filter(|_| guarded.with_patience(|value| *value += 1).is_some())
                    .count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap() as u64)
                .sum()
        });
        assert_eq!(guarded.with(|value| *value), Some(done));
    }
}
