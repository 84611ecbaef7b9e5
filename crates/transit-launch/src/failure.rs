//! A launcher's own failures, with the exit codes that shells, `env` and `timeout` use for theirs,
//! so that a script can tell them from the job's.

use std::fmt;

/// The launcher itself could not do its work; the job was not started.
#[derive(Debug)]
pub struct Failure {
    /// Exit code: 125 the launcher, 126 the command cannot be executed, 127 it is not found.
    pub code: u8,
    /// What, where and what to do next, without the tool's name.
    pub message: String,
}

impl Failure {
    /// Code 125: something about the launcher, its arguments or its installation.
    #[must_use]
    pub fn own(message: impl Into<String>) -> Self {
        Self {
            code: 125,
            message: message.into(),
        }
    }

    /// Code 126: the command is there and cannot be executed.
    #[must_use]
    pub fn not_executable(message: impl Into<String>) -> Self {
        Self {
            code: 126,
            message: message.into(),
        }
    }

    /// Code 127: there is no such command.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self {
            code: 127,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What a command line lacks that seems to hold the job without the `--` before it. To be printed
/// below the error that the parser gives.
#[must_use]
pub fn dashes_missing(arguments: &[std::ffi::OsString]) -> Option<&'static str> {
    let dashes = arguments.iter().any(|word| word == "--");
    (!dashes).then_some("The job goes after `--`, as in `-- python train.py`.")
}

/// Prints a line on stderr. Unlike `eprintln!` it does not panic where nobody reads any more or the
/// disk behind stderr is full: the job's exit status must come through all the same.
pub fn say(line: &str) {
    use std::io::Write;
    // Nowhere is left to report a failing stderr.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
