//! Which plan file is this process', and what to say when there is none that can be used.

use std::path::{Path, PathBuf};

use transit_format::plan;
use transit_format::plan::model::Plan;
use transit_launch::template::{Place, expand};

/// A plan that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What it says.
    pub(crate) plan: Plan,
}

/// The file `template` means for this process: its own rank's if that exists, else the name as
/// given (one plan for all ranks; allocations are confirmed by use).
pub(crate) fn locate(template: &str, place: &Place, exists: impl Fn(&Path) -> bool) -> PathBuf {
    let own = expand(template, place);
    let plain = PathBuf::from(template);
    if !exists(&own) && exists(&plain) {
        plain
    } else {
        own
    }
}

/// Reads the plan of this process.
///
/// # Errors
/// One line: which file, which section and offset, and what is wrong.
pub(crate) fn load(template: Option<&str>) -> Result<Loaded, String> {
    let template = template.ok_or("no plan given; run the job under transit-replay --plan FILE")?;
    let path = locate(template, &Place::of_this_process(), Path::exists);
    match plan::read(&path) {
        Ok(plan) if plan.streams.is_empty() && plan.placements.is_empty() => Err(format!(
            "{}: the plan says nothing about any stream or allocation",
            path.display()
        )),
        Ok(plan) => Ok(Loaded { path, plan }),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32) -> Place {
        Place {
            rank: Some(rank),
            ranks: Some(8),
            ..Place::default()
        }
    }

    #[test]
    fn each_rank_takes_its_own_plan_and_else_the_one_there_is() {
        let found = |files: &[&str], template: &str, place: &Place| {
            locate(template, place, |path| {
                files.iter().any(|file| Path::new(file) == path)
            })
        };
        let both = ["job.plan", "job.rank3.plan"];
        assert_eq!(
            found(&both, "job.plan", &rank(3)),
            Path::new("job.rank3.plan")
        );
        assert_eq!(found(&both, "job.plan", &rank(4)), Path::new("job.plan"));
        assert_eq!(
            found(&both, "job.plan", &Place::default()),
            Path::new("job.plan")
        );
        assert_eq!(
            found(&[], "job.plan", &rank(4)),
            Path::new("job.rank4.plan")
        );
        assert_eq!(found(&[], "p{rank}", &rank(4)), Path::new("p4"));
    }

    #[test]
    fn a_missing_plan_is_named() {
        let error = load(Some("/no/such/job.plan")).unwrap_err();
        assert!(error.contains("/no/such/job.plan"), "{error}");
        assert!(load(None).unwrap_err().contains("--plan"));
    }
}
