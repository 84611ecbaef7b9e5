//! What a bundle must be before it leaves: every file loads on the glibc it is packed for, names no
//! CUDA library, a shim exports its list and nothing else, and the packed launcher records a job on
//! the software GPU, which then passes the packed doctor.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use transit_harness::SoftGpu;

use crate::elf::{Elf, numbers};

/// Fails if a file needs a newer glibc than `floor`, or a library that is not everywhere. Answers
/// the newest glibc version needed.
pub(crate) fn check_files<'a>(
    files: impl Iterator<Item = &'a Path>,
    floor: Option<&str>,
) -> Result<String> {
    let mut newest = Elf::default();
    for file in files {
        let elf = Elf::read(file).map_err(|error| anyhow!(error))?;
        if let Some(library) = elf.foreign_library() {
            return Err(anyhow!("{} is linked with {library}", file.display()));
        }
        if let Some(floor) = floor {
            ensure!(
                elf.glibc <= numbers(floor, ""),
                "{} needs glibc {}, the bundle is for {floor}: python3 -m pip install ziglang",
                file.display(),
                elf.glibc_text()
            );
        }
        if elf.glibc > newest.glibc {
            newest = elf;
        }
    }
    Ok(newest.glibc_text())
}

/// Fails unless `library` exports exactly what `list` says.
pub(crate) fn check_exports(library: &Path, list: &Path) -> Result<()> {
    let text = std::fs::read_to_string(list).with_context(|| format!("{}", list.display()))?;
    let lines = text.lines().map(str::trim);
    let wanted: BTreeSet<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let elf = Elf::read(library).map_err(|error| anyhow!(error))?;
    let found: BTreeSet<&str> = elf.exports.iter().map(String::as_str).collect();
    let extra: Vec<_> = found.difference(&wanted).collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    ensure!(
        extra.is_empty() && missing.is_empty(),
        "{} exports {extra:?} beyond its list and lacks {missing:?}",
        library.display()
    );
    Ok(())
}

/// Records the trainer with the bundle's own launcher on the software GPU, reads the trace with the
/// bundle's planner, and asks the bundle's doctor.
pub(crate) fn smoke(directory: &Path) -> Result<()> {
    let bin = std::path::absolute(directory)?.join("bin");
    let gpu = SoftGpu::new(1 << 30)?;
    let trace = gpu.folder().join("packed.trace.zst");
    let bundled = |program: &str| {
        let mut command = gpu.command(bin.join(program));
        // Found beside the launcher, as an unpacked bundle finds it.
        command.env_remove("TRANSIT_SHIM_DIR");
        command
    };
    let mut record = bundled("transit-record");
    record.arg("-o").arg(&trace).arg("--");
    record.arg(transit_harness::artifacts().join("trainer"));
    record.args(["--layers", "2", "--elements", "262144", "--steps", "4"]);
    let mut inspect = bundled("transit-plan");
    inspect.arg("inspect").arg(&trace);
    let mut doctor = bundled("transit-record");
    doctor.args(["doctor", "--json"]);
    for (what, mut command, most) in [
        ("recording", record, 0),
        ("reading the trace", inspect, 0),
        // This machine may have its own warnings.
        ("the doctor", doctor, 1),
    ] {
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let code = output.status.code().unwrap_or(i32::MAX);
        ensure!(
            code <= most,
            "{what} with the packed programs: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::process::Command;

    fn built(folder: &Path, more: &[&str]) -> std::path::PathBuf {
        let (source, library) = (folder.join("x.c"), folder.join("libx.so"));
        // memcpy has been in glibc under another version since 2.14.
        let text = "#include <string.h>\nvoid *out(void *a, void *b, size_t n)\
                    { return memcpy(a, b, n); }\n";
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new("gcc");
        command.args(["-O0", "-fno-builtin", "-shared", "-fPIC", "-o"]);
        command.arg(&library).arg(&source).args(more);
        assert!(command.status().unwrap().success());
        library
    }

    #[test]
    fn a_file_above_the_floor_or_with_a_strange_export_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let library = built(folder.path(), &[]);
        let check = |floor| check_files(std::iter::once(library.as_path()), floor);
        assert!(check(Some("2.28")).is_ok() && check(None).is_ok());
        let error = check(Some("2.1")).unwrap_err().to_string();
        assert!(error.contains("needs glibc 2."), "{error}");
        let list = folder.path().join("exports.txt");
        std::fs::write(&list, "# names\nout\n").unwrap();
        assert!(check_exports(&library, &list).is_ok());
        std::fs::write(&list, "out\nother\n").unwrap();
        let error = check_exports(&library, &list).unwrap_err().to_string();
        assert!(error.contains("other"), "{error}");
    }

    #[test]
    fn field_report_8_a_file_that_names_a_cuda_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("libcudart.so.13");
        let link = format!("-Wl,-soname,{}", "libcudart.so.13");
        std::fs::rename(built(folder.path(), &[&link]), &named).unwrap();
        let library = built(
            folder.path(),
            &["-Wl,--no-as-needed", named.to_str().unwrap()],
        );
        let checked = check_files(std::iter::once(library.as_path()), None);
        let error = checked.unwrap_err().to_string();
        assert!(error.contains("libcudart.so.13"), "{error}");
    }
}
