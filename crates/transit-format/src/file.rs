//! Opens files to be read whole. Only regular ones: opening a FIFO waits for a writer that may
//! never come (inside a training job, for ever), and a device such as `/dev/zero` has no end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The open file and its size in bytes.
///
/// # Errors
/// As the operating system says, or that the path is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    // Before opening, which may block, and without waiting for it.
    refuse_irregular(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    refuse_irregular(&metadata)?;
    Ok((file, metadata.len()))
}

fn refuse_irregular(metadata: &std::fs::Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "is a directory"
    } else if kind.is_fifo() {
        "is a pipe; copy what comes out of it to a file first"
    } else if kind.is_socket() {
        "is a socket"
    } else {
        "is a device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, fifo) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&plain, "abc").unwrap();
        assert_eq!(open(&plain).unwrap().1, 3);
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let said = |path: &Path| open(path).unwrap_err().to_string();
        assert!(said(&fifo).contains("is a pipe"));
        assert!(said(folder.path()).contains("is a directory"));
        assert!(said(Path::new("/dev/zero")).contains("is a device"));
        assert!(said(Path::new("/no/such")).contains("No such file"));
    }
}
