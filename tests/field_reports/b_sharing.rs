//! B. NCCL, sharing between processes, several GPUs.

use std::path::PathBuf;
use std::process::Command;

use transit_harness::{SoftGpu, artifacts};

use super::{bounded, gpu, library, linked, source, text, unchanged};

/// Our stand-in for NCCL, under its name and where the loader finds it, and a program that links it.
fn nccl(gpu: &SoftGpu) -> PathBuf {
    let nccl = library(gpu, "nccl_like.c", "libnccl.so.2");
    let program = gpu.folder().join("links_nccl");
    let built = Command::new("gcc")
        .args(["-O1", "-DLINKED", "-o"])
        .arg(&program)
        .arg(source("nccl_like.c"))
        .arg(&nccl)
        .arg(gpu.folder().join("libcuda.so.1"))
        .args(["-ldl", "-lpthread", "-lm"])
        .status()
        .unwrap();
    assert!(built.success());
    program
}

/// NCCL calls `cuMemCreate` without a current context, for memory of the host too: the hook took an
/// uninitialised device for the job's.
#[test]
fn field_report_14_memory_made_without_a_context_is_none_of_our_business() {
    let gpu = gpu();
    let program = nccl(&gpu);
    let runs = unchanged(&gpu, &program, &[]);
    let said = runs.stdout();
    assert!(said.contains("from a library it links\n2.0\n"), "{said}");
}

/// Loaded by ctypes NCCL hung at its start, through torch it did not.
#[test]
fn field_report_15_nccl_is_left_alone_linked_or_loaded() {
    let gpu = gpu();
    let by_link = nccl(&gpu);
    let by_load = linked(&gpu, "nccl_like.c");
    for (program, how) in [(by_link, "links"), (by_load, "loads")] {
        let runs = unchanged(&gpu, &program, &[]);
        assert!(runs.stdout().contains(how), "{}", runs.stdout());
        for alloc in &runs.trace().allocs {
            let nccls = alloc.caller.starts_with("libnccl");
            assert_eq!(alloc.converted, !nccls, "{alloc:?}");
        }
    }
}

/// `cudaIpcGetMemHandle: invalid argument`: managed memory cannot be shared with another process.
/// Nobody fakes a handle; the allocation is named, and the next run leaves such memory as it is.
#[test]
fn field_report_16_memory_that_is_to_be_shared_is_left_alone_in_the_next_run() {
    let gpu = gpu();
    let program = linked(&gpu, "shared_by_ipc.c");
    let bare = bounded(&gpu, &program).output().unwrap();
    assert_eq!(text(&bare.stdout), "shared 0\n4.0\n");
    // Not one file: a trace finished a moment before a launch is taken for one of the same launch.
    let trace = |name: &str| gpu.folder().join(format!("{name}.trace.zst"));
    let run = |name: &str| {
        let mut command = bounded(&gpu, &artifacts().join("transit-record"));
        command.arg("-o").arg(trace(name)).arg("--").arg(&program);
        command.output().unwrap()
    };
    let first = run("first");
    assert_eq!(
        text(&first.stdout),
        "shared 1\n4.0\n",
        "the driver's own refusal"
    );
    let said = text(&first.stderr);
    assert_eq!(
        said.matches("cuIpcGetMemHandle, called by").count(),
        1,
        "{said}"
    );
    assert!(said.contains("4194304 bytes"), "{said}");
    let second = run("second");
    let said = text(&second.stderr);
    assert_eq!(second.stdout, bare.stdout, "{said}");
    assert!(!said.contains("cuIpcGetMemHandle"), "{said}");
    // The other allocation, of another size, is converted as before.
    let allocs = transit_format::trace::Trace::open(&trace("second"))
        .unwrap()
        .allocs;
    let converted = |bytes| {
        allocs
            .iter()
            .any(|alloc| alloc.bytes == bytes && alloc.converted)
    };
    assert!(converted(6 << 20) && !converted(4 << 20), "{allocs:?}");
}
