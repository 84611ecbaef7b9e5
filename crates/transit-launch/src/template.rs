//! File name templates: one trace and one plan per rank, under a name given once.
//!
//! `{rank}`, `{local_rank}`, `{host}` and `{pid}` stand for what they say. A template without
//! `{rank}`, `{local_rank}` or `{pid}` gets `.rankN` before its ending where a launcher announced
//! more than one rank, so that ranks never write over each other.

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
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
}

/// Variables of torchrun, Slurm, Open MPI, MPICH/Hydra and MVAPICH, in the order they are tried.
const RANK: [&str; 5] = [
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
];
const LOCAL_RANK: [&str; 5] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];
const RANKS: [&str; 5] = [
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_NTASKS",
];

impl Place {
    /// Reads the environment, the host name and the process id.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::from(
            |name| std::env::var(name).ok(),
            host_name(),
            std::process::id(),
        )
    }

    fn from(get: impl Fn(&str) -> Option<String>, host: String, pid: u32) -> Self {
        let first = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| get(name)?.trim().parse::<u32>().ok())
        };
        // A lone `RANK` says nothing: shells and images set it for their own ends.
        let ranks = first(&RANKS);
        let rank = first(&RANK).filter(|_| ranks.is_some());
        Self {
            rank,
            local_rank: first(&LOCAL_RANK).filter(|_| rank.is_some()),
            ranks,
            host,
            pid,
        }
    }
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

    #[test]
    fn ranks_come_from_whatever_launcher_there_is() {
        let from = |pairs: &'static [(&str, &str)]| {
            let get = |name: &str| {
                pairs
                    .iter()
                    .find(|pair| pair.0 == name)
                    .map(|pair| pair.1.to_owned())
            };
            Place::from(get, "h".into(), 1)
        };
        let torchrun = from(&[("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")]);
        assert_eq!((torchrun.rank, torchrun.local_rank), (Some(5), Some(1)));
        let slurm = from(&[
            ("SLURM_PROCID", "2"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "4"),
        ]);
        assert_eq!((slurm.rank, slurm.ranks), (Some(2), Some(4)));
        assert_eq!(
            from(&[("RANK", "5")]).rank,
            None,
            "no number of ranks beside it"
        );
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
