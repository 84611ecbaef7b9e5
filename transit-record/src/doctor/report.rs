//! What was found, one check a line, for people and for scripts.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    /// Works, but less well.
    Warning,
    /// Keeps a job from being recorded.
    Problem,
}

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// Stable name for scripts, `part.thing`.
    pub(super) key: String,
    pub(super) state: State,
    /// What is the case.
    pub(super) text: String,
    /// What to do about it.
    pub(super) next: Option<String>,
    /// The figures behind the text.
    pub(super) data: Value,
}

impl Check {
    pub(super) fn ok(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            state: State::Ok,
            text: text.into(),
            next: None,
            data: Value::Null,
        }
    }

    pub(super) fn warning(
        key: impl Into<String>,
        text: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Warning,
            next: Some(next.into()),
            ..Self::ok(key, text)
        }
    }

    pub(super) fn problem(
        key: impl Into<String>,
        text: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Problem,
            ..Self::warning(key, text, next)
        }
    }

    pub(super) fn with(mut self, data: Value) -> Self {
        self.data = data;
        self
    }
}

/// All checks of a run.
#[derive(Debug)]
pub(super) struct Report(Vec<Check>);

impl Report {
    pub(super) fn new(checks: Vec<Check>) -> Self {
        Self(checks)
    }

    fn worst(&self) -> State {
        let states = self.0.iter().map(|check| check.state);
        states.max().unwrap_or(State::Ok)
    }

    /// 0 fine, 1 something would work less well, 2 a job would not be recorded.
    pub(super) fn exit(&self) -> u8 {
        self.worst() as u8
    }

    fn verdict(&self) -> &'static str {
        match self.worst() {
            State::Ok => "ok",
            State::Warning => "degraded",
            State::Problem => "unusable",
        }
    }

    pub(super) fn print_json(&self) -> io::Result<()> {
        let whole = json!({ "verdict": self.verdict(), "exit": self.exit(), "checks": self.0 });
        writeln!(io::stdout().lock(), "{whole:#}")
    }

    pub(super) fn print_text(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let width = self.0.iter().map(|check| check.key.len()).max();
        let width = width.unwrap_or(0);
        for check in &self.0 {
            let state = match check.state {
                State::Ok => "ok",
                State::Warning => "warning",
                State::Problem => "problem",
            };
            writeln!(out, "{state:<8} {:<width$}  {}", check.key, check.text)?;
            if let Some(next) = &check.next {
                writeln!(out, "{:>1$}{next}", "-> ", 8 + 1 + width + 2 + 3)?;
            }
        }
        let count = |state| self.0.iter().filter(|check| check.state == state).count();
        let (problems, warnings) = (count(State::Problem), count(State::Warning));
        let verdict = match self.worst() {
            State::Ok => "all is well: a job can be recorded and replayed here".to_owned(),
            State::Warning => format!("a job runs here, with {}", counted(warnings, "warning")),
            State::Problem => {
                format!(
                    "a job is not recorded here: {}",
                    counted(problems, "problem")
                )
            }
        };
        writeln!(out, "{verdict}")
    }
}

fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_decides_the_exit_status() {
        let ok = Check::ok("a", "x");
        let warning = Check::warning("b", "x", "y");
        let problem = Check::problem("c", "x", "y");
        assert_eq!(Report::new(vec![ok.clone()]).exit(), 0);
        assert_eq!(Report::new(vec![ok.clone(), warning.clone()]).exit(), 1);
        assert_eq!(Report::new(vec![problem, warning, ok]).exit(), 2);
    }
}
