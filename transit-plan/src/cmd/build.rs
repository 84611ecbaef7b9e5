//! `transit-plan build`: one plan per policy and rank, a table of what each should cost on stdout,
//! what was written and the next command on stderr.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::files::open;
use crate::build::{Options, Study, study};
use crate::error::{self, Next, say};
use crate::iterations::Boundary;
use crate::num::wide;
use crate::output;
use crate::policy::Policy;
use crate::profile::Profile;
use crate::progress::Progress;
use crate::ranks::{self, RankFile};
use crate::summary;

const EXAMPLES: &str = "\
Examples:
  transit-plan build warmup.trace.zst --hbm 80GiB -o job.plan
  transit-plan build warmup.trace.zst --policy base,prefetch,advise -o 'job.{policy}.plan'
  transit-plan build warmup.trace.zst --policy auto --json
  transit-plan build warmup.trace.zst --hbm 31GiB --emulate -o emulated.plan
  transit-plan build warmup.trace.zst --boundary-op 'fused_adam' -o job.plan";

/// Arguments of `build`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// The trace, or the name given to `transit-record -o`: one plan is made for each rank.
    trace: PathBuf,
    /// Where to write. `{policy}` and `{rank}` are filled in; both are added where needed.
    /// Default: the trace's name with `.plan`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// base, prefetch, advise or a list of them; `auto` writes the one predicted to be fastest.
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    policy: Vec<String>,
    /// Memory of the GPU to plan for, as 80GiB. Default: the card the trace was recorded on.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    hbm: Option<u64>,
    /// Keep within that card by evictions in the plan, for a GPU that has more memory. With a value:
    /// within a card of that size.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, num_args = 0..=1,
        default_missing_value = "0", require_equals = true)]
    emulate: Option<u64>,
    /// Merge ranges of one op that lie at most this far apart; `auto` takes the device profile's
    /// break-even.
    #[arg(long, value_name = "BYTES|auto", default_value = "128KiB")]
    gap: String,
    /// Prefetch the recorded migrations only, as in the paper, without simulating what else the
    /// plan itself will have displaced.
    #[arg(long)]
    paper_literal: bool,
    /// An iteration starts after ops whose function name matches this, or at this op (a number).
    #[arg(long, value_name = "REGEX|SEQ")]
    boundary_op: Option<String>,
    /// Measured costs of the device, as TOML. Default: an H200's.
    #[arg(long, value_name = "FILE")]
    device_profile: Option<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
///
/// # Errors
/// If an argument is wrong, a trace cannot be read or a plan cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (options, auto) = options(&args)?;
    let files = ranks::find(&args.trace)?;
    let (mut documents, mut written, mut tables) = (Vec::new(), Vec::new(), String::new());
    let mut failed = false;
    for file in &files {
        match build_one(&args, file, &options, auto) {
            Ok(done) => {
                documents.push(done.document);
                tables.push_str(&done.table);
                written.extend(done.paths);
            }
            // The other ranks get their plans all the same.
            Err(error) if files.len() > 1 => {
                error::print(&error);
                documents.push(error::json(&error));
                failed = true;
            }
            Err(error) => return Err(error),
        }
    }
    if args.json {
        tables = serde_json::to_string_pretty(&documents)?;
        tables.push('\n');
    }
    // Last: every plan is written by then, whether or not somebody reads this to its end.
    let mut out = io::stdout().lock();
    out.write_all(tables.as_bytes())?;
    out.flush()?;
    announce(&written);
    Ok(ExitCode::from(if failed { 2 } else { 0 }))
}

/// What came of one rank.
struct Built {
    document: serde_json::Value,
    table: String,
    paths: Vec<PathBuf>,
}

fn build_one(args: &Args, file: &RankFile, options: &Options, auto: bool) -> anyhow::Result<Built> {
    let progress = Progress::new(&file.path.display().to_string());
    progress.say("reading");
    let trace = open(&file.path)?;
    let hash = file_hash(&file.path)?;
    let found = study(&trace, &hash, options, |doing| progress.say(doing))?;
    progress.done();
    let chosen: Vec<Policy> = match found.best() {
        Some(best) if auto => vec![best.policy],
        _ => options.policies.clone(),
    };
    let paths = write_plans(args, file, &found, &chosen)?;
    Ok(Built {
        document: summary::json(&file.path, &found, &paths),
        table: summary::text(&file.path, &found, &chosen),
        paths,
    })
}

fn options(args: &Args) -> anyhow::Result<(Options, bool)> {
    let profile = args
        .device_profile
        .as_deref()
        .map(Profile::read)
        .transpose()?;
    let profile = profile.unwrap_or_default();
    let auto = args.policy.iter().any(|name| name == "auto");
    let mut policies = Vec::new();
    for name in args.policy.iter().filter(|name| *name != "auto") {
        let policy: Policy = name
            .parse()
            .map_err(anyhow::Error::msg)
            .next("give --policy one of them, or several with commas between")?;
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    let gap_bytes = match args.gap.as_str() {
        "auto" => profile.gap_bytes(),
        text => parse_bytes(text)
            .map_err(|error| anyhow::anyhow!("--gap: {error}"))
            .next("give --gap a size or `auto`")?,
    };
    let options = Options {
        policies,
        hbm_bytes: args.hbm,
        emulate: args.emulate.is_some(),
        card_bytes: args.emulate.filter(|bytes| *bytes > 0),
        gap_bytes,
        paper_literal: args.paper_literal,
        boundary: boundary(args.boundary_op.as_deref())?,
        profile,
    };
    Ok((options, auto))
}

fn boundary(text: Option<&str>) -> anyhow::Result<Boundary> {
    let Some(text) = text else {
        return Ok(Boundary::Auto);
    };
    if let Ok(seq) = text.parse() {
        return Ok(Boundary::Op(seq));
    }
    let pattern = regex::Regex::new(text)
        .with_context(|| format!("--boundary-op {text:?} is no regular expression"))
        .next("names are listed by transit-plan inspect; quote the expression for the shell")?;
    Ok(Boundary::Pattern(pattern))
}

/// Reads a size: a number with an optional unit, `80GiB`, `512 MiB`, `1.5GB`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("{text:?} is no size like 80GiB, 512MiB or 4096"))
}

/// CRC-32 of a file, as plans name their trace.
fn file_hash(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{:08x}", crc32fast::hash(&bytes)))
}

fn write_plans(
    args: &Args,
    file: &RankFile,
    found: &Study,
    chosen: &[Policy],
) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for built in found
        .built
        .iter()
        .filter(|built| chosen.contains(&built.policy))
    {
        let path = output_path(args, file, built.policy, chosen.len() > 1);
        output::apart(&path, &file.path)?;
        write_plan(&built.plan, &path)?;
        paths.push(path);
    }
    Ok(paths)
}

fn output_path(args: &Args, file: &RankFile, policy: Policy, many: bool) -> PathBuf {
    let given = args
        .output
        .clone()
        .unwrap_or_else(|| ranks::plan_name(&args.trace));
    let text = given.to_string_lossy();
    let path = if text.contains("{policy}") {
        PathBuf::from(text.replace("{policy}", policy.name()))
    } else if many {
        let name = given.file_name().unwrap_or_default().to_string_lossy();
        given.with_file_name(ranks::with_tag(&name, policy.name()))
    } else {
        given
    };
    ranks::with_rank(&path, file.rank)
}

fn write_plan(plan: &transit_format::plan::model::Plan, path: &Path) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    transit_format::plan::write(plan, &mut bytes)
        .with_context(|| format!("cannot write {}", path.display()))?;
    output::save(path, &bytes)
}

fn announce(written: &[PathBuf]) {
    let mut text = String::new();
    for path in written {
        let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
        let size = crate::render::units::bytes(bytes);
        text.push_str(&format!(
            "transit-plan: wrote {} ({size})\n",
            path.display()
        ));
    }
    if let Some(first) = written.first() {
        let more = if wide(written.len()) > 1 {
            " (or another of them)"
        } else {
            ""
        };
        text.push_str(&format!(
            "transit-plan: next: transit-replay --plan {} -- <the job's command>{more}\n",
            output::quoted(&first.to_string_lossy())
        ));
    }
    say(&text);
}
