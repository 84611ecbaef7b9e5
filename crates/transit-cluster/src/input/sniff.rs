//! What is plainly no job table, told by its first line, and what to do about it.

use csv::ByteRecord;

/// Why a file cannot be read as it is, and the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is.
    pub what: &'static str,
    /// What to do.
    pub next: &'static str,
}

const fn refusal(what: &'static str, next: &'static str) -> Refusal {
    Refusal { what, next }
}

const UNPACK: &str =
    "unpack it on the way: zcat FILE (or xzcat, bzcat, zstdcat, unzip -p) | transit-cluster run -";
const DECODE: &str =
    "make it UTF-8 on the way: iconv -f UTF-16 -t UTF-8 FILE | transit-cluster run -";
const EXPORT: &str = "export it as CSV with a heading line";

/// How other kinds of files begin.
const MAGIC: [(&[u8], Refusal); 9] = [
    (b"\x1f\x8b", refusal("it is compressed (gzip)", UNPACK)),
    (
        b"\x28\xb5\x2f\xfd",
        refusal("it is compressed (zstd)", UNPACK),
    ),
    (b"\xfd7zXZ\0", refusal("it is compressed (xz)", UNPACK)),
    (b"BZh", refusal("it is compressed (bzip2)", UNPACK)),
    (
        b"PK\x03\x04",
        refusal("it is a zip archive, or a spreadsheet", UNPACK),
    ),
    (b"\xff\xfe", refusal("it is UTF-16", DECODE)),
    (b"\xfe\xff", refusal("it is UTF-16", DECODE)),
    (b"PAR1", refusal("it is Parquet", EXPORT)),
    (b"SQLite format 3", refusal("it is a database", EXPORT)),
];

/// What else than a table in text begins so.
#[must_use]
pub fn not_text(first_line: &[u8]) -> Option<Refusal> {
    let known = MAGIC
        .iter()
        .find(|(magic, _)| first_line.starts_with(magic));
    let binary = || {
        let refusal = refusal("it is no text: its first line holds NUL bytes", EXPORT);
        first_line.contains(&0).then_some(refusal)
    };
    known.map(|&(_, refusal)| refusal).or_else(binary)
}

/// What to do about a heading in which columns are missing.
#[must_use]
pub fn advice(heading: &ByteRecord) -> &'static str {
    let names: Vec<_> = heading.iter().map(String::from_utf8_lossy).collect();
    if let [only] = names.as_slice()
        && only
            .to_ascii_lowercase()
            .split_whitespace()
            .any(|word| word == "jobid")
    {
        return "let sacct separate its columns: sacct --parsable2 -o JobID,State,Submit,Start,End,Elapsed,NNodes,AllocTRES";
    }
    let data = |name: &str| {
        let digits = name.chars().filter(char::is_ascii_digit).count();
        digits * 2 > name.chars().count()
    };
    if names.iter().filter(|name| data(name.trim())).count() * 4 > names.len() {
        return "put a heading line with the columns' names first (sacct without --noheader)";
    }
    "rename the columns, or see 'transit-cluster run --help' for the tables that are understood"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_kinds_of_files_are_told_apart_from_tables() {
        for (bytes, expected) in [
            (&b"\x1f\x8b\x08\0\0"[..], "gzip"),
            (b"PK\x03\x04\x14\0", "zip archive"),
            (b"\xff\xfej\0o\0b\0", "UTF-16"),
            (b"\x89PNG\r\n\x1a\n\0\0", "no text"),
        ] {
            let refusal = not_text(bytes).unwrap();
            assert!(refusal.what.contains(expected), "{refusal:?}");
        }
        assert_eq!(not_text(b"\xef\xbb\xbfsubmit_s,run_s,gpus"), None);
    }

    #[test]
    fn a_heading_without_columns_gets_the_advice_that_fits() {
        let advice = |names: &[&str]| advice(&ByteRecord::from(names.to_vec()));
        assert!(advice(&["       JobID    State  Submit"]).contains("--parsable2"));
        let row = [
            "101",
            "train",
            "COMPLETED",
            "2026-03-20T06:02:43",
            "00:10:00",
        ];
        assert!(advice(&row).contains("heading line"));
        assert!(advice(&["job", "when", "cards"]).contains("rename"));
    }
}
