//! How every verb fails: what went wrong, where, why, and what to do next, on stderr.

use std::fmt;
use std::io::{self, Write};

/// An error with the next thing to try. Made with [`Next::next`].
#[derive(Debug)]
pub struct Advised {
    source: anyhow::Error,
    next: String,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

/// Adds the next step to an error.
pub trait Next<T> {
    /// Attaches what the reader should do about the error, as one sentence without a full stop.
    ///
    /// # Errors
    /// The error it was called on, if any.
    fn next(self, advice: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Next<T> for Result<T, E> {
    fn next(self, advice: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| {
            Advised {
                source: error.into(),
                next: advice.into(),
            }
            .into()
        })
    }
}

/// Whether the reader of our output went away, which is no failure of ours.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let plain = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        plain.or_else(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// The error as text: first line what failed, then its causes, then what to do next.
#[must_use]
pub fn text(error: &anyhow::Error) -> String {
    let mut text = format!("transit-plan: {error}\n");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their source in their own message.
        if !last.contains(&cause) {
            text.push_str(&format!("  because: {cause}\n"));
        }
        last = cause;
    }
    for cause in error.chain() {
        if let Some(advised) = cause.downcast_ref::<Advised>() {
            text.push_str(&format!("  next: {}\n", advised.next));
        }
    }
    text
}

/// Prints [`text`] on stderr.
pub fn print(error: &anyhow::Error) {
    say(&text(error));
}

/// Prints `text` on stderr, `transit-plan: ` before it where it has no such start. Unlike
/// `eprintln!` it does not panic when nobody reads any more (`2>&1 | head`).
pub fn say(text: &str) {
    let name = if text.starts_with("transit-plan: ") {
        ""
    } else {
        "transit-plan: "
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // Nowhere is left to report a failing stderr.
    let _ = io::stderr().write_all(format!("{name}{text}{end}").as_bytes());
}

/// The error for a script: what stands on stdout in place of the document `--json` asked for.
#[must_use]
pub fn json(error: &anyhow::Error) -> serde_json::Value {
    let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    let next = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Advised>())
        .map(|advised| advised.next.as_str());
    serde_json::json!({
        "kind": "error",
        "error": error.to_string(),
        "because": causes,
        "next": next,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_to_do() {
        let result: anyhow::Result<()> = Err(anyhow!("end of file at offset 7"));
        let error = result
            .context("x.trace.zst is no trace")
            .next("record it again with transit-record -o x.trace.zst")
            .unwrap_err();
        assert_eq!(
            text(&error),
            "transit-plan: x.trace.zst is no trace\n  because: end of file at offset 7\n  \
             next: record it again with transit-record -o x.trace.zst\n"
        );
    }

    #[test]
    fn a_closed_pipe_is_recognised_under_context() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = anyhow::Error::from(broken).context("cannot write the table");
        assert!(is_broken_pipe(&error));
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&serde_json::Error::io(broken).into()));
    }
}
