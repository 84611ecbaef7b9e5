//! Writes files whole or not at all, and prints on stdout.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use crate::error::Next;

/// Writes `path` by handing a buffered writer to `fill`. What stood there is lost only for something
/// whole; pipes and devices are written to and stay what they are; missing folders are made.
///
/// # Errors
/// If it cannot be written, with what to do about it.
pub fn save(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    write(path, fill)
        .with_context(|| format!("cannot write {}", path.display()))
        .next("give another name, in a folder that you may write to and that has space")
}

fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut device = fs::OpenOptions::new().write(true).open(path)?;
        return fill(&mut device);
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let partial = target.with_file_name(format!(".transit-{}", std::process::id()));
    let publish = || -> io::Result<()> {
        let mut file = io::BufWriter::new(fs::File::create(&partial)?);
        fill(&mut file)?;
        file.flush()?;
        fs::rename(&partial, &target)
    };
    publish().inspect_err(|_| {
        // The failure itself is what matters.
        let _ = fs::remove_file(&partial);
    })
}

/// Prints on stdout.
///
/// # Errors
/// If stdout cannot be written; [`crate::error::is_broken_pipe`] tells whether anybody minds.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a JSON document on stdout.
///
/// # Errors
/// As [`print`].
pub fn print_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(document)?))
}
