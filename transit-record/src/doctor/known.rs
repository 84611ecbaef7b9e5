//! Drivers with which people had trouble that concerns us. An entry needs a public report.

use serde_json::json;

use super::ask::Asked;
use super::probe::Gpu;
use super::report::Check;

/// The kernel's driver, as `/proc/driver/nvidia/version` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KernelDriver {
    /// `595.71.05`.
    version: String,
    /// The open kernel modules.
    open: bool,
}

/// A driver known for a fault.
struct Known {
    /// First part of the version.
    branch: &'static str,
    /// Only the open kernel modules.
    open_only: bool,
    /// Only GPUs of this compute capability and newer.
    capability: i32,
    what: &'static str,
    next: &'static str,
    source: &'static str,
}

const KNOWN: [Known; 1] = [Known {
    branch: "595",
    open_only: true,
    // Blackwell.
    capability: 10,
    what: "an oversubscribed GPU can spin in the kernel's eviction loop for ever, unkillable, until \
           the machine is rebooted (seen with 595.71.05, open modules, Blackwell)",
    next: "do not let a job exceed the card with this driver: --no-oversubscribe, or another driver",
    source: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1223",
}];

pub(super) fn checks(asked: &Asked) -> Vec<Check> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let Some(driver) = parse(&text) else {
        return Vec::new();
    };
    let modules = if driver.open { "open" } else { "proprietary" };
    let text = format!("{} ({modules} kernel modules)", driver.version);
    let data = json!({ "version": driver.version, "open": driver.open });
    let mut checks = vec![Check::ok("driver.kernel", text).with(data)];
    for known in known_faults(&driver, &asked.facts.gpus) {
        let data = json!({ "source": known.source });
        let text = format!("{}: {} [{}]", driver.version, known.what, known.source);
        checks.push(Check::warning("driver.known_fault", text, known.next).with(data));
    }
    checks
}

fn parse(text: &str) -> Option<KernelDriver> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    let version = line.split_whitespace().find(is_version)?.to_owned();
    Some(KernelDriver {
        version,
        open: line.contains("Open Kernel Module"),
    })
}

fn known_faults<'a>(
    driver: &'a KernelDriver,
    gpus: &'a [Gpu],
) -> impl Iterator<Item = &'static Known> + 'a {
    KNOWN.iter().filter(move |known| {
        let branch = driver.version.split('.').next() == Some(known.branch);
        let modules = driver.open || !known.open_only;
        branch && modules && gpus.iter().any(|gpu| gpu.capability.0 >= known.capability)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  \
                        Release Build  (builder)\nGCC version:  gcc version 12.2.0\n";
    const CLOSED: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Mon\n";

    #[test]
    fn field_report_34_a_driver_that_spins_when_oversubscribed_is_named() {
        let blackwell = [Gpu {
            capability: (10, 0),
            ..Gpu::default()
        }];
        let hopper = [Gpu {
            capability: (9, 0),
            ..Gpu::default()
        }];
        let bad = parse(OPEN).unwrap();
        assert_eq!((bad.version.as_str(), bad.open), ("595.71.05", true));
        let found: Vec<_> = known_faults(&bad, &blackwell).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].next.contains("--no-oversubscribe"));
        assert_eq!(known_faults(&bad, &hopper).count(), 0);
        let good = parse(CLOSED).unwrap();
        assert_eq!((good.version.as_str(), good.open), ("580.159.04", false));
        assert_eq!(known_faults(&good, &blackwell).count(), 0);
        assert_eq!(parse(""), None);
    }
}
