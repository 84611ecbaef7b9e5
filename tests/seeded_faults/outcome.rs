//! How a run may end.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;

use super::jobs::Prepared;

/// What a job printed, less what may differ: how much memory it reserved and how often it retried.
pub(crate) fn results(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text
        .lines()
        .map(|line| line.split(" reserved_bytes").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The job's own last words: the trainer's on stderr, a hazard's on stdout.
fn own_error(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let of_trainer = err.lines().find(|line| line.starts_with("trainer: "));
    let last = of_trainer.or(out.lines().last().filter(|line| line.contains(" at line ")));
    last.unwrap_or_default().to_owned()
}

/// Whether a run ended as it may. `own` are the calls of the job's own that were made to fail.
pub(crate) fn check(job: &Prepared, output: &Output, own: &[String]) -> Result<(), String> {
    let err = String::from_utf8_lossy(&output.stderr);
    if ["panicked", "internal fault", "Sanitizer"]
        .iter()
        .any(|word| err.contains(word))
    {
        return Err("a fault of ours".to_owned());
    }
    if let Some(signal) = output.status.signal() {
        return Err(format!("killed by signal {signal}"));
    }
    let code = output.status.code().unwrap_or(-1);
    match code {
        0 if results(output) == job.results => Ok(()),
        0 => Err(format!(
            "other results:\n{}\nwanted:\n{}",
            results(output),
            job.results
        )),
        124 | 137 => Err("it hung and was killed".to_owned()),
        1 => {
            let error = own_error(output);
            let about = |call: &String| error.contains(call.as_str());
            // A hazard names the line of its source.
            let of_hazard = !own.is_empty() && error.contains(" at line ");
            if of_hazard || own.iter().any(about) {
                Ok(())
            } else {
                Err(format!("its error is about none of {own:?}: {error}"))
            }
        }
        _ => Err(format!("exit status {code}")),
    }
}

/// Whether a run ended exactly as the bare one, down to the job's own words.
pub(crate) fn same(bare: &Output, run: &Output) -> Result<(), String> {
    let told = |output: &Output| (output.status.code(), results(output), own_error(output));
    if told(bare) == told(run) {
        Ok(())
    } else {
        Err(format!(
            "bare: {:?}\nunder the shim: {:?}",
            told(bare),
            told(run)
        ))
    }
}
