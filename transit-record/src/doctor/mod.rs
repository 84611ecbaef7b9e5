//! `transit-record doctor`: what a job would find on this machine, before one is started. Each part
//! is looked at by a file of its own and answers with [`Check`]s; the driver is asked by a child
//! process, since a wedged driver would otherwise hold this one for ever.

mod ask;
mod covered;
mod cupti;
mod elf;
mod environment;
mod files;
mod gpus;
mod host;
mod known;
mod probe;
mod report;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use ask::Asked;
use report::{Check, Report};

const EXAMPLES: &str = "\
Examples:
  transit-record doctor
  transit-record doctor --json | jq '.checks[] | select(.state != \"ok\")'
  transit-record doctor >/dev/null || echo 'not as it should be here'

Says what a job under transit-record or transit-replay would find on this machine: the driver, its
GPUs, CUPTI, host memory, the shims, and what is set in the environment. Runs no job, leaves no file.
";

const AFTER: &str = "\
Exit status:
  0  all is well
  1  something would work less well: each `warning` says what and what to do
  2  a job would not be recorded here, or the check itself failed: each `problem` says why

With --json the keys are stable: `verdict`, `exit`, and `checks`, each with `key`, `state` (ok,
warning, problem), `text`, `next` (what to do, or null) and `data`.";

#[derive(Debug, Parser)]
#[command(name = "transit-record doctor", version, before_help = EXAMPLES, after_help = AFTER)]
#[command(about = None, long_about = None)]
struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds the driver has to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Ask the driver, in this process; what `doctor` starts for itself
    #[arg(long, hide = true)]
    probe: bool,
}

/// Runs the subcommand; `words` are those after `doctor`.
pub(crate) fn main(words: Vec<OsString>) -> ExitCode {
    let name = OsString::from("transit-record doctor");
    let arguments = match Arguments::try_parse_from(std::iter::once(name).chain(words)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    if arguments.probe {
        probe::run();
        return ExitCode::SUCCESS;
    }
    let report = Report::new(everything(Duration::from_secs(arguments.timeout)));
    // Who closes the pipe has read enough; the exit status still counts.
    let _ = if arguments.json {
        report.print_json()
    } else {
        report.print_text()
    };
    ExitCode::from(report.exit())
}

fn everything(timeout: Duration) -> Vec<Check> {
    let asked: Asked = ask::driver(timeout);
    let mut checks = gpus::checks(&asked);
    checks.extend(known::checks(&asked));
    checks.extend(cupti::checks(&asked));
    checks.extend(host::checks(&asked));
    checks.extend(files::checks());
    checks.extend(environment::checks());
    checks.extend(covered::checks(&asked));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_its_help_opens_with_examples() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        assert!(command.render_help().to_string().starts_with("Examples:"));
    }
}
