//! How every verb fails: what went wrong, where, why, and what to do next, on stderr.

use std::fmt;
use std::io::{self, Write};

use anyhow::anyhow;

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

/// An error of the simulator, which only a mistaken option makes.
///
/// # Errors
/// Always the given one.
pub fn advised<T>(result: Result<T, String>) -> anyhow::Result<T> {
    result
        .map_err(|error| anyhow!(error))
        .next("change that option; --help tells what is possible")
}

/// Whether the reader of our output went away, which is no failure of ours.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The error as text: first line what failed, then its causes, then what to do next.
#[must_use]
pub fn text(error: &anyhow::Error) -> String {
    let mut text = format!("transit-cluster: {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  because: {cause}\n"));
    }
    for cause in error.chain() {
        if let Some(advised) = cause.downcast_ref::<Advised>() {
            text.push_str(&format!("  next: {}\n", advised.next));
        }
    }
    text
}

/// Prints text on stderr; a closed stderr is no reason to stop.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The error for a script: what stands on stdout in place of the document `--json` asked for.
#[must_use]
pub fn json(error: &anyhow::Error) -> serde_json::Value {
    let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    let advised = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Advised>());
    serde_json::json!({
        "kind": "error",
        "error": error.to_string(),
        "because": causes,
        "next": advised.map(|advised| advised.next.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_to_do() {
        let result: anyhow::Result<()> = Err(anyhow!("line 7, column 2: soon is no time"));
        let error = result
            .context("cannot read a.csv")
            .next("leave out --strict")
            .unwrap_err();
        assert_eq!(
            text(&error),
            "transit-cluster: cannot read a.csv\n  because: line 7, column 2: soon is no time\n  \
             next: leave out --strict\n"
        );
    }
}
