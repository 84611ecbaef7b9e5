//! The few words that every hook asks of its thread: is it inside a hook of ours, and who called last?
//!
//! A library's thread-local variable costs a call of `__tls_get_addr` and the saving of a launch's
//! argument registers around it, 30 instructions in all. On x86-64 ours lies at a fixed distance from
//! the thread pointer instead (the "initial-exec" model): a shim is there from the process' start, and
//! one that the driver loads later finds room in what the C library keeps for such libraries (1,664
//! bytes in glibc, of which all that a shim has per thread takes some 200). Rust has no stable way to
//! ask for that but assembly.

use core::cell::Cell;

use crate::callers::Range;

/// A thread's words; all zero at first, without a destructor.
#[repr(C)]
pub(crate) struct Thread {
    /// Inside a hook of ours, or a thread of ours.
    pub(crate) inside: Cell<bool>,
    /// Where its last caller lies.
    pub(crate) last_caller: Cell<Option<&'static Range>>,
}

const _: () = assert!(size_of::<Thread>() == 16);

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.transit_hook_thread, \"awT\", @nobits",
    ".balign 16",
    ".globl transit_hook_thread",
    ".hidden transit_hook_thread",
    ".type transit_hook_thread, @object",
    ".size transit_hook_thread, 16",
    "transit_hook_thread:",
    ".zero 16",
    ".popsection",
);

/// This thread's words. They live as long as the thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn current() -> *const Thread {
    let address;
    // SAFETY: reads where the variable lies from the thread pointer, which points to itself, and from
    // the offset that the dynamic linker has put down.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + transit_hook_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}

/// This thread's words. They live as long as the thread.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn current() -> *const Thread {
    thread_local! {
        static THREAD: Thread = const {
            Thread {
                inside: Cell::new(false),
                last_caller: Cell::new(None),
            }
        };
    }
    THREAD.with(core::ptr::from_ref)
}

/// Looks at this thread's words.
#[inline(always)]
pub(crate) fn with<T>(look: impl FnOnce(&Thread) -> T) -> T {
    // SAFETY: they live as long as the thread, are all zero or what was put there, and no reference
    // to them leaves it.
    look(unsafe { &*current() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own_words_from_zero_on() {
        let mine = current();
        with(|thread| thread.inside.set(true));
        let theirs = std::thread::spawn(|| {
            with(|thread| assert!(!thread.inside.get() && thread.last_caller.get().is_none()));
            current().addr()
        });
        assert_ne!(theirs.join().unwrap(), mine.addr());
        assert!(with(|thread| thread.inside.replace(false)));
        assert_eq!(current(), mine);
    }
}
