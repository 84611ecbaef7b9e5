//! The trainer bare on the software GPU: its results depend on its arguments alone. These are also
//! the tests that must turn red when the software GPU drops a wait, an argument copy or a migration
//! (`TRANSIT_TEST_MUTATE`, see `cargo xtask test`).

use transit_harness::SoftGpu;

const SMALL: &[&str] = &["--layers", "3", "--elements", "524288", "--steps", "3"];

fn gpu(hbm_bytes: u64, seed: u64) -> SoftGpu {
    let gpu = SoftGpu::new(hbm_bytes)
        .unwrap()
        .with("SOFTGPU_SEED", seed.to_string());
    match std::env::var("TRANSIT_TEST_MUTATE") {
        Ok(mutation) => gpu.with("SOFTGPU_MUTATE", mutation),
        Err(_) => gpu,
    }
}

fn weights(gpu: &SoftGpu, arguments: &[&str]) -> String {
    let ran = gpu.run(&mut gpu.trainer(arguments)).unwrap();
    assert!(
        ran.output.status.success(),
        "{}{}",
        ran.stdout(),
        ran.stderr()
    );
    let out = ran.stdout();
    out.lines()
        .last()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned()
}

/// Many short runs rather than few long ones: a missing wait shows only where the scheduler lets a
/// kernel overtake the copy it should have waited for, about once in eight such runs.
#[test]
fn results_do_not_depend_on_interleaving() {
    let tiny = ["--layers", "1", "--elements", "65536", "--steps", "12"];
    let first = weights(&gpu(1 << 30, 1), &tiny);
    for seed in 2..=40 {
        assert_eq!(weights(&gpu(1 << 30, seed), &tiny), first, "seed {seed}");
    }
}

/// The bare trainer takes device memory, which cannot be oversubscribed, so this one runs under
/// the recorder, which makes it managed.
#[test]
fn results_do_not_depend_on_oversubscription() {
    let plenty = weights(&SoftGpu::new(1 << 30).unwrap(), SMALL);
    let gpu = gpu(64 << 20, 1);
    let trace = gpu.folder().join("x.trace.zst");
    let ran = gpu.run(&mut gpu.record(&trace, &[], SMALL)).unwrap();
    assert!(
        ran.output.status.success(),
        "{}{}",
        ran.stdout(),
        ran.stderr()
    );
    let out = ran.stdout();
    assert_eq!(
        out.lines()
            .last()
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap(),
        plenty
    );
    assert!(
        ran.counter("migrating_faults") > 0,
        "nothing migrated: {}",
        ran.stats
    );
}

#[test]
fn a_job_that_does_not_fit_says_so() {
    let gpu = gpu(64 << 20, 1);
    let ran = gpu.run(&mut gpu.trainer(SMALL)).unwrap();
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(
        ran.stderr().contains("cuMemAlloc returned 2"),
        "{}",
        ran.stderr()
    );
}

#[test]
fn a_resumed_run_ends_where_the_whole_one_does() {
    let gpu = gpu(1 << 30, 3);
    let checkpoint = gpu.folder().join("step2.ckpt");
    let path = checkpoint.to_str().unwrap();
    let mut saving = SMALL.to_vec();
    saving.extend(["--save", path, "--save-at", "2"]);
    let whole = weights(&gpu, &saving);
    let mut resuming = SMALL.to_vec();
    resuming.extend(["--resume", path]);
    assert_eq!(weights(&gpu, &resuming), whole);
}
