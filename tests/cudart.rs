//! A real cudart over the software driver: whatever it asks for that we hook, it is given our
//! wrapper of just that export; and a program that makes the same requests works through them.
//! `fixtures/cudart/README.md` says where the lists of requests come from.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_format::trace::Trace;
use transit_format::trace::model::OpKind;
use transit_harness::{SoftGpu, artifacts, workspace};

use crate::hazards::compile_at;
use crate::util::{PLENTY_BYTES, build, record, replay_stats};

/// A cudart: its wheel on PyPI, its library, and the list of its requests.
struct Cudart {
    wheel: &'static str,
    library: &'static str,
    list: &'static str,
}

const CUDARTS: [Cudart; 2] = [
    Cudart {
        wheel: "nvidia-cuda-runtime-cu12==12.9.79",
        library: "nvidia/cuda_runtime/lib/libcudart.so.12",
        list: "requests-12.9.txt",
    },
    Cudart {
        wheel: "nvidia-cuda-runtime==13.5.37",
        library: "nvidia/cu13/lib/libcudart.so.13",
        list: "requests-13.5.txt",
    },
];

/// The newest driver both know, so that they ask for all they can.
const DRIVER: &str = "13050";

fn fixture(name: &str) -> PathBuf {
    workspace().join("fixtures/cudart").join(name)
}

fn gpu() -> SoftGpu {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    gpu.with("SOFTGPU_VERSION", DRIVER)
}

/// The library out of its wheel, fetched once into the target folder; the reason why not, else.
fn fetched(cudart: &Cudart) -> Result<PathBuf, String> {
    let folder = artifacts().join("cudart").join(cudart.list);
    let library = folder.join(cudart.library);
    if library.exists() {
        return Ok(library);
    }
    let fresh = tempfile::tempdir().unwrap();
    let python = |arguments: &[&str]| -> Result<(), String> {
        let output = Command::new("python3")
            .args(arguments)
            .current_dir(fresh.path())
            .output()
            .map_err(|error| format!("python3: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default().to_owned();
        output.status.success().then_some(()).ok_or(last)
    };
    let options = ["--quiet", "--no-deps", "--timeout", "10", "--retries", "1"];
    let download = ["-m", "pip", "download", cudart.wheel];
    python(&[download.as_slice(), &options].concat())?;
    let entries = std::fs::read_dir(fresh.path()).unwrap();
    let wheel = entries.map(|entry| entry.unwrap().file_name()).next();
    let wheel = wheel.ok_or("pip brought no file")?;
    python(&["-m", "zipfile", "-e", wheel.to_str().unwrap(), "."])?;
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    // Under a name of its own first: another test run may be doing the same.
    let partial = library.with_extension(std::process::id().to_string());
    std::fs::copy(fresh.path().join(cudart.library), &partial).map_err(|e| e.to_string())?;
    std::fs::rename(partial, &library).unwrap();
    Ok(library)
}

/// A request and its answer, as `tap.c` prints it.
struct Asked {
    request: String,
    name: String,
    symbol: String,
    by: String,
}

fn tapped(gpu: &SoftGpu, tap: &Path, library: &Path, shim: Option<&Path>) -> Vec<Asked> {
    let mut command = gpu.command(tap);
    command.arg(library);
    if let Some(shim) = shim {
        command.env("LD_PRELOAD", shim).env("SHIM", shim);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    let lines = String::from_utf8(output.stdout).unwrap();
    let parsed = lines.lines().map(|line| {
        let [name, version, flags, symbol, by]: [&str; 5] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        Asked {
            request: format!("{name} {version} {flags}\n"),
            name: name.to_owned(),
            symbol: symbol.to_owned(),
            by: by.to_owned(),
        }
    });
    parsed.collect()
}

fn exports(shim: &str) -> BTreeSet<String> {
    let name = shim
        .trim_start_matches("libtransit_")
        .trim_end_matches(".so");
    let list = workspace().join(format!("transit-{name}/shim/exports.txt"));
    let text = std::fs::read_to_string(list).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// An export's name without version and stream suffix.
fn base(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let cut = name.rsplit_once("_v").map(|(base, _)| base);
    cut.unwrap_or(name)
}

fn answers_are_ours(cudart: &Cudart, library: &Path) {
    let gpu = gpu();
    let tap = compile_at(&gpu, &fixture("tap.c"), &[Path::new("-rdynamic")]);
    let bare = tapped(&gpu, &tap, library, None);
    let list: String = bare.iter().map(|asked| asked.request.as_str()).collect();
    if std::env::var_os("TRANSIT_REFRESH").is_some() {
        std::fs::write(fixture(cudart.list), &list).unwrap();
    }
    let committed = std::fs::read_to_string(fixture(cudart.list)).unwrap();
    assert!(committed == list, "{} is not what it asks", cudart.list);
    for name in ["libtransit_record.so", "libtransit_replay.so"] {
        let hooked = exports(name);
        let bases: BTreeSet<&str> = hooked.iter().map(|name| base(name)).collect();
        let shim = artifacts().join(name);
        let all = tapped(&gpu, &tap, library, Some(&shim));
        assert_eq!(all.len(), bare.len(), "{name}: it asks for something else");
        for asked in &all {
            let Asked {
                request,
                symbol,
                by,
                ..
            } = asked;
            // Our wrapper of that export, and nothing of ours for any other.
            let want = match symbol.as_str() {
                "-" => "nobody",
                symbol if hooked.contains(symbol) => "shim",
                _ => "driver",
            };
            assert_eq!(by, want, "{name}: {request}{symbol}");
            // A hooked name that the software driver lacks would prove nothing.
            let known = !bases.contains(asked.name.as_str()) || symbol != "-";
            assert!(known, "{name}: the software driver lacks {request}");
        }
        let ours = all.iter().filter(|asked| asked.by == "shim").count();
        assert!(ours > 90, "{name}: {ours} of {} answers", all.len());
    }
}

#[test]
fn a_real_cudart_is_given_our_wrapper_of_every_hooked_name() {
    for cudart in &CUDARTS {
        match fetched(cudart) {
            Ok(library) => answers_are_ours(cudart, &library),
            Err(why) => {
                // Past the test's captured output: a run without PyPI should show it.
                let line = format!("skipped: no {} from PyPI: {why}\n", cudart.wheel);
                std::io::stderr().write_all(line.as_bytes()).unwrap();
            }
        }
    }
}

fn asking(gpu: &SoftGpu, program: &Path, cudart: &Cudart, launcher: &[&Path]) -> Output {
    let mut command = match launcher {
        [] => gpu.command(program),
        [first, more @ ..] => {
            let mut command = gpu.command(first);
            command.args(more).arg("--").arg(program);
            command
        }
    };
    let output = command.arg(fixture(cudart.list)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    output
}

#[test]
fn a_program_that_asks_like_cudart_works_through_the_answers() {
    let gpu = gpu();
    let program = compile_at(&gpu, &fixture("asks_like_cudart.c"), &[]);
    let plan = build(&record(&gpu, &[]), "prefetch", PLENTY_BYTES, &[]);
    let (trace, stats) = (
        gpu.folder().join("x.trace.zst"),
        gpu.folder().join("x.json"),
    );
    let (recorder, replayer) = (
        artifacts().join("transit-record"),
        artifacts().join("transit-replay"),
    );
    for cudart in &CUDARTS {
        let bare = asking(&gpu, &program, cudart, &[]);
        assert_eq!(
            String::from_utf8_lossy(&bare.stdout),
            "sum 3.50\ncopy 3.50\n"
        );
        let record = [recorder.as_path(), Path::new("-o"), &trace];
        assert_eq!(asking(&gpu, &program, cudart, &record).stdout, bare.stdout);
        let read = Trace::open(&trace).unwrap();
        let converted = read.allocs.iter().filter(|alloc| alloc.converted);
        // A third comes from a pool, which the driver may not be able to make managed.
        assert!(converted.count() >= 2, "{:?}", read.allocs);
        let count = |kind| read.ops.iter().filter(|op| op.kind == kind).count();
        // The filling, then three ways to launch on either default stream, and one graph.
        assert_eq!((count(OpKind::Kernel), count(OpKind::Graph)), (7, 1));
        assert_eq!(read.totals.hooked_ops, read.totals.cupti_ops);
        let options = [
            "--plan".as_ref(),
            plan.as_path(),
            "--stats".as_ref(),
            &stats,
        ];
        let replay = [&[replayer.as_path()], options.as_slice()].concat();
        assert_eq!(asking(&gpu, &program, cudart, &replay).stdout, bare.stdout);
        let seen = replay_stats(&stats);
        assert_eq!(seen["ops"].as_u64(), Some(read.ops.len() as u64), "{seen}");
    }
}
