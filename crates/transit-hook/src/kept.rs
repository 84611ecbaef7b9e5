//! Descriptors that stay open for the life of the process: the trace, locks. The table of
//! descriptors is the job's: daemons close everything in it, ours included, and the next file the
//! job opens gets the number. So a kept descriptor lies where a job's own files seldom come to lie,
//! is known by the file behind it and looked at before each use, and a forked child closes its copy
//! only if it still is one.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Kept descriptors are moved to numbers from here on, or from three quarters of what the process
/// may have open if that is less: the lowest free number is what the job's next file gets.
const LOWEST: u64 = 900;
/// Descriptors a child is told of; a process keeps a trace and a lock per GPU.
const MOST: usize = 72;

/// An open file, as the kernel tells files apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// Type and permissions.
    mode: u32,
}

impl Identity {
    /// What is behind `descriptor`; `None` if it is closed.
    #[must_use]
    pub fn of(descriptor: i32) -> Option<Self> {
        // SAFETY: an all-zero stat is a valid value of this plain C struct.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: `stat` is a live local; a descriptor that is none gives an error.
        let asked = unsafe { libc::fstat(descriptor, &raw mut stat) };
        (asked == 0).then_some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode,
        })
    }

    /// Whether it is of this type (`S_IFREG`, ...).
    pub(crate) fn is(&self, kind: u32) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    /// The same file, whatever became of its permissions.
    #[must_use]
    pub fn same_file(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }
}

struct Slot {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        descriptor: AtomicI32::new(-1),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; MOST];

/// Takes an open descriptor over and returns the number it has from now on.
#[must_use]
pub fn keep(descriptor: i32) -> i32 {
    let descriptor = moved_up(descriptor);
    let Some(identity) = Identity::of(descriptor) else {
        return descriptor;
    };
    let free = |slot: &&Slot| {
        slot.descriptor
            .compare_exchange(-1, descriptor, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    if let Some(slot) = SLOTS.iter().find(free) {
        slot.device.store(identity.device, Ordering::Release);
        slot.inode.store(identity.inode, Ordering::Release);
    }
    descriptor
}

fn moved_up(descriptor: i32) -> i32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live local.
    let _ = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let lowest = i32::try_from(LOWEST.min(limit.rlim_cur / 4 * 3)).unwrap_or(0);
    // SAFETY: a duplicate of a descriptor of ours, at or above a number.
    let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
    if moved < 0 {
        return descriptor;
    }
    // SAFETY: the first number of a descriptor that has another now.
    let _ = unsafe { libc::close(descriptor) };
    moved
}

/// In a forked child: closes the copies, so that a lock ends with the process that holds it. Only
/// what is async-signal-safe, as in every child of a threaded process.
pub(crate) fn close_in_child() {
    for slot in &SLOTS {
        let descriptor = slot.descriptor.swap(-1, Ordering::AcqRel);
        if descriptor < 0 {
            continue;
        }
        let ours = Identity::of(descriptor).is_some_and(|identity| {
            identity.device == slot.device.load(Ordering::Acquire)
                && identity.inode == slot.inode.load(Ordering::Acquire)
        });
        if ours {
            // SAFETY: the child's copy of a descriptor of ours.
            let _ = unsafe { libc::close(descriptor) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;

    #[test]
    fn a_kept_file_moves_up_and_is_told_from_what_takes_its_number() {
        let path = std::env::temp_dir().join(format!("transit-kept-{}", std::process::id()));
        let kept = keep(std::fs::File::create(&path).unwrap().into_raw_fd());
        let identity = Identity::of(kept).unwrap();
        assert!(kept >= 64, "{kept}");
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: puts another file behind the kept number, as a job does by chance.
        unsafe { libc::dup2(other.as_raw_fd(), kept) };
        assert!(!Identity::of(kept).unwrap().same_file(&identity));
        close_in_child();
        assert!(Identity::of(kept).is_some(), "not ours any more");
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(kept) };
        assert_eq!(Identity::of(kept), None);
        std::fs::remove_file(path).unwrap();
    }
}
