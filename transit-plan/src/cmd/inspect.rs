//! `transit-plan inspect`: says what a trace or a plan holds.
//!
//! ```console
//! $ transit-plan inspect warmup.trace.zst
//! $ transit-plan inspect job.plan --steps
//! ```
//!
//! A damaged trace is salvaged: what could be read is shown, what is lost is named, and the exit
//! code is 1.

pub mod detail;
pub mod plan_facts;
pub mod trace_facts;
pub mod trace_text;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use transit_format::plan;
use transit_format::trace::{Damage, Trace};

use crate::error::{self, Next, say};
use crate::ranks;
use crate::render::units;

const EXAMPLES: &str = "\
Examples:
  transit-plan inspect warmup.trace.zst
  transit-plan inspect warmup.trace.zst --json | jq .totals
  transit-plan inspect job.plan --steps";

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// A trace or a plan, or the name given to `-o`: every rank is shown.
    file: PathBuf,
    /// Print JSON (with several ranks, a list).
    #[arg(long)]
    pub json: bool,
    /// Functions (or ops of a plan) to list, largest first.
    #[arg(long, default_value_t = 12)]
    top: usize,
    /// List every op instead.
    #[arg(long, conflicts_with_all = ["json", "steps", "allocs"])]
    ops: bool,
    /// List every step of a plan instead.
    #[arg(long, conflicts_with_all = ["json", "allocs"])]
    steps: bool,
    /// List every allocation instead.
    #[arg(long, conflicts_with = "json")]
    allocs: bool,
}

/// Runs it.
///
/// # Errors
/// If a file cannot be read at all, or is neither a trace nor a plan.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let found = ranks::find(&args.file)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut values = Vec::new();
    let (mut whole, mut failed) = (true, false);
    for (place, file) in found.iter().enumerate() {
        let shown = match show(&file.path, &args) {
            Ok(shown) => shown,
            // The other ranks are shown all the same.
            Err(error) if found.len() > 1 => {
                error::print(&error);
                failed = true;
                let mut value = error::json(&error);
                if let Value::Object(map) = &mut value {
                    map.insert("file".to_owned(), json!(file.path.display().to_string()));
                }
                values.push(value);
                continue;
            }
            Err(error) => return Err(error),
        };
        whole &= shown.whole;
        match shown.content {
            Content::Json(value) => values.push(value),
            Content::Text(text) => {
                if place > 0 {
                    out.write_all(b"\n")?;
                }
                out.write_all(text.as_bytes())?;
            }
            Content::Ops(trace) => detail::ops(&trace, &mut out)?,
        }
    }
    if args.json {
        let value = match values.pop() {
            Some(only) if values.is_empty() => only,
            last => {
                values.extend(last);
                Value::Array(values)
            }
        };
        serde_json::to_writer_pretty(&mut out, &value)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(if failed {
        ExitCode::from(2)
    } else if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

enum Content {
    Json(Value),
    Text(String),
    /// A trace's ops are too many to hold as text.
    Ops(Box<Trace>),
}

struct Shown {
    content: Content,
    whole: bool,
}

fn show(path: &Path, args: &Args) -> anyhow::Result<Shown> {
    let name = path.display().to_string();
    let mut start = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
    let file_bytes = file.metadata().map_or(0, |data| data.len());
    file.take(8)
        .read_to_end(&mut start)
        .with_context(|| format!("cannot read {name}"))?;
    if is_zstd(&start) {
        show_trace(path, file_bytes, args)
    } else {
        show_plan(path, file_bytes, args)
    }
}

/// Whether bytes begin a zstd frame, skippable frames included: traces do, plans do not.
fn is_zstd(start: &[u8]) -> bool {
    let magic = start
        .first_chunk::<4>()
        .map_or(0, |four| u32::from_le_bytes(*four));
    magic == 0xFD2F_B528 || magic & 0xFFFF_FFF0 == 0x184D_2A50
}

fn show_trace(path: &Path, file_bytes: u64, args: &Args) -> anyhow::Result<Shown> {
    if args.steps {
        return Err(anyhow!(
            "{} is a trace; only plans have steps",
            path.display()
        ))
        .next("leave --steps out, or build a plan from it: transit-plan build");
    }
    let salvage = Trace::open_lenient(path).next("give a file that transit-record wrote")?;
    let name = path.display().to_string();
    let whole = salvage.damage.is_empty();
    let content = if args.ops {
        Content::Ops(Box::new(salvage.trace))
    } else if args.allocs {
        Content::Text(detail::allocs(&salvage.trace))
    } else {
        let facts = trace_facts::gather(&salvage.trace, &name, file_bytes);
        if args.json {
            let mut value = serde_json::to_value(&facts)?;
            if let Value::Object(map) = &mut value {
                map.insert("damage".to_owned(), damage_json(&salvage.damage));
            }
            Content::Json(value)
        } else {
            Content::Text(trace_text::text(&facts, args.top) + &lost(&salvage.damage))
        }
    };
    if !whole {
        let parts = units::counted(salvage.damage.len() as u64, "part", "parts");
        say(&format!(
            "{name} is damaged: {parts} could not be read, the rest is shown"
        ));
    }
    Ok(Shown { content, whole })
}

fn damage_json(damage: &[Damage]) -> Value {
    damage
        .iter()
        .map(|one| {
            json!({
                "offset": one.offset,
                "bytes": one.bytes,
                "section": one.section,
                "reason": one.reason,
                "lost_ops": one.lost_ops,
            })
        })
        .collect()
}

/// What could not be read, one line each.
fn lost(damage: &[Damage]) -> String {
    let mut text = String::new();
    for one in damage {
        if text.is_empty() {
            text.push_str("\nlost\n");
        }
        let ops = one.lost_ops.map_or_else(String::new, |(first, count)| {
            format!(
                ", {} from op {first} on",
                units::counted(count, "op", "ops")
            )
        });
        text.push_str(&format!(
            "  {} at offset {} ({}){ops}: {}\n",
            units::bytes(one.bytes),
            one.offset,
            one.section,
            one.reason
        ));
    }
    text
}

fn show_plan(path: &Path, file_bytes: u64, args: &Args) -> anyhow::Result<Shown> {
    let name = path.display().to_string();
    let plan = match plan::read(path) {
        Ok(plan) => plan,
        Err(error) if file_bytes == 0 => {
            drop(error);
            return Err(anyhow!("{name}: the file is empty"))
                .next("its writer was killed at once or the disk was full; write it again");
        }
        Err(error) if error.is_damage() => {
            return Err(error).next("build the plan again: transit-plan build");
        }
        Err(error @ transit_format::Error::NotOurs { .. }) => {
            drop(error);
            return Err(anyhow!("{name} is neither a trace nor a plan of TRANSIT"))
                .next("give a trace (transit-record -o) or a plan (transit-plan build -o)");
        }
        Err(error) => return Err(error).next("give another file, or use that newer version"),
    };
    let content = if args.steps {
        Content::Text(plan_facts::steps(&plan))
    } else if args.ops {
        Content::Text(plan_facts::ops(&plan))
    } else if args.allocs {
        Content::Text(plan_facts::allocs(&plan))
    } else {
        let facts = plan_facts::gather(&plan, &name, file_bytes);
        if args.json {
            Content::Json(serde_json::to_value(&facts)?)
        } else {
            Content::Text(plan_facts::text(&facts, args.top))
        }
    };
    Ok(Shown {
        content,
        whole: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_told_from_plans_by_their_first_bytes() {
        assert!(is_zstd(&[0x28, 0xB5, 0x2F, 0xFD, 0, 0]));
        assert!(is_zstd(&[0x53, 0x2A, 0x4D, 0x18]));
        assert!(!is_zstd(b"TRNS"));
        assert!(!is_zstd(b""));
    }

    #[test]
    fn what_is_lost_is_said_with_its_place() {
        let damage = Damage {
            offset: 4096,
            bytes: 2048,
            section: "block",
            reason: "checksum differs".to_owned(),
            lost_ops: Some((100, 20)),
        };
        assert_eq!(
            lost(&[damage]),
            "\nlost\n  2 KiB at offset 4096 (block), 20 ops from op 100 on: checksum differs\n"
        );
        assert_eq!(lost(&[]), "");
    }
}
