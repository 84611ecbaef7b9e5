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

/// What the host has, as found now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
    /// What the control group leaves, if it limits.
    pub group_left_bytes: Option<u64>,
    /// Ranks that share the host, by the launcher's word; else 1.
    pub ranks: u64,
    /// What one rank may have beyond its devices' own memory.
    pub share_bytes: u64,
}

/// Looks at the host and the environment.
#[must_use]
pub fn look() -> HostMemory {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available_bytes = line_bytes(&meminfo, "MemAvailable:").unwrap_or(0);
    let group_left_bytes = group_left_bytes(Path::new("/sys/fs/cgroup"));
    let ranks = LOCAL_RANKS
        .iter()
        .find_map(|name| env::var(name).ok()?.parse::<u64>().ok())
        .unwrap_or(1);
    let usable_bytes = available_bytes.min(group_left_bytes.unwrap_or(u64::MAX));
    HostMemory {
        total_bytes: line_bytes(&meminfo, "MemTotal:").unwrap_or(0),
        available_bytes,
        group_left_bytes,
        ranks,
        share_bytes: share_bytes(usable_bytes, ranks),
    }
}

/// Bytes of managed memory beyond the devices' own that this process may have.
pub(crate) fn budget_bytes() -> u64 {
    static BUDGET: OnceLock<u64> = OnceLock::new();
    *BUDGET.get_or_init(|| look().share_bytes)
}

/// One rank's part of what is available.
fn share_bytes(available_bytes: u64, ranks: u64) -> u64 {
    available_bytes.saturating_sub(RESERVE_BYTES.max(available_bytes / 10)) / ranks.max(1)
}

fn line_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
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
        let available = line_bytes(text, "MemAvailable:");
        assert_eq!(available, Some(32_000_000 * 1024));
        assert_eq!(line_bytes("", "MemAvailable:"), None);
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
