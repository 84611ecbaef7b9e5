//! What the paper's policies are for: at 141 % Prefetch removes the faults, Advise the traffic, and
//! neither changes a result.

use transit_harness::SoftGpu;

use crate::util::{SMALL, bare, build, card_bytes, record, weights};

/// Bytes and faults of the steady steps of a replayed run.
#[derive(Debug)]
struct Steady {
    migrating: u64,
    moved_bytes: u64,
}

fn steady(policy: &str, card_bytes: u64, trace: &std::path::Path, want: &str) -> Steady {
    let plan = build(trace, policy, card_bytes, &[]);
    let gpu = SoftGpu::new(card_bytes).unwrap();
    let ran = gpu.run(&mut gpu.replay(&plan, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), want, "{policy}");
    let rise = |name| ran.rise("step 5", "end", name);
    Steady {
        migrating: rise("migrating_faults"),
        moved_bytes: rise("htod_bytes") + rise("dtoh_bytes") + rise("zero_copy_bytes"),
    }
}

#[test]
fn prefetch_removes_faults_and_advise_removes_traffic() {
    let card = card_bytes(141);
    let gpu = SoftGpu::new(card).unwrap();
    let trace = record(&gpu, &[]);
    let want = bare(SMALL);
    let base = steady("base", card, &trace, &want);
    let prefetch = steady("prefetch", card, &trace, &want);
    let advise = steady("advise", card, &trace, &want);
    assert!(base.migrating > 0, "{base:?}");
    assert!(
        prefetch.migrating * 20 <= base.migrating,
        "{prefetch:?} against {base:?}"
    );
    assert_eq!(advise.migrating, 0, "{advise:?}");
    assert!(
        advise.moved_bytes * 3 <= base.moved_bytes,
        "{advise:?} against {base:?}"
    );
}

/// With an emulated card the replayed run must live within it: the report's own peak says so.
#[test]
fn an_emulated_card_is_kept_to() {
    let card = card_bytes(141);
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let limit = card.to_string();
    let trace = record(&gpu, &["--hbm-limit", &limit]);
    let want = bare(SMALL);
    for policy in ["base", "prefetch", "advise"] {
        let plan = build(&trace, policy, card, &["--emulate"]);
        let replayed = gpu.folder().join(format!("{policy}.trace.zst"));
        let path = replayed.to_str().unwrap();
        let ran = gpu
            .run(&mut gpu.replay(&plan, &["--trace", path], SMALL))
            .unwrap();
        assert_eq!(weights(&ran), want, "{policy}");
        let output = crate::util::planner(&["report", "--json", trace.to_str().unwrap(), path]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let peak = report
            .pointer("/runs/1/median/peak_resident_bytes")
            .and_then(serde_json::Value::as_f64)
            .unwrap_or_else(|| panic!("no peak in {report}"));
        assert!(
            peak <= card as f64,
            "{policy}: peak {peak} over card {card}"
        );
    }
}
