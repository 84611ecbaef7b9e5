//! A. Loading and symbol resolution.

use std::path::Path;
use std::process::Command;

use transit_format::trace::model::OpKind;
use transit_harness::artifacts;

use super::{SHIMS, bounded, compiled, each_way, gpu, library, linked, text, unchanged};
use crate::hazards::compile_at;
use crate::util::{SMALL, with};

/// `import torch` spun for ever: a library asked for the next function of its own name and was
/// given its own.
#[test]
fn field_report_01_a_library_never_finds_itself_behind_rtld_next() {
    let gpu = gpu();
    let tool = library(&gpu, "own_tool.c", "libowntool.so");
    let program = compile_at(&gpu, &super::source("own_tool.c"), &[&tool]);
    for shim in SHIMS {
        let output = bounded(&gpu, &program)
            .env("LD_PRELOAD", artifacts().join(shim))
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), "tool 7\n", "{shim}");
    }
}

/// PyTorch ran as if no shim were there, since only names asked of `dlsym` were answered. Both ways
/// must lead to us; and where none does, the recorder says that it saw nothing.
#[test]
fn field_report_03_every_resolver_leads_to_us_and_none_is_said() {
    let gpu = gpu();
    for way in ["gpa", "dlsym"] {
        let trace = gpu.folder().join(format!("{way}.trace.zst"));
        let arguments = with(&["--resolve", way]);
        let ran = gpu.run(&mut gpu.record(&trace, &[], &arguments)).unwrap();
        assert!(!ran.stderr().contains(" 0 handed out"), "{}", ran.stderr());
        let read = transit_format::trace::Trace::open(&trace).unwrap();
        assert!(read.totals.hooked_ops > 100, "{way}: {:?}", read.totals);
    }
    let program = compiled(&gpu, "another_namespace.c");
    let runs = each_way(&gpu, &program, &[], &[]);
    assert_eq!(text(&runs.recorded.stdout), "allocated\n");
    let said = text(&runs.recorded.stderr);
    assert!(said.contains("no trace"), "{said}");
}

/// A caller got the wrapper of another version of the function it asked for.
#[test]
fn field_report_04_the_wrapper_is_that_of_the_version_asked_for() {
    let gpu = gpu();
    let runs = unchanged(&gpu, &compiled(&gpu, "versions.c"), &[]);
    let said = runs.stdout();
    assert!(!said.contains("ANOTHER"), "{said}");
    assert!(said.matches("as dlsym").count() > 15, "{said}");
}

/// `undefined symbol: dlsym, version GLIBC_2.2.5`: programs refer to `dlsym` by an old version,
/// and each architecture has another first one.
#[test]
fn field_report_06_dlsym_is_ours_under_the_oldest_version_too() {
    let gpu = gpu();
    let program = compiled(&gpu, "old_dlsym.c");
    let bare = bounded(&gpu, &program).output().unwrap();
    assert_eq!(text(&bare.stdout), "the driver's own\n");
    for shim in SHIMS {
        let output = bounded(&gpu, &program)
            .env("LD_PRELOAD", artifacts().join(shim))
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), "wrapped\n", "{shim}");
    }
}

/// Every worker died with exit code 127: the preload itself needed a CUDA library.
#[test]
fn field_report_08_a_machine_without_cuda_runs_programs_under_the_preload() {
    for shim in SHIMS {
        let output = Command::new("sh")
            .args(["-c", "echo here; exit 5"])
            .env_remove("LD_LIBRARY_PATH")
            .env("LD_PRELOAD", artifacts().join(shim))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(5), "{shim}");
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("here\n".into(), "".into())
        );
        let needed = Command::new("readelf")
            .arg("-d")
            .arg(artifacts().join(shim))
            .output()
            .unwrap();
        for line in text(&needed.stdout)
            .lines()
            .filter(|line| line.contains("NEEDED"))
        {
            assert!(!line.contains("libcu") && !line.contains("libnv"), "{line}");
        }
    }
}

/// Kernels were missing from a trace since only `cuLaunchKernel` was handled.
#[test]
fn field_report_11_every_way_to_launch_is_counted_against_cupti() {
    let gpu = gpu();
    let runs = unchanged(&gpu, &linked(&gpu, "launches.c"), &[]);
    let trace = runs.trace();
    let count = |kind| trace.ops.iter().filter(|op| op.kind == kind).count();
    assert_eq!((count(OpKind::Kernel), count(OpKind::Graph)), (8, 2));
    let said = text(&runs.recorded.stderr);
    assert!(said.contains(": complete"), "{said}");
    // What CUPTI saw less of is told as well.
    let lossy = super::gpu().with("SOFTGPU_FAULTS", "cupti-drop:0.5");
    let path = lossy.folder().join("x.trace.zst");
    let ran = lossy.run(&mut lossy.record(&path, &[], SMALL)).unwrap();
    assert!(!ran.stderr().contains(": complete"), "{}", ran.stderr());
}

/// The process hung at its first CUDA call: the shim initialised itself within `dlsym` of a private
/// function. Before `cuInit` there must be no call, thread, line or file of ours.
#[test]
fn field_report_12_nothing_happens_before_cuinit() {
    let gpu = gpu();
    let program = compiled(&gpu, "before_init.c");
    let calls = gpu.folder().join("calls.txt");
    let trace = gpu.folder().join("x.trace.zst");
    let run = |shim: Option<&str>| {
        let mut command = bounded(&gpu, &program);
        command
            .env("SOFTGPU_CALLS", &calls)
            .env("TRANSIT_TRACE", &trace);
        if let Some(shim) = shim {
            command.env("LD_PRELOAD", artifacts().join(shim));
        }
        let output = command.output().unwrap();
        (text(&output.stdout), text(&output.stderr), calls_of(&calls))
    };
    let bare = run(None);
    assert!(bare.0.ends_with("threads 1\n"), "{}", bare.0);
    for shim in SHIMS {
        assert_eq!(run(Some(shim)), bare, "{shim}");
    }
    assert!(!trace.exists());
}

/// The names of the driver calls in a log.
fn calls_of(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let names = text
        .lines()
        .map(|line| line.split('(').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}
