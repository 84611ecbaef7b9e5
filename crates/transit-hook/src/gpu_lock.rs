//! One converting process per GPU under `TRANSIT_NO_OVERSUBSCRIBE`: an advisory lock on a file named
//! by the GPU's UUID, held for the life of the process. Processes that do not share the folder (other
//! containers) do not see each other.

use core::time::Duration;
use std::ffi::{CStr, CString};

use crate::{kept, log};

/// Between two tries: a process that is exiting gives its lock up within milliseconds of its end.
const PAUSE: Duration = Duration::from_millis(10);
/// Tries after the first, two seconds in all: a job started right behind another must not lose its
/// conversion to a process that is on its way out, and no allocation may wait without bound.
const TRIES: u32 = 200;

/// Another process holds the lock.
#[derive(Debug, PartialEq, Eq)]
struct Taken;

/// Takes the lock of the GPU with this UUID in `folder`; false if another process converts on it.
/// Where there is no lock to take (no such folder), nobody does.
pub(crate) fn take(folder: &str, device: u32, uuid: [u8; 16]) -> bool {
    let taken = take_between(folder, uuid, &mut || std::thread::sleep(PAUSE));
    if taken.is_err() {
        log::complain(format_args!(
            "another process already converts memory on device {device}; with no-oversubscribe \
             this one leaves its allocations as they are"
        ));
    }
    taken.is_ok()
}

/// The same with `pause` between two tries: the descriptor that holds the lock, if there is one.
fn take_between(
    folder: &str,
    uuid: [u8; 16],
    pause: &mut dyn FnMut(),
) -> Result<Option<i32>, Taken> {
    let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let Ok(path) = CString::new(format!("{folder}/.transit-gpu-{name}.lock")) else {
        return Ok(None);
    };
    let Some(file) = open(&path) else {
        return Ok(None);
    };
    for turn in 0..=TRIES {
        if turn > 0 {
            pause();
        }
        // SAFETY: `file` is an open descriptor of ours.
        if unsafe { libc::flock(file, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            // Kept open, and so locked; not in the process' children.
            return Ok(Some(kept::keep(file)));
        }
    }
    close(file);
    Err(Taken)
}

/// Opens a lock file, whoever made it. An existing one is opened without `O_CREAT`: in a folder
/// shared by users, Linux refuses to "create" what belongs to somebody else.
fn open(path: &CStr) -> Option<i32> {
    const EXISTING: i32 = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    const NEW: i32 = EXISTING | libc::O_CREAT | libc::O_EXCL;
    [EXISTING, NEW, EXISTING]
        .into_iter()
        // SAFETY: the path is NUL-terminated; the mode is given for O_CREAT.
        .map(|flags| unsafe { libc::open(path.as_ptr(), flags, 0o644 as libc::c_uint) })
        .find(|file| *file >= 0)
}

fn close(file: i32) {
    // SAFETY: a descriptor of ours that nobody else uses.
    let _ = unsafe { libc::close(file) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of the test's own, gone at its end.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = format!("transit-lock-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn take(&self, gpu: u8, pause: &mut dyn FnMut()) -> Result<Option<i32>, Taken> {
            take_between(self.0.to_str().unwrap(), [gpu; 16], pause)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn one_holder_converts_on_a_gpu_and_another_gpu_is_free() {
        let folder = Folder::new("one");
        let mut pauses = 0;
        let first = folder.take(1, &mut || pauses += 1).unwrap().unwrap();
        assert_eq!(pauses, 0, "a lock that is free is taken at once");
        assert_eq!(folder.take(1, &mut || pauses += 1), Err(Taken));
        assert_eq!(pauses, TRIES, "and the wait for another ends");
        assert!(PAUSE * TRIES <= Duration::from_secs(2));
        assert!(folder.take(2, &mut || ()).is_ok());
        close(first);
        let free = folder.take(1, &mut || ()).is_ok();
        assert!(free, "free when its holder is gone");
    }

    #[test]
    fn a_holder_that_is_on_its_way_out_is_waited_for() {
        let folder = Folder::new("exit");
        let holder = folder.take(1, &mut || ()).unwrap().unwrap();
        let mut pauses = 0;
        let mut exits_at_the_third = || {
            pauses += 1;
            if pauses == 3 {
                close(holder);
            }
        };
        let next = folder.take(1, &mut exits_at_the_third);
        assert!(matches!(next, Ok(Some(_))));
        assert_eq!(pauses, 3);
    }

    #[test]
    fn without_a_folder_there_is_no_lock_and_everybody_converts() {
        let never = &mut || panic!("nothing to wait for");
        let taken = take_between("/no/such/folder", [1; 16], never);
        assert_eq!(taken, Ok(None));
    }
}
