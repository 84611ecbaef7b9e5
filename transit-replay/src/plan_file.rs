//! A first look at the plan before the job starts, so that a wrong name is told at once and not
//! after an hour of loading data. The shim looks again, in each process.

use std::path::{Path, PathBuf};

use transit_launch::template::{self, Place};

/// Whether there is a readable plan for this place, or for any rank if ranks are not known yet (a
/// launcher such as torchrun gives them out later). The answer is the emulated card of the plan, in
/// bytes, 0 if it has none.
///
/// # Errors
/// What is wrong, where, and what to do.
pub(crate) fn check(template: &str, place: &Place) -> Result<u64, String> {
    let plans = candidates(template, place);
    let Some(first) = plans.first() else {
        return Err(format!(
            "{template}: no such plan, nor one of any rank; make one with `transit-plan build`"
        ));
    };
    let mut card_bytes = 0;
    for plan in &plans {
        card_bytes = readable(plan).map_err(|error| {
            if plans.len() > 1 {
                format!("{error} (first plan: {})", first.display())
            } else {
                error
            }
        })?;
    }
    Ok(card_bytes)
}

fn candidates(template: &str, place: &Place) -> Vec<PathBuf> {
    let own = template::expand(template, place);
    // What is there but no file is told by name: neither read nor waited for.
    if own.exists() {
        return vec![own];
    }
    let plain = PathBuf::from(template);
    if plain.exists() {
        return vec![plain];
    }
    template::written(template, std::time::SystemTime::UNIX_EPOCH)
}

fn readable(path: &Path) -> Result<u64, String> {
    let view = transit_format::plan::View::open(path)
        .map_err(|error| format!("{error}; make it with `transit-plan build`"))?;
    Ok(view.shape().card_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_plan_is_told_with_what_to_do() {
        let error = check("/no/such/job.plan", &Place::default()).unwrap_err();
        assert!(error.contains("/no/such/job.plan") && error.contains("transit-plan build"));
    }

    #[test]
    fn a_pipe_a_folder_and_a_device_are_told_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("job.plan");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let told = |path: &Path| check(path.to_str().unwrap(), &Place::default()).unwrap_err();
        assert!(told(&fifo).contains("is a pipe"));
        assert!(told(dir.path()).contains("is a directory"));
        assert!(told(Path::new("/dev/zero")).contains("is a device"));
        assert!(told(Path::new("/dev/zero")).contains("transit-plan build"));
    }

    #[test]
    fn a_file_that_is_no_plan_is_told_by_name_and_plans_of_ranks_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("job.plan");
        let rank = dir.path().join("job.rank2.plan");
        std::fs::write(&rank, "not a plan").unwrap();
        let error = check(template.to_str().unwrap(), &Place::default()).unwrap_err();
        assert!(error.contains("job.rank2.plan"), "{error}");
        let mut sink = Vec::new();
        transit_format::plan::write(&Default::default(), &mut sink).unwrap();
        std::fs::write(&rank, &sink).unwrap();
        assert_eq!(check(template.to_str().unwrap(), &Place::default()), Ok(0));
    }
}
