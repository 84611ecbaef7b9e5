//! Looks the job's command up before anything is started, so that a typing mistake is told as
//! such and gets the exit code that a shell would give.

use std::env;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Finds `command` as `execvp` would.
pub(crate) fn find(command: &OsStr) -> Result<PathBuf, Failure> {
    let shown = command.display();
    if command.is_empty() {
        return Err(Failure::not_found(
            "the command is empty; an unset shell variable, perhaps?",
        ));
    }
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match state(&path) {
            State::Runs => Ok(path),
            State::Exists(why) => Err(Failure::not_executable(format!("{shown}: {why}"))),
            State::Missing => Err(Failure::not_found(format!("{shown}: no such file"))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut exists = None;
    for dir in env::split_paths(&path) {
        let candidate = dir.join(command);
        match state(&candidate) {
            State::Runs => return Ok(candidate),
            State::Exists(why) => exists = exists.or(Some((candidate, why))),
            State::Missing => {}
        }
    }
    match exists {
        Some((at, why)) => Err(Failure::not_executable(format!("{}: {why}", at.display()))),
        None => Err(Failure::not_found(format!("{shown}: not found in PATH"))),
    }
}

enum State {
    Runs,
    Exists(&'static str),
    Missing,
}

fn state(path: &Path) -> State {
    let Ok(metadata) = std::fs::metadata(path) else {
        return State::Missing;
    };
    if metadata.is_dir() {
        return State::Exists("is a directory");
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return State::Missing;
    };
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0 {
        State::Runs
    } else {
        State::Exists("is not executable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_and_a_plain_file_get_the_codes_of_a_shell() {
        assert_eq!(
            find(OsStr::new("no-such-command-at-all")).unwrap_err().code,
            127
        );
        assert_eq!(find(OsStr::new("")).unwrap_err().code, 127);
        assert_eq!(find(OsStr::new("/no/such/file")).unwrap_err().code, 127);
        assert_eq!(find(OsStr::new("/etc/passwd")).unwrap_err().code, 126);
        assert_eq!(find(OsStr::new("/")).unwrap_err().code, 126);
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
    }
}
