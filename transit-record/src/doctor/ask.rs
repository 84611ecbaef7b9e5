//! Has the driver asked by a child process, which a wedged or crashing driver takes down alone. The
//! child says what it is about to do before it does it, so that a hang has a name.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use transit_launch::say;

use super::probe::{Facts, Line};

/// What became of the asking.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) facts: Facts,
    /// Why there is no more: the child hung, died or could not be started.
    pub(super) failure: Option<String>,
}

/// After this long without an answer a word is said.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a killed child may take to go. One stuck in the kernel never goes and is left behind.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts the child and listens to it.
pub(super) fn driver(timeout: Duration) -> Asked {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(["doctor", "--probe"]);
        // What else would be loaded into the child is looked at by its name, not run.
        command.env_remove("LD_PRELOAD");
        command.env_remove("LD_AUDIT");
        command.env_remove("CUDA_INJECTION64_PATH");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::null());
        command.spawn()
    });
    match started {
        Ok(child) => listen(child, timeout),
        Err(error) => Asked {
            failure: Some(format!("cannot start a process that asks it: {error}")),
            ..Asked::default()
        },
    }
}

fn listen(mut child: Child, timeout: Duration) -> Asked {
    let (sender, lines) = mpsc::channel();
    let Some(stdout) = child.stdout.take() else {
        return Asked::default();
    };
    // Not joined: it ends with the pipe, which a child stuck in the kernel keeps open.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Ok(line) = serde_json::from_str::<Line>(&line)
                && sender.send(line).is_err()
            {
                return;
            }
        }
    });
    let mut asked = Asked::default();
    let mut at = String::from("starting");
    let hung = hear(&lines, timeout, &mut asked.facts, &mut at);
    if hung {
        let _ = child.kill();
    }
    let status = reap(&mut child);
    asked.failure = match (hung, status) {
        (true, None) => Some(format!(
            "does not answer: {at} has not come back after {} s, and the process cannot be \
             killed (it is process {})",
            timeout.as_secs(),
            child.id()
        )),
        (true, Some(_)) => Some(format!(
            "does not answer: {at} has not come back after {} s",
            timeout.as_secs()
        )),
        (false, Some(status)) => status
            .signal()
            .map(|signal| format!("kills the process that asks it: {at} ended by signal {signal}"))
            .or_else(|| (!status.success()).then(|| format!("{at} ended the process: {status}"))),
        (false, None) => Some("the process that asks it does not end".to_owned()),
    };
    asked
}

/// Takes in what the child says until it ends; whether it fell silent instead.
fn hear(lines: &Receiver<Line>, timeout: Duration, facts: &mut Facts, at: &mut String) -> bool {
    let end = Instant::now() + timeout;
    let mut patience = Some(Instant::now() + PATIENCE);
    loop {
        let until = patience.unwrap_or(end).min(end);
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Line::At(step)) => *at = step,
            Ok(Line::Facts(known)) => *facts = *known,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) if until < end => {
                say(&format!("transit-record doctor: waiting for {at}"));
                patience = None;
            }
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
}

fn reap(child: &mut Child) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + LAST_WORDS;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}
