//! The host: memory that managed allocations may spill into, the driver's device files, MPS.

use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use serde_json::json;
use transit_hook::host::{HostMemory, look};

use super::ask::Asked;
use super::report::Check;

/// Less than this beyond the card is hardly worth a plan.
const LITTLE_BYTES: u64 = 1 << 30;
/// Where MPS keeps its pipes unless told otherwise.
const MPS_PIPES: &str = "/tmp/nvidia-mps";

pub(super) fn checks(asked: &Asked) -> Vec<Check> {
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    let mut checks = vec![memory(look())];
    checks.extend(devices(asked));
    checks.push(mps(pipes.as_deref()));
    checks
}

fn memory(host: HostMemory) -> Check {
    let share = ByteSize::b(host.share_bytes);
    let limit = host
        .group_left_bytes
        .map(|bytes| format!(", {} left by the control group", ByteSize::b(bytes)))
        .unwrap_or_default();
    let text = format!(
        "{} of {} available{limit}; one of {} local ranks may have {share} beyond its card",
        ByteSize::b(host.available_bytes),
        ByteSize::b(host.total_bytes),
        host.ranks
    );
    let check = if host.share_bytes < LITTLE_BYTES {
        let next = "give the container or the machine more memory, or run fewer ranks on it";
        Check::warning("host.memory", text, next)
    } else {
        Check::ok("host.memory", text)
    };
    check.with(json!({
        "total_bytes": host.total_bytes,
        "available_bytes": host.available_bytes,
        "group_left_bytes": host.group_left_bytes,
        "local_ranks": host.ranks,
        "share_bytes": host.share_bytes,
    }))
}

/// The device files matter by what does not work without them: a driver that does without is fine.
fn devices(asked: &Asked) -> Vec<Check> {
    let facts = &asked.facts;
    if facts.init != Some(0) {
        return Vec::new();
    }
    let managed = facts.gpus.iter().any(|gpu| gpu.concurrent_managed_access);
    let records = matches!(&facts.cupti, Some(Ok(cupti)) if cupti.no_migrations.is_none());
    let uvm = device(
        "/dev/nvidia-uvm",
        managed,
        "managed memory may not work; pass the device into the container, or `nvidia-modprobe -u`",
    );
    let tools = device(
        "/dev/nvidia-uvm-tools",
        records,
        "no migrations will be recorded; pass the device into the container",
    );
    vec![uvm, tools]
}

fn device(path: &str, works: bool, next: &str) -> Check {
    let key = format!("device.{}", path.trim_start_matches("/dev/"));
    let there = Path::new(path).exists();
    let check = match (there, works) {
        (true, _) => Check::ok(key, path),
        (false, true) => Check::ok(key, format!("{path} is not there, and is not needed here")),
        (false, false) => Check::warning(key, format!("{path} is not there"), next),
    };
    check.with(json!({ "present": there }))
}

fn mps(pipes: Option<&Path>) -> Check {
    let folder = pipes.unwrap_or(Path::new(MPS_PIPES));
    let daemon = folder.join("control").exists();
    let data = json!({ "pipe_directory": folder, "daemon": daemon });
    let check = if daemon {
        Check::warning(
            "mps",
            format!("an MPS daemon has its pipes in {}", folder.display()),
            "CUPTI gives no unified-memory records under MPS: record without it",
        )
    } else {
        Check::ok("mps", "no MPS daemon")
    };
    check.with(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::State;

    #[test]
    fn an_mps_daemon_is_seen_by_its_pipe() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mps(Some(folder.path())).state, State::Ok);
        std::fs::write(folder.path().join("control"), "").unwrap();
        assert_eq!(mps(Some(folder.path())).state, State::Warning);
    }

    #[test]
    fn a_host_without_room_is_a_warning() {
        let host = HostMemory {
            total_bytes: 8 << 30,
            available_bytes: 4 << 30,
            group_left_bytes: Some(1 << 30),
            ranks: 8,
            share_bytes: 0,
        };
        let check = memory(host);
        assert_eq!(check.state, State::Warning);
        assert!(check.text.contains("8 local ranks"), "{}", check.text);
        let roomy = HostMemory {
            share_bytes: 100 << 30,
            ..host
        };
        assert_eq!(memory(roomy).state, State::Ok);
    }
}
