//! The committed recording of a real GPU: every verb works on it, and the committed plans are what
//! `transit-plan build` makes of it today.

use std::path::PathBuf;

use transit_harness::workspace;

use crate::util::{inspect, planner};

fn trace() -> PathBuf {
    workspace().join("fixtures/traces/gpt-27m-h200.trace.zst")
}

fn plans() -> PathBuf {
    workspace().join("plans/gpt-27m/h200")
}

#[test]
fn the_real_trace_is_inspected() {
    let facts = inspect(&trace());
    let text = facts.to_string();
    assert!(text.contains("NVIDIA H200"), "{text}");
    let read = transit_format::trace::Trace::open(&trace()).unwrap();
    assert_eq!(read.end, transit_format::trace::End::Clean);
    assert!(
        read.header
            .emulated_card_bytes
            .is_some_and(|bytes| bytes > 0)
    );
    assert!(read.migrations.len() > 10_000);
    assert_eq!(read.totals.drops.ops, 0);
}

#[test]
fn the_committed_plans_are_what_build_makes_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let card = transit_format::trace::Trace::open(&trace())
        .unwrap()
        .header
        .emulated_card_bytes;
    let hbm = card.unwrap().to_string();
    for policy in ["base", "prefetch", "advise"] {
        let made = folder.path().join(format!("{policy}.plan"));
        let (from, to) = (trace(), made.to_str().unwrap());
        let from = from.to_str().unwrap();
        let arguments = [
            "build",
            from,
            "--policy",
            policy,
            "--emulate",
            "--hbm",
            &hbm,
            "-o",
            to,
        ];
        let output = planner(&arguments);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let committed = plans().join(format!("{policy}.plan"));
        assert_eq!(
            transit_format::plan::read(&made).unwrap(),
            transit_format::plan::read(&committed).unwrap(),
            "{policy}: rebuild with the command in plans/gpt-27m/h200/manifest.toml"
        );
    }
}

#[test]
fn the_real_trace_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (verb, name) in [
        ("heatmap", "h.png"),
        ("heatmap", "h.svg"),
        ("sizes", "s.png"),
    ] {
        let picture = folder.path().join(name);
        let from = trace();
        let arguments = [
            "plot",
            verb,
            from.to_str().unwrap(),
            "-o",
            picture.to_str().unwrap(),
        ];
        let output = planner(&arguments);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let bytes = std::fs::read(&picture).unwrap();
        let magic: &[u8] = if name.ends_with("png") {
            b"\x89PNG"
        } else {
            b"<"
        };
        assert!(
            bytes.starts_with(magic) && bytes.len() > 10_000,
            "{name}: {} bytes",
            bytes.len()
        );
    }
}
