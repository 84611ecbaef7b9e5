//! The exclusion file: what a run learnt about memory that must stay as it is, for the next run. A
//! rule names a library and a size; requests of that library and size class (whole 2 MiB) are not
//! converted. Text, one rule a line:
//!
//! ```text
//! # transit exclusions 1
//! bytes=4194304 call=cuIpcGetMemHandle caller=libfoo.so
//! ```
//!
//! Ranks share the file: a rule is appended in one write. A line that is no rule is ignored, and a
//! file that does not begin with the first line above is never written to.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};

use crate::log;
use crate::settings::Settings;
use crate::spared::spared;

const TITLE: &str = "# transit exclusions 1";
/// Bytes of a file that are read; a rule is about 60.
const MOST_BYTES: u64 = 1 << 20;
/// Sizes are told apart by whole chunks of the driver's.
const CLASS_BYTES: u64 = 2 << 20;

/// One rule: who asks, and for how many bytes (a whole number of chunks).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    class_bytes: u64,
    caller: String,
}

/// Rules of earlier runs, which hold now.
static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());
/// Rules of this run, which hold from the next on: what is converted does not change on the way.
static LEARNT: Mutex<Vec<Rule>> = Mutex::new(Vec::new());

fn class(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(CLASS_BYTES)
        .unwrap_or(u64::MAX)
}

impl Rule {
    fn of(caller: &str, bytes: u64) -> Self {
        Self {
            class_bytes: class(bytes),
            caller: caller.to_owned(),
        }
    }

    /// Reads a line; `None` if it is none.
    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("bytes=")?;
        let (bytes, rest) = rest.split_once(" call=")?;
        // The caller is a file's name and may hold anything but a line feed.
        let (_, caller) = rest.split_once(" caller=")?;
        let bytes: u64 = bytes.parse().ok()?;
        (bytes > 0).then(|| Self::of(caller, bytes))
    }
}

/// The rules of a file's text, and how many lines were none.
fn parse(text: &str) -> (Vec<Rule>, usize) {
    let mut rules = Vec::new();
    let mut strange = 0;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match Rule::parse(line) {
            Some(rule) => rules.push(rule),
            None => strange += 1,
        }
    }
    (rules, strange)
}

/// Reads the file, if there is one.
pub(crate) fn start(settings: &Settings) {
    let Some(path) = &settings.exclude_file else {
        return;
    };
    let mut text = Vec::new();
    if let Some(file) = open(path, OpenOptions::new().read(true)) {
        let _ = file.take(MOST_BYTES).read_to_end(&mut text);
    }
    let (rules, strange) = parse(&String::from_utf8_lossy(&text));
    if strange > 0 {
        log::complain(format_args!(
            "{path}: {strange} lines are no exclusion rules; ignored"
        ));
    }
    *RULES.lock().unwrap_or_else(PoisonError::into_inner) = rules;
}

/// Opens a plain file, never waiting for a pipe's other end.
fn open(path: &str, how: &mut OpenOptions) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = how.custom_flags(flags).open(path).ok()?;
    file.metadata()
        .is_ok_and(|data| data.is_file())
        .then_some(file)
}

/// Whether requests of that library and size are to stay as they are.
pub(crate) fn covers(caller: &str, bytes: u64) -> bool {
    let rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |rule: &Rule| rule.class_bytes == class(bytes) && rule.caller == caller;
    rules.iter().any(same)
}

/// What became of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// Known before: nothing to do or say.
    Known,
    /// Written down for the next run.
    Written,
    /// No file was named, or it cannot be written or is not ours.
    Unwritten,
}

/// Memory of that library and size was to be exported by `call`, which failed since it is
/// converted: the next run leaves it as it is.
pub(crate) fn learn(settings: &Settings, caller: &str, bytes: u64, call: &str) -> Learnt {
    let rule = Rule::of(caller, bytes);
    {
        let mut learnt = LEARNT.lock().unwrap_or_else(PoisonError::into_inner);
        if learnt.contains(&rule) {
            return Learnt::Known;
        }
        learnt.push(rule);
    }
    let line = format!("bytes={} call={call} caller={caller}\n", class(bytes));
    let path = settings.exclude_file.as_deref();
    match path.and_then(|path| append(path, &line)) {
        Some(()) => Learnt::Written,
        None => Learnt::Unwritten,
    }
}

fn append(path: &str, line: &str) -> Option<()> {
    let mut how = OpenOptions::new();
    let mut file = open(path, how.read(true).append(true).create(true))?;
    let mut first = vec![0; TITLE.len()];
    let length = file.metadata().ok()?.len();
    let mut text = String::new();
    if length == 0 {
        text.push_str(TITLE);
        text.push('\n');
    } else {
        file.read_exact(&mut first).ok()?;
        if first != TITLE.as_bytes() {
            return None;
        }
        // A writer that was killed may have left half a line.
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).ok()?;
        file.read_exact(&mut last).ok()?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(line);
    // One write: appended lines of several ranks do not mix.
    (spared(|| file.write(text.as_bytes())).ok()? == text.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_rules_are_counted_and_the_others_kept() {
        let text = "# transit exclusions 1\nbytes=4194304 call=cuIpcGetMemHandle caller=lib a.so\n\
                    bytes=x call=y caller=z\n\0\u{fffd}rubbish\n\nbytes=3 call=c caller=\n";
        let (rules, strange) = parse(text);
        assert_eq!(
            rules,
            [Rule::of("lib a.so", 4 << 20), Rule::of("", 2 << 20)]
        );
        assert_eq!(strange, 2);
    }

    #[test]
    fn a_rule_is_written_so_that_it_is_read_back_and_foreign_files_are_left_alone() {
        let folder = std::env::temp_dir().join(format!("transit-rules-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("rules");
        let name = path.to_str().unwrap();
        let line = "bytes=4194304 call=cuIpcGetMemHandle caller=libfoo.so";
        append(name, &format!("{line}\n")).unwrap();
        // A writer killed in the middle of a line.
        let half = std::fs::read_to_string(&path).unwrap() + "bytes=41";
        std::fs::write(&path, half).unwrap();
        append(
            name,
            "bytes=2097152 call=cuIpcGetMemHandle caller=libbar.so\n",
        )
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = format!(
            "{TITLE}\n{line}\nbytes=41\nbytes=2097152 call=cuIpcGetMemHandle caller=libbar.so\n"
        );
        assert_eq!(text, expected);
        assert_eq!(parse(&text).0.len(), 2);
        std::fs::write(
            &path,
            "#!/bin/sh\necho a job of somebody's that is long enough\n",
        )
        .unwrap();
        let before = std::fs::read(&path).unwrap();
        assert_eq!(append(name, "x\n"), None);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn writers_at_once_do_not_tear_each_others_lines() {
        let folder = std::env::temp_dir().join(format!("transit-ranks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("rules");
        let name = path.to_str().unwrap();
        std::thread::scope(|scope| {
            for rank in 1..9_u64 {
                scope.spawn(move || {
                    for turn in 0..50 {
                        let bytes = class(rank << 22);
                        let line = format!("bytes={bytes} call=c caller=lib{turn}.so\n");
                        append(name, &line).unwrap();
                    }
                });
            }
        });
        let (rules, strange) = parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!((rules.len(), strange), (8 * 50, 0));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
