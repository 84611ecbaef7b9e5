//! File name templates: one trace and one plan per rank, under a name given once.
//!
//! `{rank}`, `{local_rank}`, `{host}` and `{pid}` stand for what they say. A template without
//! `{rank}`, `{local_rank}` or `{pid}` gets `.rankN` before its ending where a launcher announced
//! more than one rank, so that ranks never write over each other. Who announces what is in the
//! table of launchers below.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Who this process is within a job, as its launcher announced it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Global rank, if announced.
    pub rank: Option<u32>,
    /// Rank within this host, if announced.
    pub local_rank: Option<u32>,
    /// Number of ranks, if announced.
    pub ranks: Option<u32>,
    /// Number of ranks on this host, if announced.
    pub local_ranks: Option<u32>,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
}

/// What one kind of launcher tells its ranks.
struct Launcher {
    rank: &'static str,
    ranks: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_ranks: &'static [&'static str],
}

/// Launchers in the order they are asked, the innermost first: under Slurm each task may be an agent
/// that starts ranks of its own. The first that gives both a rank and a number of ranks decides
/// (a lone `RANK` says nothing: shells and images set it for their own ends); what it leaves open is
/// taken from a later one that speaks of the same rank.
const LAUNCHERS: [Launcher; 6] = [
    // torchrun, and deepspeed and accelerate after it
    Launcher {
        rank: "RANK",
        ranks: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_ranks: &["LOCAL_WORLD_SIZE"],
    },
    // Open MPI's mpirun
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_ranks: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    // MVAPICH2
    Launcher {
        rank: "MV2_COMM_WORLD_RANK",
        ranks: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_ranks: &["MV2_COMM_WORLD_LOCAL_SIZE"],
    },
    // MPICH and Intel MPI (Hydra); Cray's PMI has names of its own for what is local
    Launcher {
        rank: "PMI_RANK",
        ranks: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_ranks: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    },
    // PMIx alone names no number of ranks; whoever runs it does
    Launcher {
        rank: "PMIX_RANK",
        ranks: &["PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_ranks: &[],
    },
    // Slurm's srun
    Launcher {
        rank: "SLURM_PROCID",
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_ranks: &[],
    },
];

impl Place {
    /// Reads the environment, the host name and the process id.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::from(
            &|name| std::env::var(name).ok(),
            host_name(),
            std::process::id(),
        )
    }

    fn from(get: &dyn Fn(&str) -> Option<String>, host: String, pid: u32) -> Self {
        let number = |name: &str| get(name)?.trim().parse::<u32>().ok();
        let first = |names: &[&str]| names.iter().find_map(|name| number(name));
        let mut place = Self {
            host,
            pid,
            ..Self::default()
        };
        for launcher in &LAUNCHERS {
            let (Some(rank), Some(ranks)) = (number(launcher.rank), first(launcher.ranks)) else {
                continue;
            };
            if *place.rank.get_or_insert(rank) != rank || *place.ranks.get_or_insert(ranks) != ranks
            {
                continue;
            }
            place.local_rank = place.local_rank.or_else(|| first(launcher.local_rank));
            place.local_ranks = place.local_ranks.or_else(|| first(launcher.local_ranks));
            if launcher.rank == "SLURM_PROCID" {
                place.local_ranks = place.local_ranks.or_else(|| tasks_here(get));
            }
        }
        place
    }
}

/// How many tasks of a Slurm step this node runs: `4`, or by node as in `4(x2),3`.
fn tasks_here(get: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let node = get("SLURM_NODEID").and_then(|node| node.trim().parse::<u32>().ok());
    let lists = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
    let listed = lists
        .iter()
        .find_map(|name| tasks_on(&get(name)?, node.unwrap_or(0)));
    listed.or_else(|| get("SLURM_NTASKS_PER_NODE")?.trim().parse().ok())
}

fn tasks_on(list: &str, node: u32) -> Option<u32> {
    let mut nodes_before = 0_u32;
    for part in list.trim().split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse::<u32>().ok()?),
            None => (part, 1),
        };
        nodes_before = nodes_before.checked_add(times)?;
        if node < nodes_before {
            return tasks.trim().parse().ok();
        }
    }
    None
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// The file this process uses under `template`.
#[must_use]
pub fn expand(template: &str, place: &Place) -> PathBuf {
    let rank = place.rank.unwrap_or(0);
    let named = ["{rank}", "{local_rank}", "{pid}"]
        .iter()
        .any(|name| template.contains(name));
    let several = place.ranks.unwrap_or(1) > 1;
    let template = match (named, several, place.rank) {
        (false, true, Some(rank)) => insert(template, &format!(".rank{rank}")),
        _ => template.to_owned(),
    };
    PathBuf::from(
        template
            .replace("{rank}", &rank.to_string())
            .replace(
                "{local_rank}",
                &place.local_rank.unwrap_or(rank).to_string(),
            )
            .replace("{host}", &place.host)
            .replace("{pid}", &place.pid.to_string()),
    )
}

/// Puts `piece` before the ending of a file name: `x.trace.zst` becomes `x.rank3.trace.zst`.
#[must_use]
pub fn insert(path: &str, piece: &str) -> String {
    let name_at = path.rfind('/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(name_at);
    let ending_at = [".trace.zst", ".zst", ".plan"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending).map(str::len).filter(|&at| at > 0))
        .or_else(|| name.rfind('.').filter(|&dot| dot > 0))
        .unwrap_or(name.len());
    let (stem, ending) = name.split_at(ending_at);
    format!("{directory}{stem}{piece}{ending}")
}

/// The files that processes of a job made from `template` at or after `since`, sorted. Only the
/// file name may hold `{...}`; a template with a variable directory finds nothing.
#[must_use]
pub fn written(template: &str, since: SystemTime) -> Vec<PathBuf> {
    let path = Path::new(template);
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let patterns = [
        pieces(name),
        pieces(&insert(name, ".rank{rank}")),
        pieces(&insert(name, ".pid{pid}")),
        pieces(&insert(name, ".rank{rank}.pid{pid}")),
    ];
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| patterns.iter().any(|pattern| fits(name, pattern)))
        })
        .filter(|entry| {
            entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|at| at >= since)
        })
        .map(|entry| {
            if directory == Path::new(".") {
                entry.file_name().into()
            } else {
                entry.path()
            }
        })
        .collect();
    found.sort();
    found
}

/// The fixed text before, between and after the variables of a name.
fn pieces(name: &str) -> Vec<String> {
    let mut name = name.to_owned();
    for variable in ["{rank}", "{local_rank}", "{host}", "{pid}"] {
        name = name.replace(variable, "\0");
    }
    name.split('\0').map(str::to_owned).collect()
}

/// Whether `name` is the pieces in order with something between each two of them.
fn fits(name: &str, pieces: &[String]) -> bool {
    let Some((first, rest)) = pieces.split_first() else {
        return false;
    };
    let Some(mut left) = name.strip_prefix(first.as_str()) else {
        return false;
    };
    let Some((last, middle)) = rest.split_last() else {
        return left.is_empty();
    };
    for piece in middle {
        let Some(at) = left.get(1..).and_then(|tail| tail.find(piece.as_str())) else {
            return false;
        };
        left = left.get(1 + at + piece.len()..).unwrap_or("");
    }
    left.len() > last.len() && left.ends_with(last.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rank: Option<u32>, ranks: Option<u32>) -> Place {
        Place {
            rank,
            local_rank: rank,
            ranks,
            local_ranks: None,
            host: "node7".into(),
            pid: 42,
        }
    }

    #[test]
    fn several_ranks_never_share_a_file() {
        let name = |template, rank, ranks| {
            expand(template, &place(rank, ranks))
                .to_string_lossy()
                .into_owned()
        };
        assert_eq!(name("d.x/warm.trace.zst", None, None), "d.x/warm.trace.zst");
        assert_eq!(
            name("d.x/warm.trace.zst", Some(0), Some(1)),
            "d.x/warm.trace.zst"
        );
        assert_eq!(
            name("d.x/warm.trace.zst", Some(3), Some(8)),
            "d.x/warm.rank3.trace.zst"
        );
        assert_eq!(name("job.plan", Some(3), Some(8)), "job.rank3.plan");
        assert_eq!(name("d.x/job", Some(3), Some(8)), "d.x/job.rank3");
        assert_eq!(name("{host}-{rank}.zst", Some(3), Some(8)), "node7-3.zst");
        assert_eq!(name("{host}.zst", Some(3), Some(8)), "node7.rank3.zst");
        assert_eq!(name("{pid}-{local_rank}", None, None), "42-0");
    }

    /// Rank, ranks, local rank and local ranks.
    fn read(pairs: &[(&str, &str)]) -> [Option<u32>; 4] {
        let get = |name: &str| {
            let pair = pairs.iter().find(|pair| pair.0 == name);
            pair.map(|pair| pair.1.to_owned())
        };
        let place = Place::from(&get, "h".into(), 1);
        [place.rank, place.ranks, place.local_rank, place.local_ranks]
    }

    const TORCHRUN: [(&str, &str); 4] = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "4"),
    ];
    const SLURM: [(&str, &str); 5] = [
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "7"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_TASKS_PER_NODE", "2(x2),3"),
        ("SLURM_NODEID", "1"),
    ];

    #[test]
    fn ranks_come_from_whatever_launcher_there_is() {
        let all = |rank, ranks, local, locals| [Some(rank), Some(ranks), Some(local), Some(locals)];
        assert_eq!(read(&TORCHRUN), all(5, 8, 1, 4));
        assert_eq!(read(&SLURM), all(2, 7, 0, 2));
        let of = |prefix: &str| {
            let names =
                ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|end| prefix.to_owned() + end);
            let [rank, ranks, local, locals] = &names;
            read(&[(rank, "3"), (ranks, "4"), (local, "1"), (locals, "2")])
        };
        assert_eq!(of("OMPI_COMM_WORLD_"), all(3, 4, 1, 2));
        assert_eq!(of("MV2_COMM_WORLD_"), all(3, 4, 1, 2));
        assert_eq!(of("PMI_"), all(3, 4, 1, 2));
        let hydra = [("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(
            read(&[&[("PMI_RANK", "3"), ("PMI_SIZE", "4")], &hydra[..]].concat()),
            all(3, 4, 1, 2)
        );
        assert_eq!(
            read(&[("RANK", "5")]),
            [None; 4],
            "no number of ranks beside it"
        );
        assert_eq!(read(&[("RANK", "x"), ("WORLD_SIZE", "2")]), [None; 4]);
    }

    #[test]
    fn the_innermost_launcher_decides_and_others_fill_gaps_only_for_the_same_rank() {
        // Each Slurm task is a torchrun agent.
        assert_eq!(
            read(&[&TORCHRUN[..], &SLURM[..]].concat()),
            [Some(5), Some(8), Some(1), Some(4)]
        );
        // srun starts the ranks itself, and a script has exported two of torchrun's names.
        let script = [("RANK", "2"), ("WORLD_SIZE", "7")];
        assert_eq!(
            read(&[&script[..], &SLURM[..]].concat()),
            [Some(2), Some(7), Some(0), Some(2)]
        );
        // `RANK` is an image's, for its own ends.
        assert_eq!(read(&[&[("RANK", "9")], &SLURM[..]].concat())[0], Some(2));
        // The same names speak of another rank: nothing of theirs is ours.
        let other = [("RANK", "1"), ("WORLD_SIZE", "7")];
        assert_eq!(
            read(&[&other[..], &SLURM[..]].concat()),
            [Some(1), Some(7), None, None]
        );
    }

    #[test]
    fn tasks_are_counted_by_node() {
        assert_eq!(tasks_on("8", 0), Some(8));
        assert_eq!(tasks_on("4(x2),3", 1), Some(4));
        assert_eq!(tasks_on("4(x2),3", 2), Some(3));
        assert_eq!(tasks_on("4(x2),3", 3), None);
        assert_eq!(tasks_on("4(x", 0), None);
        assert_eq!(tasks_on("", 0), None);
    }

    #[test]
    fn the_launcher_finds_what_its_job_wrote_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::write(dir.path().join(name), "x").unwrap();
        [
            "x.trace.zst",
            "x.rank0.trace.zst",
            "x.rank10.trace.zst",
            "x.pid7.trace.zst",
            "y.zst",
        ]
        .iter()
        .for_each(|name| make(name));
        make("x.old.trace.zst");
        let template = dir.path().join("x.trace.zst");
        let found = written(template.to_str().unwrap(), SystemTime::UNIX_EPOCH);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        let expected = [
            "x.pid7.trace.zst",
            "x.rank0.trace.zst",
            "x.rank10.trace.zst",
            "x.trace.zst",
        ];
        assert_eq!(names, expected);
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        assert!(written(template.to_str().unwrap(), later).is_empty());
    }
}
