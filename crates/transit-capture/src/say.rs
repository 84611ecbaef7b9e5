//! Lines on stderr, each in one write so that ranks do not cut into each other.

use std::io::Write;

/// Prints `prefix: text`.
pub(crate) fn say(prefix: &str, text: &str) {
    let line = format!("{prefix}: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
