//! The trace file: made at the first allocation or op, never shared by two processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use transit_launch::template::{Place, expand, insert};

/// Makes this process' file under `template` and returns it with its path. A file that another
/// process of the same launch has made or is writing is left alone: `.pidN` goes into the name.
pub(crate) fn create(template: &str, place: &Place) -> io::Result<(File, PathBuf)> {
    let path = expand(template, place);
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(parent)?;
    }
    if let Some(file) = claim(&path, launched())? {
        return Ok((file, path));
    }
    let named = insert(&path.to_string_lossy(), &format!(".pid{}", place.pid));
    let path = PathBuf::from(named);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    Ok((file, path))
}

/// When the launcher started this job.
fn launched() -> Option<SystemTime> {
    let text = std::env::var(transit_launch::LAUNCHED_NS).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(text.parse().ok()?))
}

fn claim(path: &Path, launched: Option<SystemTime>) -> io::Result<Option<File>> {
    // Opening a pipe would hold the job up until somebody reads it.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let what = "is a folder, a pipe or a device; name a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    // The lock lives as long as the file is open, which is until this process ends.
    // SAFETY: flock takes a valid descriptor and a flag.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    if !locked {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let ours = metadata.len() > 0
        && launched.is_some_and(|since| metadata.modified().is_ok_and(|at| at >= since));
    if ours {
        return Ok(None);
    }
    file.set_len(0)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            host: "h".into(),
            pid: 42,
            ..Place::default()
        }
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("x.trace.zst");
        // Made here, not by a child process: a child holds every lock of its parent's files until
        // it runs its own program, and the test beside this one looks at locks.
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path that outlives the call.
        let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
        assert_eq!(made, 0);
        for template in [
            fifo.to_str().unwrap(),
            dir.path().to_str().unwrap(),
            "/dev/full",
        ] {
            let error = create(template, &place()).unwrap_err();
            assert!(error.to_string().contains("name a file"), "{error}");
        }
    }

    #[test]
    fn two_processes_of_a_job_never_write_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("deep/x.trace.zst");
        let template = template.to_str().unwrap();
        let (first, path) = create(template, &place()).unwrap();
        assert!(path.ends_with("x.trace.zst"));
        let (_second, path) = create(template, &place()).unwrap();
        assert!(path.ends_with("x.pid42.trace.zst"), "{path:?}");
        drop(first);
        std::fs::write(template, "of an earlier run, longer than nothing").unwrap();
        let (third, path) = create(template, &place()).unwrap();
        assert!(path.ends_with("x.trace.zst"));
        assert_eq!(
            third.metadata().unwrap().len(),
            0,
            "an old file is replaced"
        );
    }
}
