//! Where the trace goes: made absolute, since a job may change its directory, and looked at before
//! the job starts, since an hour later is too late to hear that it cannot be written.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use transit_launch::Failure;

/// The template to hand to the shim.
///
/// # Errors
/// If nothing can be written there.
pub(crate) fn checked(output: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(output)
        .map_err(|error| Failure::own(format!("{}: {error}", output.display())))?;
    let Some(text) = absolute.to_str() else {
        return Err(Failure::own(format!(
            "{}: the name must be UTF-8",
            output.display()
        )));
    };
    if absolute.is_dir() {
        return Err(Failure::own(format!(
            "{text} is a directory; name a file in it"
        )));
    }
    if absolute.exists() && !absolute.is_file() {
        return Err(Failure::own(format!(
            "{text} is a pipe or a device; give -o the name of a file"
        )));
    }
    let existing = nearest_existing(absolute.parent().unwrap_or(Path::new("/")));
    if !existing.is_dir() {
        return Err(Failure::own(format!(
            "{} is not a directory",
            existing.display()
        )));
    }
    if !writable(&existing) || (absolute.exists() && !writable(&absolute)) {
        return Err(Failure::own(format!(
            "{text} cannot be written: permission denied"
        )));
    }
    Ok(text.to_owned())
}

/// The directory itself, or the one in which it would be made.
fn nearest_existing(directory: &Path) -> PathBuf {
    // A variable in a directory's name is filled in later.
    let found = directory.ancestors().find(|ancestor| ancestor.exists());
    found.unwrap_or(Path::new("/")).to_owned()
}

fn writable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    unsafe { libc::access(name.as_ptr(), libc::W_OK) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_hold_the_trace_is_told_before_the_job_starts() {
        assert!(checked(Path::new("/etc/passwd/x.trace.zst")).is_err());
        assert!(
            checked(Path::new("/tmp"))
                .unwrap_err()
                .message
                .contains("directory")
        );
        for device in ["/dev/null", "/dev/full"] {
            let failure = checked(Path::new(device)).unwrap_err();
            assert!(failure.message.contains("device"), "{failure}");
        }
        let relative = checked(Path::new("x.trace.zst")).unwrap();
        assert!(Path::new(&relative).is_absolute());
    }
}
