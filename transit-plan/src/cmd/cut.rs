//! `transit-plan cut`: shortens a trace to some iterations, some ops, or a size.
//!
//! ```console
//! $ transit-plan cut warmup.trace.zst --iterations 2..4 -o steady.trace.zst
//! $ transit-plan cut warmup.trace.zst --max-size 1MiB -o small.trace.zst
//! ```
//!
//! Every allocation made before the last kept op stays, so that allocations keep their ordinals
//! and a plan built from the cut still binds in the job. Functions and streams without a kept op
//! go, and ids are numbered anew.

pub mod keep;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use bytesize::ByteSize;
use transit_format::trace::Trace;

use self::keep::Part;
use super::files;
use super::windows::{self, Window, Windows};
use crate::error::{Next, say};
use crate::output;
use crate::render::units;

const EXAMPLES: &str = "\
Examples:
  transit-plan cut warmup.trace.zst --iterations 2..4 -o steady.trace.zst
  transit-plan cut warmup.trace.zst --ops 0..5000 -o start.trace.zst
  transit-plan cut warmup.trace.zst --max-size 1MiB -o small.trace.zst
  transit-plan cut damaged.trace.zst --salvage -o good.trace.zst";

/// Arguments of `cut`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Args {
    /// The trace, or the name given to `transit-record -o` (its first rank is cut).
    trace: PathBuf,
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Keep iterations A up to but without B, as `inspect` numbers them.
    #[arg(long, value_name = "A..B", value_parser = files::parse_range, group = "what")]
    iterations: Option<(usize, usize)>,
    /// Keep ops A up to but without B.
    #[arg(long, value_name = "A..B", value_parser = files::parse_range, group = "what")]
    #[arg(conflicts_with = "iterations")]
    ops: Option<(usize, usize)>,
    /// Keep as many whole steady iterations (else ops) as fit.
    #[arg(long, value_name = "BYTES", group = "what")]
    max_size: Option<ByteSize>,
    /// Keep what can be read of a damaged trace.
    #[arg(long, group = "what")]
    salvage: bool,
}

/// Runs it.
///
/// # Errors
/// If the trace cannot be read, holds no such ops, or the cut cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (path, trace) = if args.salvage {
        let salvage =
            Trace::open_lenient(&args.trace).next("give a file that transit-record wrote")?;
        (args.trace.clone(), salvage.trace)
    } else {
        files::first_trace(&args.trace)?
    };
    output::apart(&args.output, &path)?;
    let windows = windows::of(&trace);
    let asked = asked(&args, &trace, &windows)?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let (part, bytes) = match args.max_size {
        None => encode(&trace, asked, &name)?,
        Some(limit) => {
            let given = args.iterations.is_some() || args.ops.is_some();
            fitting(&trace, &windows, asked, given, limit.as_u64(), &name)?
        }
    };
    output::save(&args.output, &bytes)?;
    let kept = keep::cut(&trace, part, &name);
    say(&format!(
        "wrote {} ({}): ops {}..{} of {}, {}, {}, {}\n  \
         next: transit-plan inspect {}",
        args.output.display(),
        units::bytes(bytes.len() as u64),
        part.first_op,
        part.end_op,
        units::count(trace.ops.len() as u64),
        whole_iterations(&windows, part),
        units::counted(kept.allocs.len() as u64, "allocation", "allocations"),
        units::counted(kept.migrations.len() as u64, "migration", "migrations"),
        args.output.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// The ops that the arguments name; all of them for `--max-size` or `--salvage` alone.
fn asked(args: &Args, trace: &Trace, windows: &Windows) -> anyhow::Result<Part> {
    if let Some((from, to)) = args.ops {
        files::check_range(from, trace.ops.len(), "ops")?;
        return Ok(Part {
            first_op: from,
            end_op: to.min(trace.ops.len()),
        });
    }
    let Some((from, to)) = args.iterations else {
        return Ok(Part {
            first_op: 0,
            end_op: trace.ops.len(),
        });
    };
    let found = if windows.confidence > 0.0 {
        windows.list.len()
    } else {
        0
    };
    files::check_range(from, found, "iterations")?;
    let picked: Vec<Window> = windows.list.iter().copied().take(to).skip(from).collect();
    let (Some(first), Some(last)) = (picked.first(), picked.last()) else {
        return Err(anyhow!("no iteration lies in {from}..{to}"))
            .next("transit-plan inspect lists them");
    };
    Ok(Part {
        first_op: lead(first.first_op),
        end_op: last.end_op,
    })
}

/// Iterations are cut with the op before them: many a boundary is only known by what ends there.
fn lead(first_op: usize) -> usize {
    first_op.saturating_sub(1)
}

fn encode(trace: &Trace, part: Part, name: &str) -> anyhow::Result<(Part, Vec<u8>)> {
    let bytes = keep::cut(trace, part, name)
        .write_to(Vec::new())
        .context("the cut trace cannot be encoded")?;
    Ok((part, bytes))
}

/// The largest part within `asked` that fits: whole iterations from the first steady one on, else
/// ops from where that begins.
fn fitting(
    trace: &Trace,
    windows: &Windows,
    asked: Part,
    given: bool,
    limit: u64,
    name: &str,
) -> anyhow::Result<(Part, Vec<u8>)> {
    let fits = |bytes: &[u8]| bytes.len() as u64 <= limit;
    let whole = encode(trace, asked, name)?;
    if fits(&whole.1) {
        return Ok(whole);
    }
    let within = |one: &&Window| asked.first_op <= one.first_op && one.end_op <= asked.end_op;
    let steady: Vec<Window> = windows.steady();
    let mut ends: Vec<usize> = steady.iter().filter(within).map(|one| one.end_op).collect();
    let first = steady.iter().find(within).map(|one| lead(one.first_op));
    let first_op = if given {
        asked.first_op
    } else {
        first.unwrap_or(asked.first_op)
    };
    if windows.confidence > 0.0
        && let Some(found) = largest(&mut ends, |end_op| {
            encode(trace, Part { first_op, end_op }, name)
                .map(|found| fits(&found.1).then_some(found))
        })?
    {
        return Ok(found);
    }
    let mut ends: Vec<usize> = (first_op + 1..=asked.end_op).collect();
    let found = largest(&mut ends, |end_op| {
        encode(trace, Part { first_op, end_op }, name).map(|found| fits(&found.1).then_some(found))
    })?;
    match found {
        Some(found) => Ok(found),
        None => Err(anyhow!("not even one op fits into {}", units::bytes(limit)))
            .next("allow more: header, functions and allocations alone need it"),
    }
}

/// The result of the last end that `attempt` accepts, by halving: more ops never need less room.
fn largest<T>(
    ends: &mut Vec<usize>,
    attempt: impl Fn(usize) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let mut best = None;
    while !ends.is_empty() {
        let middle = ends.len() / 2;
        let Some(end) = ends.get(middle).copied() else {
            break;
        };
        match attempt(end)? {
            Some(found) => {
                best = Some(found);
                ends.drain(..=middle);
            }
            None => ends.truncate(middle),
        }
    }
    Ok(best)
}

fn whole_iterations(windows: &Windows, part: Part) -> String {
    let inside = |one: &&Window| part.first_op <= one.first_op && one.end_op <= part.end_op;
    let count = if windows.confidence > 0.0 {
        windows.list.iter().filter(inside).count()
    } else {
        0
    };
    units::counted(count as u64, "whole iteration", "whole iterations")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn halving_finds_the_last_that_is_accepted() {
        for good in 0..9 {
            let mut ends: Vec<usize> = (1..=8).collect();
            let found = largest(&mut ends, |end| Ok((end <= good).then_some(end))).unwrap();
            assert_eq!(found, (good > 0).then_some(good));
        }
    }

    #[test]
    fn a_size_limit_keeps_whole_steady_iterations() {
        let trace = Synthetic {
            steps: 8,
            ..Synthetic::default()
        }
        .trace();
        let windows = windows::of(&trace);
        let all = Part {
            first_op: 0,
            end_op: trace.ops.len(),
        };
        let whole = encode(&trace, all, "x").unwrap().1.len() as u64;
        let (part, bytes) = fitting(&trace, &windows, all, false, whole * 3 / 4, "x").unwrap();
        assert!(bytes.len() as u64 <= whole * 3 / 4);
        assert!(
            windows
                .list
                .iter()
                .any(|one| lead(one.first_op) == part.first_op)
        );
        assert!(windows.list.iter().any(|one| one.end_op == part.end_op));
        let error = fitting(&trace, &windows, all, false, 10, "x").unwrap_err();
        assert!(error.to_string().contains("not even one op"), "{error}");
    }
}
