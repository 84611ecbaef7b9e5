//! What `inspect`, `report` and `cut` print, held against files under `tests/golden`: for a
//! made-up run under each policy, and for the frozen samples of each format version.
//! `TRANSIT_BLESS=1 cargo test -p transit-plan --test golden` accepts a change.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use transit_plan::synthetic::{Directed, Synthetic};

/// A folder with the made-up traces and the frozen samples under their plain names.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let runs = [
        (Directed::Base, "base"),
        (Directed::Prefetch, "prefetch"),
        (Directed::Advise, "advise"),
    ];
    for (directed, name) in runs {
        let trace = Synthetic {
            directed,
            ..Synthetic::default()
        }
        .trace();
        let bytes = trace.write_to(Vec::new()).unwrap();
        std::fs::write(folder.path().join(format!("{name}.trace.zst")), bytes).unwrap();
    }
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/formats");
    for name in ["v1.trace.zst", "v1.plan"] {
        std::fs::copy(frozen.join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transit-plan"))
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares with `tests/golden/NAME.txt`. Sizes of compressed files are left out: they belong to
/// the compressor.
fn check(name: &str, folder: &TempDir, arguments: &[&str]) {
    let output = run(folder, arguments);
    let size = regex::Regex::new(r"(?m)^(trace|plan) (.*) \([^)]*\)$").unwrap();
    let actual = format!(
        "$ transit-plan {}\n{}exit code {}\n",
        arguments.join(" "),
        size.replace_all(&text(&output.stdout), "$1 $2 (SIZE)"),
        output.status.code().unwrap()
    );
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("TRANSIT_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs (TRANSIT_BLESS=1 accepts it); it is now:\n{actual}\nstderr:\n{}",
        path.display(),
        text(&output.stderr)
    );
}

#[test]
fn inspect_prints_what_it_did() {
    let folder = folder();
    check("inspect-base", &folder, &["inspect", "base.trace.zst"]);
    check(
        "inspect-advise",
        &folder,
        &["inspect", "advise.trace.zst", "--top", "3"],
    );
    check("inspect-v1-trace", &folder, &["inspect", "v1.trace.zst"]);
    check(
        "inspect-v1-trace-ops",
        &folder,
        &["inspect", "v1.trace.zst", "--ops"],
    );
    check(
        "inspect-v1-trace-allocs",
        &folder,
        &["inspect", "v1.trace.zst", "--allocs"],
    );
    check("inspect-v1-plan", &folder, &["inspect", "v1.plan"]);
    check(
        "inspect-v1-plan-steps",
        &folder,
        &["inspect", "v1.plan", "--steps"],
    );
}

#[test]
fn report_prints_what_it_did() {
    let folder = folder();
    let all = [
        "report",
        "base.trace.zst",
        "prefetch.trace.zst",
        "advise.trace.zst",
    ];
    check("report", &folder, &all);
    let two = ["report", "base.trace.zst", "advise.trace.zst", "--markdown"];
    check("report-markdown", &folder, &two);
}

#[test]
fn json_is_complete_and_parses() {
    let folder = folder();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(&folder, arguments).stdout).unwrap()
    };
    let trace = json(&["inspect", "base.trace.zst", "--json"]);
    assert_eq!(trace["kind"], "trace");
    assert_eq!(trace["state"], "closed");
    assert_eq!(trace["self_check"], true);
    assert_eq!(trace["iterations"]["list"].as_array().unwrap().len(), 3);
    let plan = json(&["inspect", "v1.plan", "--json"]);
    assert_eq!(plan["kind"], "plan");
    let report = json(&["report", "base.trace.zst", "advise.trace.zst", "--json"]);
    assert_eq!(report["runs"][1]["policy"], "advise");
    assert!(report["runs"][0]["median"]["htod_bytes"].as_f64().unwrap() > 0.0);
}

#[test]
fn every_rank_of_a_job_is_shown_by_the_name_given_to_the_recorder() {
    let folder = folder();
    for rank in 0..2 {
        let name = format!("job.rank{rank}.trace.zst");
        std::fs::copy(
            folder.path().join("base.trace.zst"),
            folder.path().join(name),
        )
        .unwrap();
    }
    let shown = text(&run(&folder, &["inspect", "job.trace.zst"]).stdout);
    assert!(shown.contains("job.rank0.trace.zst") && shown.contains("job.rank1.trace.zst"));
    let json = run(&folder, &["inspect", "job.trace.zst", "--json"]).stdout;
    let list: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2);
    let report = text(&run(&folder, &["report", "job.trace.zst"]).stdout);
    assert!(report.contains("2 ranks"), "{report}");
}

#[test]
fn a_killed_recorder_leaves_a_trace_that_is_shown_and_a_damaged_one_is_salvaged() {
    let folder = folder();
    let path = folder.path().join("v1.trace.zst");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(
        folder.path().join("cut.trace.zst"),
        &bytes[..bytes.len() - 20],
    )
    .unwrap();
    let cut = run(&folder, &["inspect", "cut.trace.zst"]);
    assert_eq!(cut.status.code(), Some(0));
    assert!(
        text(&cut.stdout).contains("cut at offset"),
        "{}",
        text(&cut.stdout)
    );
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xFF;
    std::fs::write(folder.path().join("bad.trace.zst"), damaged).unwrap();
    let bad = run(&folder, &["inspect", "bad.trace.zst"]);
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad.stderr));
    assert!(
        text(&bad.stdout).contains("\nlost\n"),
        "{}",
        text(&bad.stdout)
    );
    let report = run(&folder, &["report", "bad.trace.zst"]);
    assert_eq!(report.status.code(), Some(2));
    assert!(
        text(&report.stderr).contains("--salvage"),
        "{}",
        text(&report.stderr)
    );
    let salvage = ["cut", "bad.trace.zst", "--salvage", "-o", "good.trace.zst"];
    assert_eq!(run(&folder, &salvage).status.code(), Some(0));
    assert_eq!(
        run(&folder, &["inspect", "good.trace.zst"]).status.code(),
        Some(0)
    );
}

#[test]
fn pictures_are_drawn_or_the_reason_is_given() {
    let folder = folder();
    for name in ["heat.png", "heat.svg"] {
        let drawn = run(&folder, &["plot", "heatmap", "base.trace.zst", "-o", name]);
        assert_eq!(drawn.status.code(), Some(0), "{}", text(&drawn.stderr));
    }
    let svg = std::fs::read_to_string(folder.path().join("heat.svg")).unwrap();
    for words in [
        "managed memory by address",
        "device time (ms)",
        "iteration 1",
        "emulated card",
    ] {
        assert!(svg.contains(words), "no \"{words}\" in the picture");
    }
    assert!(svg.len() < 8 << 20, "{} bytes", svg.len());
    let sizes = [
        "plot",
        "sizes",
        "base.trace.zst",
        "prefetch.trace.zst",
        "-o",
        "sizes.svg",
    ];
    assert_eq!(run(&folder, &sizes).status.code(), Some(0));
    let mut still = Synthetic::default().trace();
    (still.migrations, still.faults) = (Vec::new(), Vec::new());
    still.header.emulated_card_bytes = None;
    let bytes = still.write_to(Vec::new()).unwrap();
    std::fs::write(folder.path().join("still.trace.zst"), bytes).unwrap();
    let refused = run(
        &folder,
        &["plot", "heatmap", "still.trace.zst", "-o", "still.png"],
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("--hbm-limit"),
        "{}",
        text(&refused.stderr)
    );
    assert!(!folder.path().join("still.png").exists());
}
