//! House style that a compiler does not check: every file says why it exists, files and functions
//! stay small enough to know, no large blobs, no machine-specific paths.

use std::path::{Path, PathBuf};
use std::process::Command;

use transit_harness::workspace;

const MAX_FILE_LINES: usize = 800;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_COLUMNS: usize = 110;
const MAX_BLOB_BYTES: u64 = 1 << 20;

fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| workspace().join(line))
        .filter(|path| path.exists())
        .collect()
}

fn sources() -> Vec<(PathBuf, String)> {
    tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

#[test]
fn every_file_says_why_it_exists_and_is_small_enough() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//!") && !text.contains("\n//!") {
            wrong.push(format!("{}: no module documentation", path.display()));
        }
        let lines = text.lines().count();
        if lines > MAX_FILE_LINES {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > MAX_COLUMNS && !line.contains('"') {
                wrong.push(format!("{}:{}: too wide", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lines of each function, from its signature to its closing brace, as rustfmt lays them out.
fn long_functions(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        let is_function = [
            "fn ",
            "pub fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
            "unsafe fn ",
        ]
        .iter()
        .any(|p| bare.starts_with(p))
            || bare.starts_with("pub unsafe fn ")
            || bare.starts_with("unsafe extern \"C\" fn ")
            || bare.starts_with("pub unsafe extern \"C\" fn ");
        if !is_function || bare.ends_with(';') {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let length = lines
            .iter()
            .skip(start)
            .position(|l| *l == close)
            .unwrap_or(0)
            + 1;
        if length > MAX_FUNCTION_LINES {
            wrong.push(format!(
                "{}:{}: {length} lines: {bare}",
                path.display(),
                start + 1
            ));
        }
    }
}

#[test]
fn functions_are_short() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        long_functions(&path, &text, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_large_blobs() {
    for path in tracked() {
        let bytes = path.metadata().unwrap().len();
        assert!(bytes <= MAX_BLOB_BYTES, "{}: {bytes} bytes", path.display());
    }
}

/// The README names the two commands, and every relative link in our pages leads somewhere.
#[test]
fn pages_are_there_and_their_links_live() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    for command in ["cargo xtask demo", "cargo xtask test"] {
        assert!(
            readme.contains(command),
            "README.md does not name {command}"
        );
    }
    for page in tracked()
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
    {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let there = page
                .parent()
                .is_some_and(|folder| folder.join(path).exists());
            assert!(there, "{}: dead link {target}", page.display());
        }
    }
}
