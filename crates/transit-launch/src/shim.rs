//! Where a launcher finds its shim.

use std::env;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Finds the library `file_name` in `$TRANSIT_SHIM_DIR`, else next to this executable, else in
/// `../lib/transit` beside it. The answer is absolute, as `LD_PRELOAD` needs it.
///
/// # Errors
/// Names every place that was looked at.
pub fn find_shim(file_name: &str) -> Result<PathBuf, Failure> {
    let given = env::var_os("TRANSIT_SHIM_DIR").filter(|dir| !dir.is_empty());
    let executable = env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|error| Failure::own(format!("cannot tell where this program lies: {error}")))?;
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let places = match given {
        Some(dir) => vec![PathBuf::from(dir)],
        None => vec![beside.to_owned(), beside.join("../lib/transit")],
    };
    for place in &places {
        let Ok(found) = std::fs::canonicalize(place.join(file_name)) else {
            continue;
        };
        return usable(found);
    }
    let looked: Vec<String> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    Err(Failure::own(format!(
        "{file_name} is not in {}; set TRANSIT_SHIM_DIR to the directory that holds it",
        looked.join(" nor in ")
    )))
}

/// The dynamic linker splits `LD_PRELOAD` at spaces and colons and cannot be told otherwise.
fn usable(path: PathBuf) -> Result<PathBuf, Failure> {
    if path.to_string_lossy().contains([' ', ':', '\t', '\n']) {
        return Err(Failure::own(format!(
            "{} cannot be preloaded: the dynamic linker splits LD_PRELOAD at spaces and colons; \
             link or copy the file to a path without them and set TRANSIT_SHIM_DIR",
            path.display()
        )));
    }
    Ok(path)
}
