//! What the host can really give to managed memory, read once: available memory, or what the
//! control group leaves if that is less, minus a reserve, divided among the ranks of this host.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use transit_launch::template::Place;

/// Kept for everything else on the host: a tenth of what is available, at least this.
const RESERVE_BYTES: u64 = 1 << 30;
/// The first version of control groups has no word for "no limit": it is the largest number of
/// whole pages. No host has this much.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// What the host has, as found now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
    /// What the control group leaves, if it limits.
    pub group_left_bytes: Option<u64>,
    /// Ranks that share the host, by the launcher's word, else as guessed.
    pub ranks: u64,
    /// What one rank may have beyond its devices' own memory.
    pub share_bytes: u64,
}

/// Looks at the host and the environment.
#[must_use]
pub fn look() -> HostMemory {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available_bytes = line_bytes(&meminfo, "MemAvailable:").unwrap_or(0);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group_left_bytes = group_left_bytes(Path::new("/sys/fs/cgroup"), &groups);
    let gpus = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    let ranks = sharing(&Place::of_this_process(), u32::try_from(gpus).unwrap_or(0));
    let ranks = u64::from(ranks);
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

/// Ranks that share this host. Where the launcher does not say, all of them may, but hardly more
/// than there are GPUs (0: unknown).
fn sharing(place: &Place, gpus: u32) -> u32 {
    let guessed = match (place.ranks, gpus) {
        (Some(ranks), 0) => ranks,
        (Some(ranks), gpus) => ranks.min(gpus),
        (None, _) => 1,
    };
    place.local_ranks.unwrap_or(guessed).max(1)
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

/// Files of a control group: limits, use, and the line of `memory.stat` that counts the pages of
/// files that can be dropped.
struct Files {
    limits: &'static [&'static str],
    usage: &'static str,
    droppable: &'static str,
}

const SECOND: Files = Files {
    // Above `memory.high` a group is slowed down until it hardly moves.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    droppable: "inactive_file ",
};
const FIRST: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};

/// What the process' control groups leave, of either version and at every level, since each level
/// limits; `None` without a limit. `groups` is what `/proc/self/cgroup` says.
fn group_left_bytes(root: &Path, groups: &str) -> Option<u64> {
    let places = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((root.to_owned(), path, &SECOND)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((root.join("memory"), path, &FIRST))
            }
            _ => None,
        }
    });
    places
        .filter_map(|(top, path, files)| {
            // In a container the path may be the host's; its own group is the top then.
            top.join(path)
                .ancestors()
                .take_while(|folder| folder.starts_with(&top))
                .filter_map(|folder| left_bytes(folder, files))
                .min()
        })
        .min()
}

fn left_bytes(folder: &Path, files: &Files) -> Option<u64> {
    let limits = files.limits.iter();
    let limit = limits
        .filter_map(|name| read_number(&folder.join(name)))
        .min()
        .filter(|limit| *limit < NO_LIMIT_BYTES)?;
    let usage = read_number(&folder.join(files.usage))?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let droppable = stat
        .lines()
        .find_map(|line| {
            line.strip_prefix(files.droppable)?
                .trim()
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(droppable)))
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

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn every_level_of_either_version_limits() {
        let root = std::env::temp_dir().join(format!("transit-cgroup-{}", std::process::id()));
        let second = |limit: &'static str| {
            [
                ("memory.max", limit),
                ("memory.current", "500\n"),
                ("memory.stat", "anon 7\ninactive_file 100\nactive_file 3\n"),
            ]
        };
        write(&root.join("job/task"), &second("max\n"));
        write(&root.join("job"), &second("2000\n"));
        assert_eq!(group_left_bytes(&root, "0::/job/task\n"), Some(1600));
        write(&root.join("job"), &[("memory.high", "1500\n")]);
        assert_eq!(group_left_bytes(&root, "0::/job/task\n"), Some(1100));
        assert_eq!(group_left_bytes(&root, "0::/elsewhere\n"), None);
        assert_eq!(group_left_bytes(&root, ""), None);
        write(&root, &second("1000\n"));
        assert_eq!(
            group_left_bytes(&root, "0::/elsewhere\n"),
            Some(600),
            "a container's own"
        );
        write(
            &root.join("memory/slurm/job_1"),
            &[
                ("memory.limit_in_bytes", "900\n"),
                ("memory.usage_in_bytes", "800\n"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
            ],
        );
        let old = "5:cpu,cpuacct:/slurm\n4:memory:/slurm/job_1/task_0\n";
        assert_eq!(group_left_bytes(&root, old), Some(150));
        let unlimited = [
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "800\n"),
        ];
        write(&root.join("memory/slurm/job_1"), &unlimited);
        assert_eq!(group_left_bytes(&root, old), None, "no limit");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn ranks_that_nobody_counts_are_taken_to_share_the_host() {
        let place = |local_ranks, ranks| Place {
            local_ranks,
            ranks,
            ..Place::default()
        };
        assert_eq!(sharing(&place(Some(4), Some(16)), 8), 4);
        assert_eq!(sharing(&place(None, Some(16)), 8), 8);
        assert_eq!(sharing(&place(None, Some(2)), 8), 2);
        assert_eq!(sharing(&place(None, Some(16)), 0), 16);
        assert_eq!(sharing(&place(None, None), 8), 1);
        assert_eq!(sharing(&place(Some(0), Some(1)), 8), 1);
    }
}
