//! Header and section table: written last, checked first. After [`decode`], every section lies
//! within the file and matches its checksum.

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    ALIGN, FileHeader, Kind, MAGIC, PREFIX_BYTES, SECTIONS, SectionEntry, VERSION, aligned,
};
use super::view::Span;
use crate::error::Error;

/// Puts header and table in front of `sections` (in the order of their kinds).
pub(super) fn encode(sections: &[Vec<u8>; SECTIONS]) -> Vec<u8> {
    let mut offset = PREFIX_BYTES;
    let mut table = [SectionEntry::default(); SECTIONS];
    for ((entry, kind), bytes) in table.iter_mut().zip(Kind::ALL).zip(sections) {
        let records = bytes.len() / kind.record_bytes();
        *entry = SectionEntry {
            kind: (kind as u32).into(),
            record_bytes: u32::try_from(kind.record_bytes())
                .unwrap_or(u32::MAX)
                .into(),
            offset: (offset as u64).into(),
            records: (records as u64).into(),
            crc: crc32fast::hash(bytes).into(),
            reserved: 0.into(),
        };
        offset = aligned(offset + bytes.len());
    }
    let mut header = FileHeader {
        magic: MAGIC,
        version: VERSION.into(),
        sections: u32::try_from(SECTIONS).unwrap_or(u32::MAX).into(),
        file_bytes: (offset as u64).into(),
        ..FileHeader::default()
    };
    header.crc = checksum(&header, table.as_bytes()).into();
    let mut file = Vec::with_capacity(offset);
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(table.as_bytes());
    for bytes in sections {
        file.extend_from_slice(bytes);
        file.resize(aligned(file.len()), 0);
    }
    file
}

fn checksum(header: &FileHeader, table: &[u8]) -> u32 {
    let bare = FileHeader {
        crc: 0.into(),
        ..*header
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bare.as_bytes());
    hasher.update(table);
    hasher.finalize()
}

/// Checks header and table and returns where sections lie.
pub(super) fn decode(file: &[u8], name: &str) -> Result<[Span; SECTIONS], Error> {
    let header = check_header(file, name)?;
    let damaged = |section: &'static str, offset: usize, what: String| Error::Damaged {
        file: name.to_owned(),
        section,
        offset: offset as u64,
        what,
    };
    let table_at = size_of::<FileHeader>();
    let table_bytes = file.get(table_at..PREFIX_BYTES).unwrap_or_default();
    if checksum(&header, table_bytes) != header.crc.get() {
        return Err(damaged(
            "header",
            0,
            "CRC-32 of header and table does not match".to_owned(),
        ));
    }
    let Ok(table) = <[SectionEntry; SECTIONS]>::read_from_bytes(table_bytes) else {
        return Err(damaged("section table", table_at, "incomplete".to_owned()));
    };
    let mut spans = [Span::default(); SECTIONS];
    let mut end = PREFIX_BYTES;
    for ((span, kind), entry) in spans.iter_mut().zip(Kind::ALL).zip(&table) {
        let shown = usize::try_from(entry.offset.get()).unwrap_or(usize::MAX);
        let flaw = |what: String| Err(damaged(kind.name(), shown, what));
        if entry.kind.get() != kind as u32 {
            return flaw(format!(
                "section {} where {} is due",
                entry.kind, kind as u32
            ));
        }
        if entry.record_bytes.get() as usize != kind.record_bytes() {
            return flaw(format!("records of {} bytes", entry.record_bytes));
        }
        let bytes = usize::try_from(entry.records.get()).ok();
        let bytes = bytes.and_then(|records| records.checked_mul(kind.record_bytes()));
        let Some(bytes) = bytes.filter(|_| shown.is_multiple_of(ALIGN) && shown == end) else {
            return flaw(format!(
                "{} records where the file has byte {end}",
                entry.records
            ));
        };
        let content = file.get(shown..).and_then(|rest| rest.get(..bytes));
        let Some(content) = content else {
            return flaw(format!("{bytes} bytes in a file of {}", file.len()));
        };
        if crc32fast::hash(content) != entry.crc.get() {
            return flaw("CRC-32 does not match".to_owned());
        }
        let padding = file
            .get(shown + bytes..aligned(shown + bytes))
            .unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            return flaw("the bytes after it are not zero".to_owned());
        }
        *span = Span {
            offset: shown,
            bytes,
        };
        end = aligned(shown + bytes);
    }
    if end != file.len() {
        return Err(damaged(
            "section table",
            table_at,
            format!("sections end at byte {end}"),
        ));
    }
    Ok(spans)
}

fn check_header(file: &[u8], name: &str) -> Result<FileHeader, Error> {
    let owned = || name.to_owned();
    if !file.starts_with(MAGIC.get(..file.len()).unwrap_or(&MAGIC)) {
        let what = "it does not begin with TRNSPLAN".to_owned();
        return Err(Error::NotOurs {
            file: owned(),
            section: "plan",
            what,
        });
    }
    let truncated = |section, offset, what| Error::Truncated {
        file: owned(),
        section,
        offset,
        what,
    };
    let Ok((header, _)) = FileHeader::read_from_prefix(file) else {
        let what = format!(
            "{} bytes, a header has {}",
            file.len(),
            size_of::<FileHeader>()
        );
        return Err(truncated("header", 0, what));
    };
    if header.version.get() > VERSION {
        let what = format!(
            "plan format {}, this build reads up to {VERSION}",
            header.version
        );
        return Err(Error::Newer {
            file: owned(),
            section: "header",
            what,
        });
    }
    let damaged = |what| Error::Damaged {
        file: owned(),
        section: "header",
        offset: 0,
        what,
    };
    if header.version.get() != VERSION {
        return Err(damaged("format version 0 does not exist".to_owned()));
    }
    if header.sections.get() as usize != SECTIONS {
        return Err(damaged(format!(
            "{} sections, not {SECTIONS}",
            header.sections
        )));
    }
    if header.file_bytes.get() > file.len() as u64 {
        let what = format!("{} bytes of {}", file.len(), header.file_bytes);
        return Err(truncated("file", file.len() as u64, what));
    }
    if header.file_bytes.get() != file.len() as u64 {
        return Err(damaged(format!(
            "{} bytes, not {}",
            file.len(),
            header.file_bytes
        )));
    }
    Ok(header)
}
