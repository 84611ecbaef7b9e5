//! `transit-plan build` as people and scripts meet it.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{CHUNK, Job};
use transit_format::plan;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transit-plan"));
    command.current_dir(folder).args(args);
    command
}

fn run(folder: &Path, args: &[&str]) -> (Output, String, String) {
    let output = command(folder, args).output().unwrap();
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    let err = String::from_utf8(output.stderr.clone()).unwrap();
    (output, out, err)
}

fn write_trace(folder: &Path, name: &str, steps: u32) -> Job {
    let job = Job {
        layers: 8,
        steps,
        ..Job::default()
    };
    let card = job.total_chunks() as usize * 100 / 141;
    let mut made = Job {
        card_chunks: Some(card),
        ..job.clone()
    }
    .make();
    made.trace.header.device_total_bytes = card as u64 * CHUNK * 100 / 97;
    made.trace
        .write_to(std::fs::File::create(folder.join(name)).unwrap())
        .unwrap();
    job
}

#[test]
fn help_of_every_verb_starts_with_examples() {
    let folder = tempfile::tempdir().unwrap();
    for verb in [
        vec![],
        vec!["build"],
        vec!["inspect"],
        vec!["cut"],
        vec!["report"],
        vec!["plot"],
        vec!["plot", "heatmap"],
        vec!["plot", "sizes"],
    ] {
        let args = [verb.as_slice(), &["--help"]].concat();
        let (output, out, _) = run(folder.path(), &args);
        assert!(output.status.success());
        assert!(
            out.starts_with("Examples:\n  transit-plan "),
            "{args:?}: {out}"
        );
    }
}

#[test]
fn build_writes_a_plan_and_says_what_comes_next() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "warmup.trace.zst", 5);
    let args = [
        "build",
        "warmup.trace.zst",
        "--policy",
        "prefetch",
        "-o",
        "out/job.plan",
    ];
    let (output, out, err) = run(folder.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("4 complete, 4 alike"), "{out}");
    assert!(out.contains("optimizer kernel names"), "{out}");
    assert!(err.contains("transit-plan: wrote out/job.plan"), "{err}");
    let next = "next: transit-replay --plan out/job.plan -- <the job's command>";
    assert!(err.contains(next), "{err}");
    let plan = plan::read(&folder.path().join("out/job.plan")).unwrap();
    assert_eq!(plan.meta.policy, "prefetch");
    assert!(!plan.steps.is_empty());
    assert_eq!(plan.meta.trace_hash.len(), 8);
    assert_eq!(
        std::fs::read_dir(folder.path().join("out"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn several_policies_go_to_several_files() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.trace.zst", 5);
    let all = "base,prefetch,advise";
    let (_, _, err) = run(folder.path(), &["build", "x.trace.zst", "--policy", all]);
    for policy in all.split(',') {
        let path = folder.path().join(format!("x.{policy}.plan"));
        assert_eq!(plan::read(&path).expect(&err).meta.policy, policy);
    }
    let args = [
        "build",
        "x.trace.zst",
        "--policy",
        "base",
        "--policy",
        "advise",
        "-o",
        "{policy}/p",
    ];
    let (_, _, err) = run(folder.path(), &args);
    plan::read(&folder.path().join("advise/p")).expect(&err);
}

#[test]
fn auto_writes_the_policy_predicted_to_be_fastest() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.trace.zst", 5);
    let args = ["build", "x.trace.zst", "--policy", "auto", "--json"];
    let (output, out, err) = run(folder.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let policies = json[0]["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 3);
    let time = |policy: &&serde_json::Value| policy["prediction"]["iteration_ns"].as_u64().unwrap();
    let best = policies.iter().min_by_key(time).unwrap();
    let written = plan::read(&folder.path().join("x.plan")).unwrap();
    assert_eq!(best["policy"], written.meta.policy.as_str());
    assert_eq!(json[0]["phase"]["confident"], true);
}

#[test]
fn every_rank_gets_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.rank0.trace.zst", 5);
    write_trace(folder.path(), "x.rank1.trace.zst", 5);
    let (output, _, err) = run(folder.path(), &["build", "x.trace.zst", "-o", "job.plan"]);
    assert_eq!(output.status.code(), Some(0), "{err}");
    for rank in 0..2 {
        plan::read(&folder.path().join(format!("job.rank{rank}.plan"))).expect(&err);
    }
}

#[test]
fn without_an_iteration_it_says_so_and_is_fine() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.trace.zst", 1);
    let (output, out, err) = run(folder.path(), &["build", "x.trace.zst"]);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("the plan holds placements only"), "{out}");
    assert!(out.contains("--boundary-op"), "{out}");
    plan::read(&folder.path().join("x.plan")).unwrap();
}

#[test]
fn failures_say_what_where_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _, err) = run(folder.path(), &["build", "none.trace.zst"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err.starts_with("transit-plan: ") && err.contains("  next: "),
        "{err}"
    );
    std::fs::write(folder.path().join("bad.trace.zst"), b"no trace at all").unwrap();
    let (output, _, err) = run(folder.path(), &["build", "bad.trace.zst"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err.contains("bad.trace.zst") && err.contains("  next: "),
        "{err}"
    );
    write_trace(folder.path(), "x.trace.zst", 5);
    let (output, _, err) = run(folder.path(), &["build", "x.trace.zst", "--hbm", "1MiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("--hbm"), "{err}");
    let (output, _, err) = run(
        folder.path(),
        &["build", "x.trace.zst", "--policy", "magic"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("base, prefetch, advise"), "{err}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.trace.zst", 5);
    let mut child = command(folder.path(), &["build", "x.trace.zst", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_same_trace_gives_the_same_plan() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), "x.trace.zst", 6);
    for policy in ["prefetch", "advise"] {
        for name in ["one.plan", "two.plan"] {
            let args = [
                "build",
                "x.trace.zst",
                "--policy",
                policy,
                "--emulate",
                "-o",
                name,
            ];
            assert_eq!(run(folder.path(), &args).0.status.code(), Some(0));
        }
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(read("one.plan"), read("two.plan"));
    }
}
