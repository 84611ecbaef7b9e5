//! The trace file: made at the first allocation or op, never shared by two processes, never mistaken
//! for a file of the job's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use transit_hook::kept::{Identity, keep};
use transit_launch::template::{Place, expand, insert};

/// An open trace. A job that closes every descriptor it can count to closes this one too; the file
/// is then opened again by its name. It stays open to the process' end, as the lock on it tells
/// other processes of the job that the name is taken.
#[derive(Debug)]
pub(crate) struct TraceFile {
    descriptor: i32,
    identity: Identity,
    path: PathBuf,
    /// Its length: numbers of files are given out again, so a file of the same number and name may
    /// still be another.
    bytes: u64,
}

impl TraceFile {
    /// Makes this process' file under `template`. A file that another process of the same launch
    /// has made or is writing is left alone: `.pidN` goes into the name.
    pub(crate) fn create(template: &str, place: &Place) -> io::Result<Self> {
        let (file, path) = create(template, place)?;
        // The job may change its folder.
        let path = std::path::absolute(&path).unwrap_or(path);
        let descriptor = keep(file.into_raw_fd());
        let identity = Identity::of(descriptor).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            descriptor,
            identity,
            path,
            bytes: 0,
        })
    }

    /// Its name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn is_open(&self) -> bool {
        Identity::of(self.descriptor).is_some_and(|now| now.same_file(&self.identity))
    }

    fn open_again(&mut self) -> io::Result<()> {
        let lost = |why: &str| {
            let text = format!("the job has closed the descriptor of the trace, and {why}");
            io::Error::other(text)
        };
        let file = appending()
            .open(&self.path)
            .map_err(|error| lost(&format!("it cannot be opened again: {error}")))?;
        let same = Identity::of(file.as_raw_fd()).is_some_and(|now| now.same_file(&self.identity));
        let whole = file.metadata().is_ok_and(|now| now.len() == self.bytes);
        if !same || !whole {
            return Err(lost("another file has its name now"));
        }
        let _ = lock(&file);
        self.descriptor = keep(file.into_raw_fd());
        Ok(())
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_open() {
            self.open_again()?;
        }
        // SAFETY: the bytes are live; the descriptor was looked at just now.
        let written = unsafe { libc::write(self.descriptor, bytes.as_ptr().cast(), bytes.len()) };
        let written = usize::try_from(written).map_err(|_| io::Error::last_os_error())?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything goes to the end, whichever descriptor it goes through.
fn appending() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(libc::O_NOCTTY);
    options
}

/// Locks a file for this process, or says that another has it.
fn lock(file: &File) -> bool {
    // SAFETY: flock takes a valid descriptor and a flag.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

fn create(template: &str, place: &Place) -> io::Result<(File, PathBuf)> {
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
    let file = appending().create(true).open(&path)?;
    file.set_len(0)?;
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
    let file = appending().create(true).open(path)?;
    if !lock(&file) {
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
    fn a_descriptor_that_the_job_closed_is_never_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("x.trace.zst");
        let mut trace = TraceFile::create(template.to_str().unwrap(), &place()).unwrap();
        trace.write_all(b"one").unwrap();
        let other = File::create(dir.path().join("the job's own")).unwrap();
        // SAFETY: the job's file takes the number that the trace had.
        unsafe { libc::dup2(other.as_raw_fd(), trace.descriptor) };
        trace.write_all(b" two").unwrap();
        assert_eq!(std::fs::read(&template).unwrap(), b"one two");
        assert_eq!(other.metadata().unwrap().len(), 0);
        // SAFETY: a closed descriptor, and a name that stands for another file.
        unsafe { libc::close(trace.descriptor) };
        std::fs::remove_file(&template).unwrap();
        std::fs::write(&template, "mine").unwrap();
        let error = trace.write_all(b" three").unwrap_err().to_string();
        assert!(error.contains("another file has its name"), "{error}");
        assert_eq!(std::fs::read(&template).unwrap(), b"mine");
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
