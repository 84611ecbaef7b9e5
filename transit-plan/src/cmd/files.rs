//! What verbs share: opening a trace by the name people know it by, ranges on the command line,
//! and the line that says what was recorded.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use transit_format::trace::Trace;
use transit_format::trace::model::Header;

use crate::error::{Next, say};
use crate::ranks;
use crate::render::units;

/// Opens the trace of the first rank of a name.
///
/// # Errors
/// If there is none or it cannot be read.
pub fn first_trace(given: &Path) -> anyhow::Result<(PathBuf, Trace)> {
    let found = ranks::find(given)?;
    let others = found.len().saturating_sub(1) as u64;
    let path = found
        .into_iter()
        .next()
        .map(|file| file.path)
        .context("no such trace")?;
    if others > 0 {
        let others = units::counted(others, "other rank", "other ranks");
        say(&format!("taking {}; {others} left out", path.display()));
    }
    let trace = open(&path)?;
    Ok((path, trace))
}

/// `heat.png` of rank 3 is `heat.rank3.png`.
#[must_use]
pub fn with_rank(output: &Path, rank: Option<u32>) -> PathBuf {
    let (Some(rank), Some(stem)) = (rank, output.file_stem()) else {
        return output.to_owned();
    };
    let end = output.extension().unwrap_or_default().to_string_lossy();
    output.with_file_name(format!("{}.rank{rank}.{end}", stem.to_string_lossy()))
}

/// Opens a trace, with what to do if it is damaged.
///
/// # Errors
/// If it cannot be read.
pub fn open(path: &Path) -> anyhow::Result<Trace> {
    match Trace::open(path) {
        Ok(trace) => Ok(trace),
        Err(error) if std::fs::metadata(path).is_ok_and(|there| there.len() == 0) => {
            Err(error).next("record it again")
        }
        Err(error) if error.is_damage() => {
            let name = path.display();
            Err(error).next(format!(
                "transit-plan inspect {name} tells what is lost; transit-plan cut {name} \
                 --salvage -o good.trace.zst keeps the rest"
            ))
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            if starts(path, b"TRNSPLAN") {
                return Err(error.context(format!("{} is a plan, not a trace", path.display())))
                    .next("give the trace it was built from; transit-plan inspect names it");
            }
            Err(error).next("give a trace that transit-record wrote")
        }
    }
}

/// Whether a file begins with these bytes.
pub(crate) fn starts(path: &Path, with: &[u8]) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(with.len() as u64).read_to_end(&mut start));
    read.is_ok() && start == with
}

/// Parses `A..B`.
///
/// # Errors
/// If the text is no such range, or the range is empty.
pub fn parse_range(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once("..").and_then(|(from, to)| {
        let from = if from.is_empty() {
            0
        } else {
            from.parse().ok()?
        };
        let to = if to.is_empty() {
            usize::MAX
        } else {
            to.parse().ok()?
        };
        Some((from, to))
    });
    match parts {
        Some((from, to)) if from < to => Ok((from, to)),
        Some(_) => Err("the range is empty: A..B holds A up to but without B".to_owned()),
        None => Err("write A..B, for instance 1..3".to_owned()),
    }
}

/// Checks a range against what there is.
///
/// # Errors
/// If it begins past the end.
pub fn check_range(from: usize, there: usize, what: &str) -> anyhow::Result<()> {
    if from < there {
        return Ok(());
    }
    Err(anyhow!(
        "the trace has {there} {what}, numbered from 0; {from} is past the last"
    ))
    .next("transit-plan inspect lists them")
}

/// What a column or a legend calls a trace: its file's name without suffixes, and the policy it
/// replayed where the name does not say it.
#[must_use]
pub fn label(path: &Path, header: &Header) -> String {
    let file = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stem = file.strip_suffix(".zst").unwrap_or(&file);
    let stem = stem.strip_suffix(".trace").unwrap_or(stem);
    match &header.replayed_policy {
        Some(policy) if !stem.contains(policy.as_str()) => format!("{stem} ({policy})"),
        _ => stem.to_owned(),
    }
}

/// The job's command with files by their names alone: where they lie says nothing in a figure, and
/// nothing about it to whom the figure is shown.
#[must_use]
pub fn command(header: &Header) -> String {
    if header.command.is_empty() {
        return "an unnamed job".to_owned();
    }
    let named = |word: &String| {
        let (option, path) = match word.split_once('=') {
            Some((option, path)) if option.starts_with('-') => (format!("{option}="), path),
            _ => (String::new(), word.as_str()),
        };
        match Path::new(path)
            .file_name()
            .filter(|_| path.starts_with('/'))
        {
            Some(name) => format!("{option}{}", name.to_string_lossy()),
            None => word.clone(),
        }
    };
    header
        .command
        .iter()
        .map(named)
        .collect::<Vec<_>>()
        .join(" ")
}

/// `NVIDIA H200, emulated card of 32 GiB, 2026-11-29, rank 0`: what a figure shows.
#[must_use]
pub fn what_was_recorded(header: &Header) -> String {
    let mut parts = vec![header.device_name.clone()];
    match header.emulated_card_bytes {
        Some(0) => parts.push("touch maps".to_owned()),
        Some(card) => parts.push(format!("emulated card of {}", units::bytes(card))),
        None => parts.push(units::bytes(header.device_total_bytes)),
    }
    if let Some(policy) = &header.replayed_policy {
        parts.push(format!("replaying {policy}"));
    }
    parts.extend(
        units::date(header.start_unix_s)
            .split(' ')
            .next()
            .map(str::to_owned),
    );
    parts.extend(header.rank.map(|rank| format!("rank {rank}")));
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_and_ends_may_be_left_out() {
        assert_eq!(parse_range("1..3"), Ok((1, 3)));
        assert_eq!(parse_range("2.."), Ok((2, usize::MAX)));
        assert_eq!(parse_range("..2"), Ok((0, 2)));
        assert!(parse_range("3..3").is_err());
        assert!(parse_range("3").unwrap_err().contains("1..3"));
    }

    #[test]
    fn pictures_of_ranks_keep_their_kind() {
        let name = |rank| with_rank(Path::new("a/heat.png"), rank);
        assert_eq!(name(Some(3)), Path::new("a/heat.rank3.png"));
        assert_eq!(name(None), Path::new("a/heat.png"));
    }

    #[test]
    fn a_command_is_named_without_its_folder() {
        let command_line = [
            "/opt/job/bin/python",
            "/opt/job/train.py",
            "--out=/a/w",
            "a/b",
            "/",
        ]
        .map(str::to_owned)
        .to_vec();
        let header = Header {
            command: command_line,
            ..Header::default()
        };
        assert_eq!(command(&header), "python train.py --out=w a/b /");
        assert_eq!(command(&Header::default()), "an unnamed job");
    }

    #[test]
    fn figures_say_what_was_recorded() {
        let header = crate::synthetic::Synthetic::default().trace().header;
        let line = what_was_recorded(&header);
        assert_eq!(line, "Synthetic H200, emulated card of 256 MiB, 2026-11-29");
    }
}
