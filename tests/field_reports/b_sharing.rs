//! B. NCCL, sharing between processes, several GPUs.

use std::path::PathBuf;
use std::process::Command;

use transit_harness::SoftGpu;

use super::{gpu, library, linked, source, unchanged};

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
