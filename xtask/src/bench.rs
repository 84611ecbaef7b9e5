//! `cargo xtask bench`: what decoding, planning, simulating and a hooked launch cost. The launch path is
//! measured as a job has it: a program launches through a `libcuda.so.1` that does nothing, bare
//! and under the release shims. Time is a median of interleaved runs on this machine; instructions
//! are counted by valgrind over two lengths of run, so that the start cancels out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};

use crate::build::{cargo, run as run_command};

/// Launches of one iteration of the program.
const OPS: u64 = 100;
/// Iterations of one timed run, and timed runs of each kind.
const ITERATIONS: u64 = 2000;
const ROUNDS: usize = 7;
/// Iterations of the two runs whose instructions are compared.
const COUNTED: (u64, u64) = (20, 120);

/// A way to run the program.
struct Way {
    name: &'static str,
    environment: Vec<(&'static str, PathBuf)>,
}

/// One row of the table.
struct Row {
    name: &'static str,
    median_ns: f64,
    allocations: u64,
    instructions: Option<u64>,
}

/// Runs all benchmarks; the table of the launch path comes last.
pub(crate) fn run() -> Result<()> {
    for (package, example) in [
        ("transit-format", "bench_decode"),
        ("transit-plan", "plan_bench"),
        ("transit-cluster", "cluster_bench"),
    ] {
        cargo(&[
            "run",
            "--release",
            "--package",
            package,
            "--example",
            example,
        ])?;
    }
    launches()
}

/// The launch path alone.
pub(crate) fn launches() -> Result<()> {
    cargo(&[
        "build",
        "--release",
        "--package",
        "transit-record-shim",
        "--package",
        "transit-replay-shim",
        "--package",
        "transit-plan",
    ])?;
    let folder = tempfile::tempdir()?;
    let program = compiled(folder.path())?;
    let ways = ways(folder.path(), &program)?;
    let mut times = vec![Vec::new(); ways.len()];
    let mut allocations = vec![0; ways.len()];
    // Interleaved, so that a change of the machine's speed meets all of them.
    for _ in 0..ROUNDS {
        for ((way, times), allocations) in ways.iter().zip(&mut times).zip(&mut allocations) {
            let (ns, made) = timed(folder.path(), &program, way)?;
            times.push(ns);
            *allocations = made.max(*allocations);
        }
    }
    let mut rows = Vec::new();
    for ((way, mut times), allocations) in ways.iter().zip(times).zip(allocations) {
        times.sort_by(f64::total_cmp);
        rows.push(Row {
            name: way.name,
            median_ns: times.get(times.len() / 2).copied().unwrap_or(0.0),
            allocations,
            instructions: instructions(folder.path(), &program, way),
        });
    }
    print(&rows);
    Ok(())
}

/// The program, and the driver that does nothing beside it.
fn compiled(folder: &Path) -> Result<PathBuf> {
    let root = transit_harness::workspace();
    let program = folder.join("launches");
    for (source, out, more) in [
        (
            "crates/transit-hook/tests/live/fake_driver.c",
            folder.join("libcuda.so.1"),
            &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"][..],
        ),
        ("fixtures/programs/bench/launches.c", program.clone(), &[]),
    ] {
        let mut command = Command::new("gcc");
        command
            .args(["-O2", "-w", "-o"])
            .arg(out)
            .arg(root.join(source));
        run_command(command.args(more).arg("-ldl"))?;
    }
    Ok(program)
}

/// Bare; under the hooks alone, which is the replayer without a plan; under a plan without steps,
/// made from a recording of the program; under the recorder.
fn ways(folder: &Path, program: &Path) -> Result<Vec<Way>> {
    let release = transit_harness::workspace().join("target/release");
    let record = release.join("libtransit_record.so");
    let replay = release.join("libtransit_replay.so");
    let trace = folder.join("launches.trace.zst");
    let plan = folder.join("launches.plan");
    let recording = Way {
        name: "hook + recorder",
        environment: vec![("LD_PRELOAD", record), ("TRANSIT_TRACE", trace.clone())],
    };
    let output = command(folder, program, &recording, 40).output()?;
    ensure!(
        output.status.success(),
        "recording the program: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    run_command(
        Command::new(release.join("transit-plan"))
            .arg("build")
            .arg(&trace)
            .args(["--policy", "base", "--hbm", "1GiB", "-o"])
            .arg(&plan),
    )?;
    Ok(vec![
        Way {
            name: "no-op driver, bare",
            environment: Vec::new(),
        },
        Way {
            name: "hook only",
            environment: vec![("LD_PRELOAD", replay.clone())],
        },
        Way {
            name: "hook + replayer, no steps",
            environment: vec![("LD_PRELOAD", replay), ("TRANSIT_PLAN", plan)],
        },
        recording,
    ])
}

fn command(folder: &Path, program: &Path, way: &Way, iterations: u64) -> Command {
    let mut command = Command::new(program);
    command.arg(iterations.to_string());
    prepare(&mut command, folder, way);
    command
}

fn prepare(command: &mut Command, folder: &Path, way: &Way) {
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("TRANSIT_LOCK_DIR", folder)
        .envs(way.environment.iter().map(|(name, value)| (name, value)));
}

fn timed(folder: &Path, program: &Path, way: &Way) -> Result<(f64, u64)> {
    let output = command(folder, program, way, ITERATIONS).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", way.name);
    let (ns, allocations) = text
        .trim()
        .split_once(' ')
        .with_context(|| format!("{}: printed {text:?}", way.name))?;
    Ok((ns.parse()?, allocations.parse()?))
}

/// Instructions per launch, those of our own threads included; `None` without valgrind.
fn instructions(folder: &Path, program: &Path, way: &Way) -> Option<u64> {
    let count = |iterations: u64| {
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .arg(iterations.to_string());
        prepare(&mut command, folder, way);
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("Collected :"))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    let (few, many) = COUNTED;
    let rise = count(many)?.checked_sub(count(few)?)?;
    Some(rise / ((many - few) * OPS))
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "a launch through",
        "ns",
        "over the driver, ns",
        "instructions",
        "over the driver",
        "allocations",
    ]);
    let base = rows.first();
    let base_ns = base.map_or(0.0, |row| row.median_ns);
    let base_count = base.and_then(|row| row.instructions);
    for row in rows {
        let over = row.instructions.zip(base_count);
        let over = over.map(|(count, base)| count.saturating_sub(base).to_string());
        let count = row.instructions.map(|count| count.to_string());
        table.add_row([
            row.name.to_owned(),
            format!("{:.1}", row.median_ns),
            format!("{:.1}", row.median_ns - base_ns),
            count.unwrap_or_else(|| "no valgrind".to_owned()),
            over.unwrap_or_default(),
            row.allocations.to_string(),
        ]);
    }
    for column in 1..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!(
        "Launch path on this machine: median of {ROUNDS} interleaved runs of {ITERATIONS} x {OPS} \
         launches with two pointers each.\n{table}"
    );
}
