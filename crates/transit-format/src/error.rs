//! The one error of this crate. Each value names the file, and where it can the section and the
//! byte offset, so that a message needs no context added by the caller.

/// Why a trace or plan could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io {
        /// File, or `<sink>` while writing to a caller's sink.
        file: String,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{file}: not a TRANSIT {section}: {what}")]
    NotOurs {
        /// File.
        file: String,
        /// `trace` or `plan`.
        section: &'static str,
        /// What was found instead.
        what: String,
    },
    /// The file was written by a newer TRANSIT.
    #[error("{file}: {section}: written by a newer TRANSIT ({what}); read it with that version")]
    Newer {
        /// File.
        file: String,
        /// Section it shows in.
        section: &'static str,
        /// What is unknown to this build.
        what: String,
    },
    /// The file ends too early for anything of it to be used.
    #[error("{file}: {section} at byte {offset}: cut short: {what}")]
    Truncated {
        /// File.
        file: String,
        /// Section that is incomplete.
        section: &'static str,
        /// Where that section begins.
        offset: u64,
        /// What is missing.
        what: String,
    },
    /// Bytes contradict a checksum, a bound or each other.
    #[error("{file}: {section} at byte {offset}: damaged: {what}")]
    Damaged {
        /// File.
        file: String,
        /// Section that holds the contradiction.
        section: &'static str,
        /// Where that section begins.
        offset: u64,
        /// The contradiction.
        what: String,
    },
    /// More than this build is willing to hold.
    #[error("{file}: {section} at byte {offset}: too large: {what}")]
    TooLarge {
        /// File.
        file: String,
        /// Section that asks for it.
        section: &'static str,
        /// Where that section begins.
        offset: u64,
        /// What was asked for and what the bound is.
        what: String,
    },
    /// The caller asked to write something no file can hold or no reader would accept.
    #[error("cannot write {section}: {what}")]
    Invalid {
        /// Section it belongs to.
        section: &'static str,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// Wraps an error of the operating system.
    #[cfg(any(feature = "trace", feature = "plan"))]
    pub(crate) fn io(file: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            file: file.into(),
            source,
        }
    }

    /// Whether the file is a TRANSIT file whose bytes went wrong, so that salvaging makes sense.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Truncated { .. })
    }
}
