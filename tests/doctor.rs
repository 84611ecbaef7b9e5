//! `transit-record doctor` on the software GPU, on drivers that are old, absent, stubs, wedged or
//! crashing: what it says, that a script can tell by its exit status, and that it leaves nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use transit_harness::{SoftGpu, artifacts};

use crate::util::PLENTY_BYTES;

fn gpu() -> SoftGpu {
    SoftGpu::new(PLENTY_BYTES).unwrap()
}

fn doctor(gpu: &SoftGpu) -> Command {
    let mut command = gpu.command(artifacts().join("transit-record"));
    command.args(["doctor", "--json"]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CUDA", "NV", "PYTORCH", "NSYS"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    command
}

struct Found {
    exit: i32,
    whole: Value,
}

impl Found {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let whole = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        Self {
            exit: output.status.code().unwrap(),
            whole,
        }
    }

    fn check(&self, key: &str) -> &Value {
        let checks = self.whole["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["key"] == key);
        found.unwrap_or_else(|| panic!("no check {key}: {:#}", self.whole))
    }

    fn state(&self, key: &str) -> &str {
        self.check(key)["state"].as_str().unwrap()
    }

    fn text(&self, key: &str) -> &str {
        self.check(key)["text"].as_str().unwrap()
    }
}

#[test]
fn a_good_machine_is_told_in_full_and_nothing_is_left() {
    let gpu = gpu().with("SOFTGPU_DEVICES", "2");
    let calls = gpu.folder().join("calls");
    let before = files(gpu.folder());
    let found = Found::of(
        doctor(&gpu)
            .env("SOFTGPU_CALLS", &calls)
            .env_remove("SOFTGPU_STATS"),
    );
    assert_eq!(
        (found.exit, &found.whole["verdict"]),
        (0, &Value::from("ok")),
        "{:#}",
        found.whole
    );
    for key in ["gpu.0", "gpu.1"] {
        let data = &found.check(key)["data"];
        assert_eq!(data["total_bytes"], PLENTY_BYTES);
        assert_eq!(data["concurrent_managed_access"], true);
        assert!(data["free_bytes"].as_u64() > Some(0) && data["uuid"].is_string());
    }
    assert_eq!(found.check("driver.version")["data"]["cuda"], 13_000);
    assert_eq!(found.check("cupti")["data"]["unified_memory_record"], 3);
    assert_eq!(found.check("converted")["data"]["min_bytes"], 2 << 20);
    assert!(found.check("host.memory")["data"]["share_bytes"].is_u64());
    let log = std::fs::read_to_string(&calls).unwrap();
    let count = |name: &str| log.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(count("cuDevicePrimaryCtxRetain("), 2);
    assert_eq!(count("cuDevicePrimaryCtxRelease_v2("), 2);
    std::fs::remove_file(&calls).unwrap();
    assert_eq!(files(gpu.folder()), before);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn an_old_driver_works_less_well() {
    let gpu = gpu()
        .with("SOFTGPU_VERSION", "12020")
        .with("SOFTGPU_MISSING", "cuMemPrefetchAsync_v2");
    let found = Found::of(&mut doctor(&gpu));
    assert_eq!(found.exit, 1, "{:#}", found.whole);
    assert_eq!(found.state("driver.version"), "warning");
    let text = found.text("driver.version");
    for lacking in ["cuMemPrefetchAsync_v2", "cuFuncGetParamInfo (12.4)"] {
        assert!(text.contains(lacking), "{text}");
    }
    assert_eq!(found.check("cupti")["data"]["unified_memory_record"], 2);
    assert!(found.check("driver.version")["next"].is_string());
}

#[test]
fn without_cupti_a_job_is_recorded_with_less() {
    let gpu = gpu().with("SOFTGPU_NO_CUPTI", "1");
    let found = Found::of(&mut doctor(&gpu));
    assert_eq!(
        (found.exit, found.state("cupti")),
        (1, "warning"),
        "{:#}",
        found.whole
    );
    let refused = SoftGpu::new(PLENTY_BYTES).unwrap().with(
        "SOFTGPU_FAULTS",
        "cuptiActivityConfigureUnifiedMemoryCounter:1:31",
    );
    let found = Found::of(&mut doctor(&refused));
    assert_eq!(found.exit, 1);
    assert!(
        found.text("cupti").contains("MPS"),
        "{}",
        found.text("cupti")
    );
}

#[test]
fn without_a_driver_or_a_gpu_it_says_which() {
    let gpu = gpu();
    let found = Found::of(doctor(&gpu).env("LD_LIBRARY_PATH", "/nonexistent"));
    assert_eq!((found.exit, found.state("driver.library")), (2, "problem"));
    assert!(found.text("driver.library").contains("libcuda.so.1"));
    let none = gpu.with("SOFTGPU_DEVICES", "0");
    let found = Found::of(&mut doctor(&none));
    assert_eq!(found.exit, 2);
    assert!(
        found.text("driver.library").contains("no GPU"),
        "{:#}",
        found.whole
    );
}

/// A stand-in for libcuda.so.1 whose `cuInit` does what `body` says.
fn strange_driver(body: &str) -> SoftGpu {
    let gpu = gpu();
    let library = gpu.folder().join("libcuda.so.1");
    std::fs::remove_file(&library).unwrap();
    let source = gpu.folder().join("strange.c");
    let text = format!("#include <unistd.h>\nint cuInit(unsigned f) {{ {body} }}\n");
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new("gcc");
    command
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(command.status().unwrap().success());
    gpu
}

#[test]
fn field_report_48_a_stub_of_libcuda_is_told_from_a_driver() {
    let found = Found::of(&mut doctor(&strange_driver("return 34;")));
    assert_eq!(found.exit, 2);
    assert!(
        found.text("driver.library").contains("stub"),
        "{:#}",
        found.whole
    );
}

#[test]
fn a_wedged_driver_does_not_wedge_the_doctor() {
    let gpu = strange_driver("for (;;) pause();");
    let found = Found::of(doctor(&gpu).args(["--timeout", "2"]));
    assert_eq!((found.exit, found.state("driver.answers")), (2, "problem"));
    let text = found.text("driver.answers");
    assert!(text.contains("cuInit has not come back"), "{text}");
    assert_eq!(
        found.state("shim.record"),
        "ok",
        "the rest is looked at all the same"
    );
}

#[test]
fn a_crashing_driver_does_not_crash_the_doctor() {
    let gpu = strange_driver("*(volatile int *)0 = 1; return 0;");
    let found = Found::of(&mut doctor(&gpu));
    assert_eq!(found.exit, 2);
    let text = found.text("driver.answers");
    assert!(text.contains("cuInit ended by signal 11"), "{text}");
}

#[test]
fn what_is_set_against_us_is_named() {
    let gpu = gpu();
    let found = Found::of(
        doctor(&gpu)
            .env("LD_PRELOAD", artifacts().join("libtransit_replay.so"))
            .env(
                "CUDA_INJECTION64_PATH",
                "/opt/nvidia/libToolsInjection64.so",
            )
            .env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
            .env("TRANSIT_MIN_BYTES", "2MiB")
            .env("NSYS_PROFILING_SESSION_ID", "7"),
    );
    assert_eq!(found.exit, 1);
    for (key, named) in [
        ("environment.LD_PRELOAD", "libtransit_replay.so"),
        ("environment.CUDA_INJECTION64_PATH", "Nsight Systems"),
        ("environment.allocator", "expandable_segments"),
        ("environment.profiler", "NSYS_PROFILING_SESSION_ID"),
        ("settings.readable", "TRANSIT_MIN_BYTES=2MiB"),
    ] {
        assert_eq!(found.state(key), "warning");
        assert!(found.text(key).contains(named), "{}", found.text(key));
        assert!(found.check(key)["next"].is_string(), "{key}");
    }
}

#[test]
fn a_shim_that_is_missing_or_damaged_is_a_problem() {
    let gpu = gpu();
    let found = Found::of(doctor(&gpu).env("TRANSIT_SHIM_DIR", gpu.folder()));
    assert_eq!((found.exit, found.state("shim.record")), (2, "problem"));
    let cut = std::fs::read(artifacts().join("libtransit_record.so")).unwrap();
    std::fs::write(gpu.folder().join("libtransit_record.so"), &cut[..4096]).unwrap();
    let found = Found::of(doctor(&gpu).env("TRANSIT_SHIM_DIR", gpu.folder()));
    assert_eq!((found.exit, found.state("shim.record")), (2, "problem"));
}

#[test]
fn people_get_a_line_a_check_and_a_last_word() {
    let gpu = gpu().with("SOFTGPU_NO_CUPTI", "1");
    let mut command = doctor(&gpu);
    let program = command.get_program().to_owned();
    let words = |command: &Command| -> Vec<_> {
        command
            .get_envs()
            .map(|(n, v)| (n.to_owned(), v.map(ToOwned::to_owned)))
            .collect()
    };
    let mut plain = Command::new(program);
    for (name, value) in words(&command) {
        match value {
            Some(value) => plain.env(name, value),
            None => plain.env_remove(name),
        };
    }
    let Output { status, stdout, .. } = plain.arg("doctor").output().unwrap();
    assert_eq!(status.code(), Some(1));
    let text = String::from_utf8(stdout).unwrap();
    let with_json = Found::of(&mut command);
    let checks = with_json.whole["checks"].as_array().unwrap().len();
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        lines("ok ") + lines("warning ") + lines("problem "),
        checks,
        "{text}"
    );
    assert!(text.lines().last().unwrap().contains("warnings"), "{text}");
}

#[test]
fn a_job_of_that_name_is_still_a_job() {
    let gpu = gpu();
    let mut command = gpu.command(artifacts().join("transit-record"));
    command.arg("-o").arg(gpu.folder().join("x.trace.zst"));
    let output = command.args(["--", "doctor"]).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(127),
        "there is no such command to run"
    );
}
