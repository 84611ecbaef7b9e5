//! The shims: where they are, whether this system's glibc is new enough for them, and whether the
//! dynamic linker takes them.

use std::ffi::CStr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use transit_launch::find_shim;

use super::elf::{Elf, numbers};
use super::report::Check;

const SHIMS: [(&str, &str); 2] = [
    ("shim.record", "libtransit_record.so"),
    ("shim.replay", "libtransit_replay.so"),
];

pub(super) fn checks() -> Vec<Check> {
    SHIMS.iter().map(|(key, name)| shim(key, name)).collect()
}

fn shim(key: &str, name: &str) -> Check {
    let path = match find_shim(name) {
        Ok(path) => path,
        Err(failure) => {
            let next = "unpack the bundle anew, or set TRANSIT_SHIM_DIR";
            return Check::problem(key, failure.to_string(), next);
        }
    };
    let elf = match Elf::read(&path) {
        Ok(elf) => elf,
        Err(error) => {
            let next = "unpack the bundle anew: the file is damaged";
            return Check::problem(key, error, next);
        }
    };
    let (needs, has) = (elf.glibc_text(), own_glibc());
    let data = json!({ "path": path, "needs_glibc": needs, "has_glibc": has });
    let text = format!("{}, needs glibc {needs}, here is {has}", path.display());
    let check = if let Some(library) = elf.foreign_library() {
        let next = "unpack the bundle anew: no shim of ours names such a library";
        Check::problem(key, format!("{text}; it needs {library}"), next)
    } else if elf.glibc > numbers(&has, "") {
        let next = "use the packed bundle, which needs glibc 2.28";
        Check::problem(key, text, next)
    } else if let Some(error) = refused(&path) {
        let next = "use the bundle made for this kind of machine";
        Check::problem(
            key,
            format!("{text}; it cannot be preloaded: {error}"),
            next,
        )
    } else {
        Check::ok(key, text)
    };
    check.with(data)
}

fn own_glibc() -> String {
    // SAFETY: has no preconditions.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: a static NUL-terminated string.
    let version = unsafe { CStr::from_ptr(version) };
    version.to_string_lossy().into_owned()
}

/// The dynamic linker's complaint when a program (this one) starts with `shim` preloaded.
fn refused(shim: &Path) -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new(program);
    command
        .args(["doctor", "--version"])
        .env("LD_PRELOAD", shim);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let good = output.status.success() && said.is_empty();
    (!good).then(|| format!("{said} ({})", output.status))
}
