//! Every verb with files that are not what they should be, and with nobody to read what it says:
//! exit codes hold, messages name the file and the next step, `--json` stays JSON.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::Job;

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transit-plan"));
    command.current_dir(folder).args(line.split_whitespace());
    command
}

fn run(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(folder, line).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A trace as the recorder writes it.
fn trace() -> Vec<u8> {
    let job = Job {
        layers: 8,
        steps: 5,
        ..Job::default()
    };
    let card_chunks = Some(job.total_chunks() as usize * 100 / 141);
    let made = Job { card_chunks, ..job }.make();
    made.trace.write_to(Vec::new()).unwrap()
}

const VERBS: [&str; 6] = [
    "inspect FILE",
    "build FILE -o out.plan",
    "plot heatmap FILE -o out.png",
    "plot sizes FILE -o out.svg",
    "report FILE",
    "cut FILE --ops 0..3 -o out.zst",
];

#[test]
fn a_file_that_is_something_else_is_told_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty"), "").unwrap();
    fs::write(at("text"), "hello ".repeat(99)).unwrap();
    fs::create_dir(at("folder")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(at("pipe"))
            .status()
            .unwrap()
            .success()
    );
    for name in [
        "empty",
        "text",
        "folder",
        "pipe",
        "/dev/zero",
        "none",
        "no/such",
        "/",
        "..",
    ] {
        for verb in VERBS.iter().chain(&["cut FILE --salvage -o out.zst"]) {
            let line = verb.replace("FILE", name);
            let (code, out, err) = run(folder.path(), &line);
            assert_eq!(code, Some(2), "{line}: {err}");
            assert!(
                out.is_empty() && err.contains(name) && err.contains("next: "),
                "{line}: {err}"
            );
        }
    }
    let (_, _, err) = run(folder.path(), "inspect text");
    assert!(err.contains("neither a trace nor a plan"), "{err}");
    fs::write(at("x.zst"), trace()).unwrap();
    run(folder.path(), "build x.zst -o x.plan");
    for verb in &VERBS[1..] {
        let (_, _, err) = run(folder.path(), &verb.replace("FILE", "x.plan"));
        assert!(
            err.contains("x.plan is a plan, not a trace"),
            "{verb}: {err}"
        );
    }
}

#[test]
fn a_failure_is_json_too_where_json_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["inspect", "build", "report"] {
        let (code, out, err) = run(folder.path(), &format!("{verb} none.zst --json"));
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, value["kind"].as_str()), (Some(2), Some("error")));
        assert!(
            value["error"].as_str().unwrap().contains("none.zst"),
            "{value}"
        );
        assert!(value["next"].is_string() && err.contains("none.zst"));
    }
}

#[test]
fn one_bad_rank_does_not_keep_the_others_from_being_shown_planned_or_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let good = trace();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0x40;
    for (rank, bytes) in [&good[..], b"", &bad[..], &good[..]].iter().enumerate() {
        fs::write(folder.path().join(format!("x.rank{rank}.trace.zst")), bytes).unwrap();
    }
    let (code, out, err) = run(folder.path(), "inspect x.trace.zst --json");
    let list: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let kinds: Vec<_> = list
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        (code, kinds),
        (Some(2), vec!["trace", "error", "trace", "trace"])
    );
    assert!(
        err.contains("x.rank1.trace.zst") && err.contains("x.rank2.trace.zst"),
        "{err}"
    );
    for line in [
        "build x.trace.zst -o x.plan",
        "plot heatmap x.trace.zst -o x.png",
    ] {
        let (code, _, err) = run(folder.path(), line);
        assert_eq!(code, Some(2), "{line}");
        assert!(
            err.contains("x.rank1.trace.zst") && err.contains("--salvage"),
            "{err}"
        );
    }
    for (rank, good) in [true, false, false, true].iter().enumerate() {
        for end in ["plan", "png"] {
            let made = folder.path().join(format!("x.rank{rank}.{end}"));
            assert_eq!(made.exists(), *good, "{}", made.display());
        }
    }
}

#[test]
fn nobody_reading_stderr_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.zst"), trace()).unwrap();
    for verb in VERBS {
        for (name, code) in [("x.zst", 0), ("none", 2)] {
            let full = fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap();
            let status = command(folder.path(), &verb.replace("FILE", name))
                .stdout(Stdio::null())
                .stderr(full)
                .status();
            assert_eq!(status.unwrap().code(), Some(code), "{verb} {name}");
        }
    }
}

#[test]
fn an_output_is_never_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = trace();
    fs::write(folder.path().join("x.zst"), &bytes).unwrap();
    std::os::unix::fs::symlink("x.zst", folder.path().join("link")).unwrap();
    for line in [
        "build x.zst -o x.zst",
        "cut x.zst --ops 0..3 -o link",
        "build link -o ./x.zst",
    ] {
        let (code, _, err) = run(folder.path(), line);
        assert_eq!(code, Some(2), "{line}");
        assert!(
            err.contains("would be lost") && err.contains("next: "),
            "{err}"
        );
    }
    assert_eq!(fs::read(folder.path().join("x.zst")).unwrap(), bytes);
}

#[test]
fn a_boundary_that_names_nothing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.zst"), trace()).unwrap();
    for boundary in ["no_such_kernel", "99999999"] {
        let line = format!("build x.zst --boundary-op {boundary} -o x.plan");
        let (code, _, err) = run(folder.path(), &line);
        assert_eq!(code, Some(2));
        assert!(
            err.contains("--boundary-op") && err.contains("next: "),
            "{err}"
        );
    }
    assert!(!folder.path().join("x.plan").exists());
}

#[test]
fn runs_of_different_jobs_are_called_so() {
    let folder = tempfile::tempdir().unwrap();
    for (name, job) in [("a.zst", "one"), ("b.zst", "two")] {
        let mut trace = transit_format::trace::Trace::read(&trace(), "x").unwrap();
        trace.header.command = vec![format!("/opt/{job}")];
        trace
            .write_to(fs::File::create(folder.path().join(name)).unwrap())
            .unwrap();
    }
    let (_, out, _) = run(folder.path(), "report a.zst b.zst");
    assert!(
        out.contains("different jobs") && out.contains("ran one"),
        "{out}"
    );
    assert!(
        !run(folder.path(), "report a.zst a.zst")
            .1
            .contains("different jobs")
    );
    run(folder.path(), "plot sizes a.zst b.zst -o s.svg");
    let picture = fs::read_to_string(folder.path().join("s.svg")).unwrap();
    assert!(picture.contains("2 different jobs: one"));
}
