//! Why CUPTI gives no records, in words that say what to do. None of these stops the job: the
//! recorder goes on with what the hooks see.

use std::fmt;

/// A reason to record without CUPTI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No libcupti anywhere.
    NotFound,
    /// It is older than records with graph ids (CUDA 11.4), by its own version number.
    TooOld(u32),
    /// It lacks an entry point.
    Missing(&'static str),
    /// Another tool uses it: which, as far as is known.
    Taken(String),
    /// A call was refused: what was being done, and CUPTI's error number.
    Refused(&'static str, u32),
}

impl Failure {
    /// The error number's meaning, for the ones people meet (`CUptiResult` in `cupti_result.h`).
    fn meaning(result: u32) -> &'static str {
        match result {
            11 => "not implemented by this CUPTI",
            14 => "another profiler uses CUPTI already",
            15 => "CUPTI could not be initialised; is it newer than the driver?",
            27 => "not supported on this system",
            28 | 29 => "unified-memory records are not supported on this device",
            30 => {
                "unified-memory records need peer access between all visible GPUs; hide the \
                   others with CUDA_VISIBLE_DEVICES"
            }
            31 => "unified-memory records do not work under MPS; record without MPS",
            33 | 40 => "this virtual GPU does not allow profiling",
            35 => "profiling needs privileges: NVreg_RestrictProfilingToAdminUsers=0 or root",
            39 => "another profiler (torch.profiler, nsys, ...) uses CUPTI; record without it",
            41 => "confidential computing does not allow profiling",
            43 => "unified-memory records do not work on a MIG slice",
            45 => "unified-memory records do not work under WSL",
            _ => "see CUptiResult in cupti_result.h",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(
                f,
                "no libcupti.so.13 or .12 is loaded, beside libcudart, on the library path or \
                 under $CUDA_HOME/extras/CUPTI/lib64"
            ),
            Self::TooOld(version) => {
                write!(
                    f,
                    "CUPTI API version {version} is older than 14 (CUDA 11.4)"
                )
            }
            Self::Taken(who) => write!(
                f,
                "{who} uses CUPTI already; record without it to have them"
            ),
            Self::Missing(name) => write!(f, "this CUPTI has no {name}"),
            Self::Refused(doing, result) => {
                let hint = if *doing == CONFIGURE && !tools_device_visible() {
                    "; /dev/nvidia-uvm-tools is not visible, pass it into the container"
                } else {
                    ""
                };
                write!(
                    f,
                    "{doing}: error {result}, {}{hint}",
                    Self::meaning(*result)
                )
            }
        }
    }
}

/// The step that needs the driver's tools device.
pub(crate) const CONFIGURE: &str = "asking for unified-memory records";

fn tools_device_visible() -> bool {
    std::path::Path::new("/dev/nvidia-uvm-tools").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_reasons_say_what_to_do() {
        let text = |result| Failure::Refused("enabling", result).to_string();
        assert!(text(39).contains("torch.profiler"));
        assert!(text(31).contains("MPS"));
        assert!(text(9999).contains("error 9999"));
        assert!(Failure::NotFound.to_string().contains("libcupti.so.13"));
    }
}
