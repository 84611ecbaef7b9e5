//! CUPTI: which copy a job would get, and whether it records here.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use transit_capture::CuptiCheck;

use super::ask::Asked;
use super::report::Check;

/// A [`CuptiCheck`] on its way from the child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cupti {
    pub(super) path: Option<String>,
    pub(super) found: String,
    pub(super) version: u32,
    pub(super) no_records: Option<String>,
    pub(super) no_migrations: Option<String>,
}

impl From<CuptiCheck> for Cupti {
    fn from(check: CuptiCheck) -> Self {
        Self {
            path: check.path,
            found: check.found.to_owned(),
            version: check.version,
            no_records: check.no_records,
            no_migrations: check.no_migrations,
        }
    }
}

impl Cupti {
    /// The CUDA release its number stands for: up to 12.9 they are counted, since 13.0 written out.
    fn major(&self) -> u32 {
        match self.version {
            0..18 => 11,
            18..10_000 => 12,
            written => written / 10_000,
        }
    }

    /// Newest unified-memory record it fills in.
    fn counter_version(&self) -> u32 {
        // CUDA 12.8 is 26.
        if self.version < 26 { 2 } else { 3 }
    }
}

pub(super) fn checks(asked: &Asked) -> Vec<Check> {
    let Some(answer) = &asked.facts.cupti else {
        return Vec::new();
    };
    let cupti = match answer {
        Ok(cupti) => cupti,
        Err(why) => {
            return vec![Check::warning(
                "cupti",
                format!("no CUPTI, so no kernel times and no migrations: {why}"),
                "a job that brings its own (PyTorch does) needs none; else \
                 `pip install nvidia-cuda-cupti`, or set CUDA_HOME",
            )];
        }
    };
    let driver_major = u32::try_from(asked.facts.cuda_version / 1000).unwrap_or(0);
    let path = cupti.path.as_deref().unwrap_or("libcupti");
    let text = format!(
        "{path} ({}), API version {}, for CUDA {}, unified-memory records of version {}",
        cupti.found,
        cupti.version,
        cupti.major(),
        cupti.counter_version()
    );
    let data = json!({
        "path": cupti.path,
        "found": cupti.found,
        "version": cupti.version,
        "cuda_major": cupti.major(),
        "unified_memory_record": cupti.counter_version(),
    });
    let missing = cupti.no_records.as_ref().or(cupti.no_migrations.as_ref());
    let check = if cupti.major() > driver_major {
        Check::warning(
            "cupti",
            format!("{text}; newer than the driver, which is for CUDA {driver_major}"),
            format!("use a CUPTI {driver_major} or a newer driver; ops are recorded all the same"),
        )
    } else if let Some(why) = missing {
        Check::warning(
            "cupti",
            format!("{text}; {why}"),
            "ops are recorded all the same",
        )
    } else {
        Check::ok("cupti", text)
    };
    vec![check.with(data)]
}

/// Where the Python that a job would run keeps CUPTI: the copy that PyTorch maps.
pub(super) fn python_directories() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| std::env::var_os(name).map(PathBuf::from))
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let python = std::env::split_paths(&path)
        .map(|directory| directory.join("python3"))
        .find(|program| program.is_file());
    if let Some(prefix) = python.as_deref().and_then(|p| p.parent()?.parent()) {
        prefixes.push(prefix.to_owned());
    }
    prefixes
        .iter()
        .flat_map(|prefix| in_prefix(prefix))
        .collect()
}

fn in_prefix(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with("python3") {
            continue;
        }
        for packages in ["site-packages", "dist-packages"] {
            for below in ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"] {
                let directory = entry.path().join(packages).join(below);
                if directory.is_dir() && !found.contains(&directory) {
                    found.push(directory);
                }
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::State;

    fn asked(version: u32, cuda_version: i32) -> Asked {
        let mut asked = Asked::default();
        asked.facts.cuda_version = cuda_version;
        asked.facts.cupti = Some(Ok(Cupti {
            version,
            ..Cupti::default()
        }));
        asked
    }

    #[test]
    fn a_cupti_newer_than_the_driver_is_told() {
        let state = |version, driver| checks(&asked(version, driver))[0].state;
        assert_eq!(state(130_001, 13_000), State::Ok);
        assert_eq!(state(26, 13_000), State::Ok);
        assert_eq!(state(130_001, 12_080), State::Warning);
        let text = checks(&asked(24, 12_060))[0].text.clone();
        assert!(text.contains("records of version 2"), "{text}");
    }
}
