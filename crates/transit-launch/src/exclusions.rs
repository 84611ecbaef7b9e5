//! Where the exclusion file lies: what a run learnt about memory that must stay as it is.

use std::path::{Path, PathBuf};

/// Name of the file beside the trace or the plan.
const NAME: &str = "transit-exclude.txt";

/// The exclusion file for a job whose trace or plan is `file`: the one given, else that of
/// `TRANSIT_EXCLUDE_FILE`, else one beside `file`, so that what a recorded run learnt holds for the
/// replayed run too. Absolute, since a job may change its directory.
#[must_use]
pub fn exclusion_file(given: Option<&Path>, file: &Path) -> PathBuf {
    let set = std::env::var_os("TRANSIT_EXCLUDE_FILE").filter(|path| !path.is_empty());
    let path = given
        .map(Path::to_owned)
        .or_else(|| set.map(PathBuf::from))
        .unwrap_or_else(|| file.with_file_name(NAME));
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_and_a_plan_in_one_folder_share_the_file() {
        let of = |file: &str| exclusion_file(None, Path::new(file));
        assert_eq!(of("/a/x.trace.zst"), Path::new("/a/transit-exclude.txt"));
        assert_eq!(of("/a/x.trace.zst"), of("/a/job.plan"));
        assert!(of("x.trace.zst").is_absolute());
        let given = exclusion_file(Some(Path::new("/b/mine")), Path::new("/a/job.plan"));
        assert_eq!(given, Path::new("/b/mine"));
    }
}
