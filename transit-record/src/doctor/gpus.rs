//! The driver and its GPUs, as the child process found them.

use bytesize::ByteSize;
use serde_json::json;

use super::ask::Asked;
use super::probe::{Facts, Gpu, OPTIONAL};
use super::report::Check;

/// `CUDA_ERROR_STUB_LIBRARY`: the toolkit's library for linking, which has no driver behind it.
const STUB: u32 = 34;

pub(super) fn checks(asked: &Asked) -> Vec<Check> {
    let facts = &asked.facts;
    let mut checks = Vec::new();
    if let Some(failure) = &asked.failure {
        checks.push(Check::problem(
            "driver.answers",
            format!("the driver {failure}"),
            "look for NVRM and Xid lines in `dmesg`; a GPU that hangs needs a reset or a reboot",
        ));
    }
    if let Some(error) = &facts.not_loaded {
        checks.push(Check::problem(
            "driver.library",
            format!("no libcuda.so.1 here: {error}"),
            "install the NVIDIA driver, or start the container with its GPUs (--gpus all)",
        ));
        return checks;
    }
    let Some(init) = facts.init else {
        return checks;
    };
    checks.push(library(facts, init));
    if init != 0 {
        return checks;
    }
    checks.push(version(facts));
    if facts.gpus.is_empty() {
        checks.push(Check::problem(
            "gpus",
            "the driver has no GPU for this process",
            "look at CUDA_VISIBLE_DEVICES, and at what the container was given",
        ));
    }
    checks.extend(facts.gpus.iter().map(gpu));
    checks
}

fn library(facts: &Facts, init: u32) -> Check {
    let path = facts.library.as_deref().unwrap_or("libcuda.so.1");
    let data = json!({ "path": facts.library, "cuInit": init });
    if init == 0 {
        return Check::ok("driver.library", path).with(data);
    }
    let (text, next) = match init {
        STUB => (
            format!("{path} is the toolkit's stub, not the driver (error 34)"),
            "take the toolkit's `stubs` folder off LD_LIBRARY_PATH",
        ),
        100 => (
            "the driver finds no GPU (error 100)".to_owned(),
            "look at CUDA_VISIBLE_DEVICES, and at what the container was given",
        ),
        802 => (
            "the system is not ready (error 802)".to_owned(),
            "start nvidia-fabricmanager, which machines with NVSwitch need",
        ),
        803 | 804 => (
            format!("{path} does not fit the kernel's driver (error {init})"),
            "use the libcuda of the installed driver, not a compat library for another",
        ),
        999 => (
            "cuInit fails for an unknown reason (error 999)".to_owned(),
            "load nvidia_uvm (`nvidia-modprobe -u`) and look at `dmesg`",
        ),
        other => (
            format!("cuInit fails with error {other}"),
            "look the number up as CUresult; `nvidia-smi` and `dmesg` may say more",
        ),
    };
    Check::problem("driver.library", text, next).with(data)
}

fn version(facts: &Facts) -> Check {
    let number = facts.cuda_version;
    let cuda = format!("{}.{}", number / 1000, number % 1000 / 10);
    let data = json!({ "cuda": number, "missing": facts.missing });
    if facts.missing.is_empty() {
        return Check::ok("driver.version", format!("CUDA {cuda}")).with(data);
    }
    let lacks: Vec<String> = OPTIONAL
        .iter()
        .filter(|(name, _)| facts.missing.iter().any(|missing| missing == name))
        .map(|(name, since)| format!("{name} ({since})"))
        .collect();
    Check::warning(
        "driver.version",
        format!("CUDA {cuda}, without {}", lacks.join(", ")),
        "works, with less: before 12.4 ops lack their pointers and before 12.3 some names; \
         a newer driver has all",
    )
    .with(data)
}

fn gpu(gpu: &Gpu) -> Check {
    let key = format!("gpu.{}", gpu.ordinal);
    let total = ByteSize::b(gpu.total_bytes);
    let free = match (gpu.free_bytes, gpu.context_error) {
        (Some(free), _) => format!("{} of {total} free", ByteSize::b(free)),
        (None, Some(error)) => format!("{total}, no context to be had (error {error})"),
        (None, None) => format!("{total}"),
    };
    let text = format!(
        "{}, compute capability {}.{}, {free}, {}",
        gpu.name, gpu.capability.0, gpu.capability.1, gpu.uuid
    );
    let slice = gpu.name.contains(" MIG ");
    let data = json!({
        "name": gpu.name,
        "uuid": gpu.uuid,
        "total_bytes": gpu.total_bytes,
        "free_bytes": gpu.free_bytes,
        "compute_capability": [gpu.capability.0, gpu.capability.1],
        "concurrent_managed_access": gpu.concurrent_managed_access,
        "pageable_memory_access": gpu.pageable_memory_access,
        "compute_mode": gpu.compute_mode,
        "mig": slice,
    });
    let check = if gpu.compute_mode == 2 {
        let next = "`nvidia-smi -c DEFAULT` allows it again";
        Check::problem(key, format!("{text}; its compute mode forbids use"), next)
    } else if gpu.free_bytes.is_none() {
        let next = "see who uses it (`nvidia-smi`); in compute mode EXCLUSIVE_PROCESS only one may";
        Check::warning(key, text, next)
    } else if !gpu.concurrent_managed_access {
        Check::warning(
            key,
            format!("{text}; host and device cannot use managed memory at once"),
            "allocations stay device memory here: nothing can exceed the card",
        )
    } else if slice {
        Check::warning(
            key,
            format!("{text}; a MIG slice"),
            "CUPTI gives no unified-memory records on a slice: record on a whole GPU",
        )
    } else {
        Check::ok(key, text)
    };
    check.with(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::State;

    fn good() -> Gpu {
        Gpu {
            name: "NVIDIA H200".into(),
            free_bytes: Some(1),
            concurrent_managed_access: true,
            ..Gpu::default()
        }
    }

    #[test]
    fn what_limits_a_gpu_is_said() {
        assert_eq!(gpu(&good()).state, State::Ok);
        let slice = Gpu {
            name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".into(),
            ..good()
        };
        assert!(gpu(&slice).text.contains("MIG slice"));
        let forbidden = Gpu {
            compute_mode: 2,
            ..good()
        };
        assert_eq!(gpu(&forbidden).state, State::Problem);
        let old = Gpu {
            concurrent_managed_access: false,
            ..good()
        };
        assert_eq!(gpu(&old).state, State::Warning);
        let taken = Gpu {
            free_bytes: None,
            context_error: Some(46),
            ..good()
        };
        assert!(gpu(&taken).text.contains("error 46"));
    }
}
