//! What the host can really give to managed memory, read once: available memory, or what the
//! control group leaves if that is less, minus a reserve, divided among the ranks of this host.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Kept for everything else on the host: a tenth of what is available, at least this.
const RESERVE_BYTES: u64 = 1 << 30;
/// Variables by which launchers say how many ranks share the host.
const LOCAL_RANKS: [&str; 4] = [
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
];

/// Bytes of managed memory beyond the devices' own that this process may have.
pub(crate) fn budget_bytes() -> u64 {
    static BUDGET: OnceLock<u64> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = available_bytes(&meminfo).unwrap_or(0);
        let left = group_left_bytes(Path::new("/sys/fs/cgroup")).unwrap_or(u64::MAX);
        let ranks = LOCAL_RANKS
            .iter()
            .find_map(|name| env::var(name).ok()?.parse::<u64>().ok())
            .unwrap_or(1);
        share_bytes(available.min(left), ranks)
    })
}

/// One rank's part of what is available.
fn share_bytes(available_bytes: u64, ranks: u64) -> u64 {
    available_bytes.saturating_sub(RESERVE_BYTES.max(available_bytes / 10)) / ranks.max(1)
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// What the process' control group (version 2, else 1) leaves; `None` without a limit.
fn group_left_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or_default();
    let old = root.join("memory");
    let left = |folder: &Path, limit: &str, usage: &str, cache: &str| {
        let limit = read_number(&folder.join(limit))?;
        let usage = read_number(&folder.join(usage))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        // Pages of files that can be dropped do not count as used.
        let droppable = stat
            .lines()
            .find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok())
            .unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(droppable)))
    };
    let mut least: Option<u64> = None;
    let mut note = |bytes: Option<u64>| {
        if let Some(bytes) = bytes {
            least = Some(least.map_or(bytes, |known| known.min(bytes)));
        }
    };
    // Every level of the tree limits.
    let mut folder = root.join(own);
    while folder.starts_with(root) {
        note(left(
            &folder,
            "memory.max",
            "memory.current",
            "inactive_file ",
        ));
        if !folder.pop() {
            break;
        }
    }
    note(left(
        &old,
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file ",
    ));
    least
}

/// A file's number; `max` and anything else is no limit.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       65000000 kB\nMemAvailable:   32000000 kB\n";
        assert_eq!(available_bytes(text), Some(32_000_000 * 1024));
        assert_eq!(available_bytes(""), None);
    }

    #[test]
    fn ranks_divide_what_is_left_after_the_reserve() {
        let gib = 1 << 30;
        assert_eq!(share_bytes(100 * gib, 1), 90 * gib);
        assert_eq!(share_bytes(100 * gib, 8), 90 * gib / 8);
        assert_eq!(share_bytes(2 * gib, 1), gib);
        assert_eq!(share_bytes(gib / 2, 4), 0);
        assert_eq!(share_bytes(100 * gib, 0), 90 * gib);
    }
}
