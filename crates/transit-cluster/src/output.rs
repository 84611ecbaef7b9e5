//! Writes files whole or not at all, and prints on stdout.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};

use crate::error::Next;

/// Refuses, before any work is done, files that could not be written in the end: folders, places without
/// permission, one name given twice, and the input itself.
///
/// # Errors
/// The first file that is refused, with what to do about it.
pub fn check(targets: &[&Path], input: Option<&Path>) -> anyhow::Result<()> {
    let input = input.and_then(|path| fs::canonicalize(path).ok());
    let mut seen: Vec<PathBuf> = Vec::new();
    for target in targets {
        let shown = target.display();
        let real = real(target);
        let clash = if target.is_dir() {
            Some("is a folder: give the name of a file in it")
        } else if input.as_ref() == Some(&real) && real.is_file() {
            Some("is the input, which would be lost: give another name")
        } else if seen.contains(&real) {
            Some("is to be written twice: give each file its own name")
        } else {
            None
        };
        if let Some((what, next)) = clash.and_then(|clash| clash.split_once(": ")) {
            return Err(anyhow!("{shown} {what}")).next(next);
        }
        probe(&real)
            .with_context(|| format!("cannot write {shown}"))
            .next(ELSEWHERE)?;
        seen.push(real);
    }
    Ok(())
}

const ELSEWHERE: &str = "give another name, in a folder that you may write to and that has space";

/// The file that a name stands for, whether it is there yet or not.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")));
        match (folder, path.file_name()) {
            (Ok(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}

/// Whether a file could be made where this one shall stand.
fn probe(target: &Path) -> anyhow::Result<()> {
    if target.exists() && !target.is_file() {
        return Ok(());
    }
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let mut folders = target.ancestors().skip(1);
    let folder = folders.find(|folder| !missing(folder)).unwrap_or(target);
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    ensure!(folder.is_dir(), "{} is no folder", folder.display());
    let partial = partial(&folder.join("probe"));
    fs::File::create(&partial)?;
    Ok(fs::remove_file(&partial)?)
}

/// The name under which a file is filled.
fn partial(target: &Path) -> PathBuf {
    target.with_file_name(format!(".transit-{}", std::process::id()))
}

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
        .next(ELSEWHERE)
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
    let partial = partial(&target);
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
    to_stdout(|out| out.write_all(text.as_bytes()))
}

/// Hands a buffered stdout to `fill`.
///
/// # Errors
/// As [`print`].
pub fn to_stdout(fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    fill(&mut out)
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
        .next("write where there is space, or read all of it")
}

/// Prints a JSON document on stdout.
///
/// # Errors
/// As [`print`].
pub fn print_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(document)?))
}
