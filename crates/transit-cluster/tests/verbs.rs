//! The binary as people run it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn run(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transit-cluster"));
    command.args(args).current_dir(folder).output().unwrap()
}

fn stdout(args: &[&str], folder: &Path) -> String {
    let output = run(args, folder);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |threads: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_transit-cluster"))
            .args([
                "sweep",
                "kalos",
                "--jobs",
                "2000",
                "--over",
                "reduction=0%,25%,50%",
            ])
            .args(["--over", "queue=fifo,easy", "--json"])
            .env("RAYON_NUM_THREADS", threads)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success());
        output.stdout
    };
    assert_eq!(sweep("1"), sweep("4"));
    let other = stdout(
        &["run", "kalos", "--jobs", "500", "--trace-seed", "2"],
        folder.path(),
    );
    assert_ne!(
        other,
        stdout(&["run", "kalos", "--jobs", "500"], folder.path())
    );
}

#[test]
fn a_generated_trace_reads_back_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    stdout(
        &["generate", "seren", "--jobs", "3000", "-o", "s.csv"],
        folder.path(),
    );
    let numbers = |trace: &[&str]| {
        let text = stdout(
            &[&["run"], trace, &["--racks", "20", "--json"]].concat(),
            folder.path(),
        );
        serde_json::from_str::<Value>(&text).unwrap()["metrics"].clone()
    };
    assert_eq!(numbers(&["s.csv"]), numbers(&["seren", "--jobs", "3000"]));
}

#[test]
fn the_real_kalos_jobs_cut_their_rack_traffic_as_the_paper_says() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "compare",
        "kalos-319",
        "--racks",
        "76",
        "--with",
        "reduction=25%",
        "--with",
        "reduction=50%",
        "--json",
    ];
    let document: Value = serde_json::from_str(&stdout(&args, folder.path())).unwrap();
    let racks = |at: usize| {
        let metrics = &document["scenarios"][at]["metrics"];
        metrics["eligible"]["traffic"]["racks"].as_f64().unwrap()
    };
    for (at, paper) in [(1, -24.2), (2, -49.2)] {
        let change = 100.0 * (racks(at) / racks(0) - 1.0);
        assert!((change - paper).abs() < 2.0, "{change} {paper}");
    }
}

#[test]
fn published_figures_hold_of_what_is_generated() {
    let folder = tempfile::tempdir().unwrap();
    for (cluster, seed) in [
        ("kalos", "1"),
        ("kalos", "2"),
        ("seren", "1"),
        ("seren", "4"),
    ] {
        let text = stdout(&["check", cluster, "--trace-seed", seed], folder.path());
        assert!(
            text.contains("GPU hours") && !text.contains("<- off"),
            "{text}"
        );
    }
}

#[test]
fn files_are_written_whole_and_pictures_are_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let args = [
        "run",
        "kalos-319",
        "--racks",
        "40",
        "--plot",
        "new/run.png",
        "--jobs-csv",
        "jobs.csv",
    ];
    let text = stdout(&args, folder.path());
    assert!(text.contains("utilisation"));
    assert!(
        std::fs::read(at("new/run.png"))
            .unwrap()
            .starts_with(b"\x89PNG")
    );
    assert_eq!(
        std::fs::read_to_string(at("jobs.csv"))
            .unwrap()
            .lines()
            .count(),
        320
    );
    let args = [
        "compare",
        "kalos-319",
        "--racks",
        "40",
        "--with",
        "queue=easy",
        "--plot",
        "q.svg",
    ];
    stdout(&args, folder.path());
    assert!(
        std::fs::read_to_string(at("q.svg"))
            .unwrap()
            .contains("<svg")
    );
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        names.iter().filter(|name| name.starts_with('.')).count(),
        0,
        "{names:?}"
    );
}

#[test]
fn help_starts_with_examples() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["run", "compare", "sweep", "generate", "check", "paper"] {
        let text = stdout(&[verb, "--help"], folder.path());
        assert!(text.starts_with("Examples:\n  "), "{text}");
    }
}

/// What the README shows is what comes out, line by line.
#[test]
fn the_readme_shows_what_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let mut examples = 0;
    for (_, example) in readme
        .match_indices("    $ transit-cluster ")
        .map(|(at, _)| readme.split_at(at))
    {
        let mut lines = example.lines().map_while(|line| line.strip_prefix("    "));
        let args: Vec<&str> = lines.next().unwrap().split(' ').skip(2).collect();
        let folder = tempfile::tempdir().unwrap();
        let text = stdout(&args, folder.path());
        for line in lines {
            assert!(
                text.lines().any(|printed| printed == line),
                "{line}\n{text}"
            );
        }
        examples += 1;
    }
    assert!(examples > 0);
}
