//! `cargo xtask demo`: the whole road on a software GPU. A trainer that does not fit is recorded,
//! planned with each policy, replayed, and compared; heat map and histogram are drawn.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use transit_harness::{Ran, SoftGpu, artifacts};

use crate::build;

/// Policies shown, in the paper's order.
const POLICIES: &[&str] = &["base", "prefetch", "advise"];
/// Steps of the trainer; the last ones are the steady state the table shows.
const STEPS: u32 = 8;
/// First step of the steady state: by then every policy's plan is followed.
const STEADY: u32 = 5;
const PLENTY_BYTES: u64 = 4 << 30;
const CHUNK_BYTES: u64 = 2 << 20;

/// Options of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Oversubscription in percent: the job's peak over the card's memory.
    #[arg(long, value_delimiter = ',', default_values_t = [110, 141, 187])]
    percent: Vec<u64>,
    /// Folder for traces, plans and pictures.
    #[arg(long, default_value = "out/demo")]
    out: PathBuf,
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    percent: u64,
    policy: &'static str,
    first_touch: u64,
    migrating: u64,
    htod_bytes: u64,
    dtoh_bytes: u64,
    zero_copy_bytes: u64,
    step_ns: u64,
    identical: bool,
}

/// Runs the demo and prints its table.
pub(crate) fn run(args: &Args) -> Result<()> {
    build::everything()?;
    let out = transit_harness::workspace().join(&args.out);
    std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    let runs = 1 + args.percent.len() * (1 + POLICIES.len());
    let bar = ProgressBar::new(u64::try_from(runs)?);
    bar.set_style(ProgressStyle::with_template(
        "[{elapsed}] {bar:30} {pos}/{len} {msg}",
    )?);
    let bare = bare(&out, &bar)?;
    let mut rows = Vec::new();
    for percent in &args.percent {
        rows.extend(at(*percent, &bare, &out, &bar)?);
    }
    bar.finish_and_clear();
    print(&rows, bare.peak_bytes);
    draw(&args.percent, &out)?;
    verdict(&rows)
}

/// The bare run that everything is compared with.
#[derive(Debug)]
struct Bare {
    weights: Vec<u8>,
    peak_bytes: u64,
}

fn arguments(weights: &Path) -> Result<Vec<String>> {
    let weights = weights.to_str().context("a path that is not UTF-8")?;
    Ok(vec![
        "--steps".into(),
        STEPS.to_string(),
        "--weights".into(),
        weights.into(),
    ])
}

fn ran(gpu: &SoftGpu, command: &mut Command, what: &str) -> Result<Ran> {
    let ran = gpu.run(command)?;
    ensure!(
        ran.output.status.success(),
        "{what} ended with {}:\n{}{}",
        ran.output.status,
        ran.stdout(),
        ran.stderr()
    );
    Ok(ran)
}

fn bare(out: &Path, bar: &ProgressBar) -> Result<Bare> {
    bar.set_message("bare run on a card that is large enough");
    let gpu = SoftGpu::new(PLENTY_BYTES)?;
    let weights = out.join("bare.weights");
    let list = arguments(&weights)?;
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let ran = ran(&gpu, &mut gpu.trainer(&list), "the bare run")?;
    bar.inc(1);
    let peak_bytes = ran.counter("peak_resident_bytes");
    ensure!(
        peak_bytes > 0,
        "the software GPU reported no peak; its statistics: {}",
        ran.stats
    );
    Ok(Bare {
        weights: std::fs::read(&weights)?,
        peak_bytes,
    })
}

fn at(percent: u64, bare: &Bare, out: &Path, bar: &ProgressBar) -> Result<Vec<Row>> {
    let card_bytes = (bare.peak_bytes * 100 / percent).next_multiple_of(CHUNK_BYTES);
    let trace = out.join(format!("base-{percent}.trace.zst"));
    bar.set_message(format!("recording at {percent} %"));
    let gpu = SoftGpu::new(card_bytes)?;
    let list = arguments(&out.join("run.weights"))?;
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    ran(
        &gpu,
        &mut gpu.record(&trace, &["--faults"], &list),
        "recording",
    )?;
    bar.inc(1);
    let mut rows = Vec::new();
    for policy in POLICIES {
        bar.set_message(format!("{policy} at {percent} %"));
        rows.push(replay(percent, policy, card_bytes, &trace, bare, out)?);
        bar.inc(1);
    }
    Ok(rows)
}

fn replay(
    percent: u64,
    policy: &'static str,
    card_bytes: u64,
    trace: &Path,
    bare: &Bare,
    out: &Path,
) -> Result<Row> {
    let plan = out.join(format!("{policy}-{percent}.plan"));
    let card = card_bytes.to_string();
    let built = transit_harness::plan(&[
        &"build",
        &trace,
        &"--policy",
        &policy,
        &"--hbm",
        &card,
        &"-o",
        &plan,
    ])?;
    if !built.status.success() {
        bail!(
            "building {policy}: {}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    let gpu = SoftGpu::new(card_bytes)?;
    let weights = out.join(format!("{policy}-{percent}.weights"));
    let list = arguments(&weights)?;
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let replayed = out.join(format!("{policy}-{percent}.replayed.trace.zst"));
    let traced = replayed.to_str().context("a path that is not UTF-8")?;
    let ran = ran(
        &gpu,
        &mut gpu.replay(&plan, &["--trace", traced], &list),
        policy,
    )?;
    std::fs::write(out.join(format!("{policy}-{percent}.log")), ran.stderr())?;
    let steps = u64::from(STEPS - STEADY);
    let rise = |name: &str| ran.rise(&format!("step {STEADY}"), "end", name) / steps;
    Ok(Row {
        percent,
        policy,
        first_touch: rise("first_touch_faults"),
        migrating: rise("migrating_faults"),
        htod_bytes: rise("htod_bytes"),
        dtoh_bytes: rise("dtoh_bytes"),
        zero_copy_bytes: rise("zero_copy_bytes"),
        step_ns: rise("virtual_ns"),
        identical: std::fs::read(&weights)? == bare.weights,
    })
}

fn print(rows: &[Row], peak_bytes: u64) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "card",
        "policy",
        "first-touch faults",
        "migrating faults",
        "HtoD",
        "DtoH",
        "zero-copy",
        "virtual step",
        "weights identical",
    ]);
    for row in rows {
        table.add_row([
            format!("{} %", row.percent),
            row.policy.to_owned(),
            row.first_touch.to_string(),
            row.migrating.to_string(),
            ByteSize::b(row.htod_bytes).to_string(),
            ByteSize::b(row.dtoh_bytes).to_string(),
            ByteSize::b(row.zero_copy_bytes).to_string(),
            format!("{:.2} ms", row.step_ns as f64 / 1e6),
            if row.identical { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    for column in 2..8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!(
        "Software GPU (modelled costs, virtual time): a trainer with a peak of {} on smaller cards.\n\
         Figures per step, mean of steps {STEADY} to {} (steady state).\n{table}",
        ByteSize::b(peak_bytes),
        STEPS - 1
    );
}

fn draw(percents: &[u64], out: &Path) -> Result<()> {
    let percent = if percents.contains(&141) {
        141
    } else {
        percents.first().copied().unwrap_or(141)
    };
    let trace = out.join(format!("base-{percent}.trace.zst"));
    let after = out.join(format!("prefetch-{percent}.replayed.trace.zst"));
    let heatmap = out.join(format!("heatmap-{percent}.png"));
    let sizes = out.join(format!("sizes-{percent}.png"));
    let transit_plan = artifacts().join("transit-plan");
    for (arguments, picture) in [
        (vec!["plot", "heatmap"], &heatmap),
        (vec!["plot", "sizes"], &sizes),
    ] {
        let mut command = Command::new(&transit_plan);
        command.args(&arguments).arg(&trace);
        if arguments.contains(&"sizes") {
            command.arg(&after);
        }
        let output = command.arg("-o").arg(picture).output()?;
        ensure!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        println!("{}: {}", arguments.join(" "), picture.display());
    }
    Ok(())
}

/// The promises the table is held to; a missed one is an error, never a silent row.
fn verdict(rows: &[Row]) -> Result<()> {
    ensure!(
        rows.iter().all(|r| r.identical),
        "a replayed run changed the job's weights"
    );
    let find = |policy| rows.iter().find(|r| r.percent == 141 && r.policy == policy);
    if let (Some(base), Some(prefetch), Some(advise)) =
        (find("base"), find("prefetch"), find("advise"))
    {
        let moved = |r: &Row| r.htod_bytes + r.dtoh_bytes + r.zero_copy_bytes;
        let fewer = 100.0 - 100.0 * prefetch.migrating as f64 / base.migrating.max(1) as f64;
        let share = moved(advise) as f64 / moved(base).max(1) as f64;
        println!(
            "At 141 %: Prefetch has {fewer:.1} % fewer migrating faults than Base (target: 95 %); \
             Advise has {} after its midpoint (target: 0)\nand moves {share:.2} of Base's bytes \
             over the link, zero-copy included (target: at most 0.33).",
            advise.migrating
        );
    }
    Ok(())
}
