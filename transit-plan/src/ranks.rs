//! One job writes one trace per rank. People type the name they gave to `transit-record -o`; this
//! finds the files that came of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::error::{Next, say};
use crate::output;
use crate::render::units;

/// The trace or plan of one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankFile {
    /// The rank in the file's name, `None` for a job of one process.
    pub rank: Option<u32>,
    /// The file.
    pub path: PathBuf,
}

/// Suffixes that stay at the end when a rank is put into a name.
const SUFFIXES: [&str; 4] = [".trace.zst", ".zst", ".trace", ".plan"];

/// Finds the files of a name given to `-o`: the file itself, else `x.rank0.trace.zst`,
/// `x.rank1.trace.zst`, ... for `x.trace.zst`, else what a template (`{rank}`, `{local_rank}`,
/// `{host}`, `{pid}`) matches; sorted by rank.
///
/// # Errors
/// If there is none, or the directory cannot be read.
pub fn find(given: &Path) -> anyhow::Result<Vec<RankFile>> {
    if given.is_file() {
        // A launcher that used the GPU itself, or an earlier run of one process, has left a file
        // of the very name beside the ranks'.
        let ranks = matching(given).unwrap_or_default();
        if !ranks.is_empty() {
            say(&left_out(given, ranks.len()));
        }
        return Ok(vec![RankFile {
            rank: None,
            path: given.to_owned(),
        }]);
    }
    if let Ok(there) = given.metadata() {
        let what = if there.is_dir() {
            ("a folder", "give a file in it")
        } else {
            (
                "a pipe or a device",
                "copy what comes out of it to a file first",
            )
        };
        return Err(anyhow!("{} is {}, not a file", given.display(), what.0)).next(what.1);
    }
    let found = matching(given)?;
    if found.is_empty() {
        let error = anyhow!("no file {} and none of its ranks", given.display());
        return Err(error).next(
            "record one first: transit-record -o x.trace.zst -- python train.py; if that left \
             none, transit-record doctor says what is missing",
        );
    }
    Ok(found)
}

/// What is said where a name is both a file and several ranks' name.
fn left_out(given: &Path, ranks: usize) -> String {
    let ranks = units::counted(ranks as u64, "rank's file", "ranks' files");
    let all = with_text(given, "rank{rank}");
    format!(
        "taking {} alone; left out beside it: {ranks}\n  next: give {} for the ranks",
        given.display(),
        output::quoted(&all.to_string_lossy())
    )
}

/// The ranks' files of a name, sorted by rank; none if there are none.
fn matching(given: &Path) -> anyhow::Result<Vec<RankFile>> {
    let name = given
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let Some(name) = name else {
        return Err(anyhow!("{} names no file", given.display()))
            .next("give the path that transit-record announced");
    };
    let folder = match given.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let pattern = pattern_of(&name)?;
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("cannot look for {}", given.display()))
        .next("give the path that transit-record announced")?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if let Some(hit) = pattern.captures(&file) {
            let rank = hit.name("rank").and_then(|rank| rank.as_str().parse().ok());
            found.push(RankFile {
                rank,
                path: given.with_file_name(entry.file_name()),
            });
        }
    }
    found.sort();
    Ok(found)
}

/// `x.trace.zst` with rank 3 is `x.rank3.trace.zst`; `{rank}` in a name is filled in instead.
#[must_use]
pub fn with_rank(name: &Path, rank: Option<u32>) -> PathBuf {
    let Some(rank) = rank else {
        return name.to_owned();
    };
    let file = name
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if file.contains("{rank}") {
        return name.with_file_name(file.replace("{rank}", &rank.to_string()));
    }
    with_text(name, &format!("rank{rank}"))
}

/// `x.trace.zst` with `text` is `x.text.trace.zst`.
fn with_text(name: &Path, text: &str) -> PathBuf {
    let file = name.file_name().unwrap_or_default().to_string_lossy();
    name.with_file_name(with_tag(&file, text))
}

/// `job.plan` with a tag is `job.prefetch.plan`.
#[must_use]
pub fn with_tag(file: &str, tag: &str) -> String {
    let (stem, suffix) = split_suffix(file);
    format!("{stem}.{tag}{suffix}")
}

/// The plan's name where none is given: `x.plan` in the folder of `x.trace.zst`.
#[must_use]
pub fn plan_name(trace: &Path) -> PathBuf {
    let file = trace
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    trace.with_file_name(format!("{}.plan", split_suffix(&file).0))
}

fn split_suffix(file: &str) -> (&str, &str) {
    for suffix in SUFFIXES {
        if let Some(stem) = file.strip_suffix(suffix) {
            return (stem, suffix);
        }
    }
    (file, "")
}

/// A regular expression for the files that a name may have become.
fn pattern_of(name: &str) -> anyhow::Result<regex::Regex> {
    let text = if name.contains('{') {
        regex::escape(name)
            .replacen(r"\{rank\}", r"(?P<rank>\d+)", 1)
            .replace(r"\{rank\}", r"\d+")
            .replace(r"\{local_rank\}", r"\d+")
            .replace(r"\{pid\}", r"\d+")
            .replace(r"\{host\}", r"[^/]+")
    } else {
        let (stem, suffix) = split_suffix(name);
        format!(
            r"{}\.rank(?P<rank>\d+){}",
            regex::escape(stem),
            regex::escape(suffix)
        )
    };
    regex::Regex::new(&format!("^{text}$")).with_context(|| format!("cannot search for {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(folder: &Path, names: &[&str]) {
        for name in names {
            std::fs::write(folder.join(name), b"").unwrap();
        }
    }

    fn names(files: &[RankFile]) -> Vec<(Option<u32>, String)> {
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        files
            .iter()
            .map(|file| (file.rank, name(&file.path)))
            .collect()
    }

    #[test]
    fn the_name_given_to_the_recorder_finds_every_rank_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            "x.rank10.trace.zst",
            "x.rank2.trace.zst",
            "xy.rank3.trace.zst",
            "x.plan",
        ];
        touch(folder.path(), &all);
        let found = find(&folder.path().join("x.trace.zst")).unwrap();
        assert_eq!(
            names(&found),
            [(Some(2), all[1].to_owned()), (Some(10), all[0].to_owned())]
        );
    }

    #[test]
    fn a_file_that_exists_is_taken_alone_and_templates_match() {
        let folder = tempfile::tempdir().unwrap();
        touch(
            folder.path(),
            &["x.trace.zst", "x.rank0.trace.zst", "t-1-77.zst"],
        );
        let alone = find(&folder.path().join("x.trace.zst")).unwrap();
        assert_eq!(names(&alone), [(None, "x.trace.zst".to_owned())]);
        // Not silently: what is said names the way to the ranks, and that way works.
        let said = left_out(Path::new("d d/x.trace.zst"), 1);
        assert!(
            said.contains("next: give 'd d/x.rank{rank}.trace.zst'"),
            "{said}"
        );
        let ranks = find(&folder.path().join("x.rank{rank}.trace.zst")).unwrap();
        assert_eq!(names(&ranks), [(Some(0), "x.rank0.trace.zst".to_owned())]);
        let template = find(&folder.path().join("t-{rank}-{pid}.zst")).unwrap();
        assert_eq!(names(&template), [(Some(1), "t-1-77.zst".to_owned())]);
    }

    #[test]
    fn ranks_of_a_name_that_is_no_utf8_can_be_opened() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(at(b"y\xff.rank0.trace.zst"), b"").unwrap();
        let found = find(&at(b"y\xff.trace.zst")).unwrap();
        assert!(found[0].path.is_file(), "{found:?}");
    }

    #[test]
    fn nothing_found_says_how_to_record() {
        let folder = tempfile::tempdir().unwrap();
        let error = find(&folder.path().join("none.trace.zst")).unwrap_err();
        assert!(crate::error::text(&error).contains("next: record one first"));
    }

    #[test]
    fn what_is_there_but_no_file_is_called_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for (path, word) in [
            (folder.path(), "folder"),
            (Path::new("/dev/null"), "device"),
        ] {
            let text = crate::error::text(&find(path).unwrap_err());
            assert!(text.contains(word) && text.contains("next:"), "{text}");
        }
        let odd = find(Path::new("/no/such/..")).unwrap_err();
        assert!(crate::error::text(&odd).contains("next:"));
    }

    #[test]
    fn outputs_get_the_rank_before_their_suffix() {
        assert_eq!(
            with_rank(Path::new("a/job.plan"), Some(3)),
            Path::new("a/job.rank3.plan")
        );
        assert_eq!(
            with_rank(Path::new("job-{rank}.plan"), Some(3)),
            Path::new("job-3.plan")
        );
        assert_eq!(
            with_rank(Path::new("job.plan"), None),
            Path::new("job.plan")
        );
    }
}
