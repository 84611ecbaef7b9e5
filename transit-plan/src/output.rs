//! Writes what a verb made. A file appears under its name whole or not at all, what stood there
//! before is lost only for something whole, and an input is never written over.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::error::Next;

/// Writes `bytes` to `path`. Folders that are missing are made; a symbolic link is followed; pipes
/// and devices (`/dev/stdout`) are written to and stay what they are.
///
/// # Errors
/// If it cannot be written, with what to do about it.
pub fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write(path, bytes)
        .map_err(|error| (advice(&error), error))
        .or_else(|(advice, error)| {
            Err(error)
                .with_context(|| format!("cannot write {}", path.display()))
                .next(advice)
        })
}

/// A word as a shell takes it, for commands that people paste.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Refuses to write to `output` what is made from `input`.
///
/// # Errors
/// If both are the same file.
pub fn apart(output: &Path, input: &Path) -> anyhow::Result<()> {
    let same = |a: &Path, b: &Path| a == b && a.is_file();
    match (fs::canonicalize(output), fs::canonicalize(input)) {
        (Ok(output_at), Ok(input_at)) if same(&output_at, &input_at) => Err(anyhow!(
            "{} is the input itself and would be lost",
            output.display()
        ))
        .next("give -o another name"),
        _ => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        // A folder is refused by the system, in its words.
        return fs::OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(bytes);
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    // Short, so that it fits wherever the name itself fits.
    let partial = target.with_file_name(format!(".transit-{}", std::process::id()));
    let publish = || -> io::Result<()> {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, &target)
    };
    publish().inspect_err(|_| {
        // The failure itself is what matters.
        let _ = fs::remove_file(&partial);
    })
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or give -o a name on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "give -o a name in a folder that you may write to"
        }
        io::ErrorKind::InvalidFilename => "give -o a shorter name",
        io::ErrorKind::IsADirectory => "give -o the name of a file in it",
        _ => "give -o another name",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_name_that_cannot_be_written_is_told_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        let long = "n".repeat(256);
        for name in ["file/below", long.as_str(), "."] {
            let error = save(&folder.path().join(name), b"y").unwrap_err();
            let text = crate::error::text(&error);
            assert!(
                text.contains("cannot write") && text.contains("next: give -o"),
                "{text}"
            );
        }
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn missing_folders_are_made_and_the_longest_name_fits() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{}.plan", "n".repeat(250));
        let path = folder.path().join("a/b").join(&name);
        save(&path, b"y").unwrap();
        assert_eq!(names(path.parent().unwrap()), [name]);
    }

    #[test]
    fn links_and_pipes_are_written_through_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), "x").unwrap();
        symlink("real", at("link")).unwrap();
        save(&at("link"), b"y").unwrap();
        assert_eq!(fs::read(at("real")).unwrap(), b"y");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        let made = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(made.unwrap().success());
        let reader = {
            let pipe = at("pipe");
            std::thread::spawn(move || fs::read(pipe).unwrap())
        };
        save(&at("pipe"), b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(!fs::metadata(at("pipe")).unwrap().is_file());
        save(Path::new("/dev/null"), b"y").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn the_input_is_known_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("trace"), "x").unwrap();
        symlink("trace", at("link")).unwrap();
        assert!(apart(&at("link"), &at("trace")).is_err());
        assert!(apart(&at("./trace"), &at("link")).is_err());
        assert!(apart(&at("new"), &at("trace")).is_ok());
        assert!(apart(Path::new("/dev/null"), Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn names_in_commands_can_be_pasted() {
        assert_eq!(quoted("a/job.plan"), "a/job.plan");
        assert_eq!(quoted("a b's"), r"'a b'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
