//! What a hooked launch costs, measured as a job has it: a program launches through a `libcuda.so.1`
//! that does nothing, bare and under the release shims. Instructions of the launching thread are
//! counted by valgrind: they are the same on any machine, however busy, and have a budget. Time is
//! what this machine makes of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};

use crate::build::{cargo, run as run_command};

/// Launches of one iteration of the program.
const OPS: u64 = 100;
/// Iterations of a timed run, and timed runs of each kind.
const ITERATIONS: u64 = 500;
const ROUNDS: usize = 9;
/// Iterations whose instructions are counted, and those of a recording.
const COUNTED: u64 = 50;
const RECORDED: u64 = 40;

/// Kinds of launches, and the program's arguments for them.
const SHAPES: [(&str, &str); 7] = [
    ("3 parameters", "3 created plain"),
    ("5", "5 created plain"),
    ("20", "20 created plain"),
    ("5, Ex", "5 created ex"),
    ("5, legacy stream", "5 legacy plain"),
    ("20, legacy, Ex", "20 legacy ex"),
    ("5, per-thread", "5 per-thread plain"),
];

/// A way to run the program.
struct Way {
    name: &'static str,
    /// Shim, if any.
    shim: Option<&'static str>,
    /// The variable that names its plan or trace, and that file's ending.
    file: Option<(&'static str, &'static str)>,
    /// The program's last argument: the job that the plan was made of, or another.
    job: &'static str,
    /// Instructions that a launch with [`SHAPES`]' first arguments may take over the driver's own:
    /// what was measured, and a tenth for another compiler's choices.
    budget: u64,
}

const RECORDING: Way = Way {
    name: "recorder",
    shim: Some("libtransit_record.so"),
    file: Some(("TRANSIT_TRACE", "trace.zst")),
    job: "one",
    budget: 660,
};

const WAYS: [Way; 5] = [
    Way {
        name: "driver alone",
        shim: None,
        file: None,
        job: "one",
        budget: 0,
    },
    Way {
        name: "hooks (no plan)",
        shim: Some("libtransit_replay.so"),
        file: None,
        job: "one",
        budget: 360,
    },
    Way {
        name: "replayer in step, no steps",
        shim: Some("libtransit_replay.so"),
        file: Some(("TRANSIT_PLAN", "plan")),
        job: "one",
        budget: 515,
    },
    Way {
        name: "replayer, another job's plan",
        shim: Some("libtransit_replay.so"),
        file: Some(("TRANSIT_PLAN", "plan")),
        job: "another",
        budget: 700,
    },
    RECORDING,
];

/// What a way costs.
#[derive(Default)]
struct Cost {
    /// Nanoseconds of a launch in each round.
    ns: Vec<f64>,
    /// Allocations of the launching thread, most in any round.
    allocations: u64,
    /// Instructions of a launch, by shape; empty without valgrind.
    instructions: Vec<u64>,
}

/// Measures, prints the tables and says whether every way keeps to its budget.
pub(crate) fn run() -> Result<bool> {
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
    let bench = Bench {
        folder: folder.path(),
        release: transit_harness::workspace().join("target/release"),
    };
    bench.compile()?;
    for (_, shape) in SHAPES {
        bench.plan(shape)?;
    }
    let mut costs: Vec<Cost> = WAYS.iter().map(|_| Cost::default()).collect();
    // Interleaved, so that a change of the machine's speed meets all of them.
    for _ in 0..ROUNDS {
        for (way, cost) in WAYS.iter().zip(&mut costs) {
            let (ns, made) = bench.timed(way)?;
            cost.ns.push(ns);
            cost.allocations = made.max(cost.allocations);
        }
    }
    for (way, cost) in WAYS.iter().zip(&mut costs) {
        let counts = SHAPES.iter().map(|(_, shape)| bench.counted(way, shape));
        cost.instructions = counts.collect::<Option<_>>().unwrap_or_default();
    }
    Ok(print(&costs))
}

struct Bench<'a> {
    /// Where the program lies, the driver beside it, traces and plans.
    folder: &'a Path,
    /// Where the shims and the planner lie.
    release: PathBuf,
}

impl Bench<'_> {
    fn compile(&self) -> Result<()> {
        let root = transit_harness::workspace();
        for (source, out, more) in [
            (
                "crates/transit-hook/tests/live/fake_driver.c",
                "libcuda.so.1",
                &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"][..],
            ),
            ("fixtures/programs/bench/launches.c", "launches", &[]),
        ] {
            let mut command = Command::new("gcc");
            command
                .args(["-O2", "-w", "-o"])
                .arg(self.folder.join(out))
                .arg(root.join(source));
            run_command(command.args(more).arg("-ldl"))?;
        }
        Ok(())
    }

    fn file(&self, shape: &str, ending: &str) -> PathBuf {
        let name = shape.replace(' ', "-");
        self.folder.join(format!("{name}.{ending}"))
    }

    /// Records the program and makes a plan without steps of it.
    fn plan(&self, shape: &str) -> Result<()> {
        self.output(&RECORDING, shape, RECORDED, None)?;
        let output = Command::new(self.release.join("transit-plan"))
            .arg("build")
            .arg(self.file(shape, "trace.zst"))
            .args(["--policy", "base", "--hbm", "1GiB", "-o"])
            .arg(self.file(shape, "plan"))
            .output()?;
        succeeded("planning", &output)
    }

    /// Runs the program under `way`, inside `tool` if one is given.
    fn output(
        &self,
        way: &Way,
        shape: &str,
        iterations: u64,
        tool: Option<&[&str]>,
    ) -> Result<Output> {
        let program = self.folder.join("launches");
        let mut command = match tool {
            Some([tool, arguments @ ..]) => {
                let mut command = Command::new(tool);
                command.args(arguments).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command
            .arg(iterations.to_string())
            .args(shape.split(' '))
            .arg(way.job)
            .env("LD_LIBRARY_PATH", self.folder)
            .env("TRANSIT_LOCK_DIR", self.folder);
        if let Some(shim) = way.shim {
            command.env("LD_PRELOAD", self.release.join(shim));
        }
        if let Some((variable, ending)) = way.file {
            command.env(variable, self.file(shape, ending));
        }
        let output = command.output().context(way.name)?;
        succeeded(way.name, &output)?;
        Ok(output)
    }

    /// Nanoseconds of a launch of the first shape, and the thread's allocations.
    fn timed(&self, way: &Way) -> Result<(f64, u64)> {
        let output = self.output(way, SHAPES[0].1, ITERATIONS, None)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (ns, allocations) = text
            .trim()
            .split_once(' ')
            .with_context(|| format!("{}: printed {text:?}", way.name))?;
        Ok((ns.parse()?, allocations.parse()?))
    }

    /// Instructions of a launch; `None` without valgrind.
    fn counted(&self, way: &Way, shape: &str) -> Option<u64> {
        let tool = [
            "valgrind",
            "--tool=callgrind",
            "--toggle-collect=measured",
            "--callgrind-out-file=/dev/null",
        ];
        let output = self.output(way, shape, COUNTED, Some(&tool)).ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains("Collected :"))?;
        let all: u64 = line.split_whitespace().last()?.parse().ok()?;
        Some(all / (COUNTED * OPS))
    }
}

fn succeeded(what: &str, output: &Output) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what}: {said}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Prints what each way costs; whether all keep to their budgets.
fn print(costs: &[Cost]) -> bool {
    let Some(bare) = costs.first() else {
        return true;
    };
    let mut times = table([
        "a launch through",
        "ns",
        "over the driver, ns",
        "least",
        "most",
        "allocations",
    ]);
    let shapes = SHAPES.iter().map(|(name, _)| *name);
    let header = ["a launch through"].into_iter().chain(shapes);
    let mut counts = table(header.chain(["budget of the first"]));
    let mut kept = true;
    for (way, cost) in WAYS.iter().zip(costs) {
        let over = cost.ns.iter().zip(&bare.ns).map(|(ns, bare)| ns - bare);
        let over: Vec<f64> = over.collect();
        times.add_row([
            way.name.to_owned(),
            format!("{:.1}", median(cost.ns.clone())),
            format!("{:.1}", median(over.clone())),
            format!("{:.1}", over.iter().copied().fold(f64::INFINITY, f64::min)),
            format!(
                "{:.1}",
                over.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            ),
            cost.allocations.to_string(),
        ]);
        let alone = way.shim.is_none();
        let over = cost.instructions.iter().zip(&bare.instructions);
        let over: Vec<u64> = over
            .map(|(count, bare)| {
                if alone {
                    *count
                } else {
                    count.saturating_sub(*bare)
                }
            })
            .collect();
        let within = alone || over.first().is_none_or(|count| *count <= way.budget);
        kept &= within;
        let budget = match (alone, within) {
            (true, _) => String::new(),
            (_, true) => way.budget.to_string(),
            (_, false) => format!("{} exceeded", way.budget),
        };
        let cells = over.iter().map(u64::to_string);
        counts.add_row(
            [way.name.to_owned()]
                .into_iter()
                .chain(cells)
                .chain([budget]),
        );
    }
    println!(
        "Time of a launch with {} on this machine, by the median of {ROUNDS} interleaved runs of \
         {ITERATIONS} x {OPS}:\n{times}",
        SHAPES[0].0
    );
    if bare.instructions.is_empty() {
        println!("Instructions were not counted: valgrind is not installed, or does not run here.");
    } else {
        println!("Instructions of the driver alone, and of the others over it:\n{counts}");
    }
    kept
}

fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
