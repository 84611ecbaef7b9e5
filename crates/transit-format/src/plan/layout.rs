//! What a plan file is made of: header, section table, and the sections' names and record sizes.
//! Every record is little-endian and free of padding; sizes and offsets are asserted at compile
//! time, so that an accidental change does not build.
//!
//! ```text
//! header (64 bytes)              section table entry (32 bytes)
//!  0  8  magic "TRNSPLAN"         0  4  kind (see `Kind`)
//!  8  4  format version           4  4  bytes per record
//! 12  4  number of sections       8  8  offset in the file, a multiple of 8
//! 16  8  bytes of the file       16  8  number of records
//! 24  4  CRC-32 of header        24  4  CRC-32 of the records
//!        (this field 0) + table  28  4  0
//! 28 36  0
//! ```
//!
//! Header, section table, then sections in the order of their kinds, each padded to 8 bytes with
//! zeros. Magic and version keep their places in every later version.

use zerocopy::little_endian::{U32, U64};

use super::section::allocs::AllocRecord;
use super::section::names::NameRecord;
use super::section::ops::OpRecord;
use super::section::placements::PlacementRecord;
use super::section::pointers::PointerRecord;
use super::section::ranges::RangeRecord;
use super::section::record;
use super::section::shape::ShapeRecord;
use super::section::steps::StepRecord;
use super::section::streams::StreamRecord;

/// First bytes of a plan.
pub(super) const MAGIC: [u8; 8] = *b"TRNSPLAN";
/// Version written, and the newest that can be read.
pub const VERSION: u32 = 1;
/// Alignment of sections in the file.
pub(super) const ALIGN: usize = 8;

record! {
    /// The file's header.
    pub(super) FileHeader, 64 {
        0 magic: [u8; 8],
        8 version: U32,
        12 sections: U32,
        16 file_bytes: U64,
        24 crc: U32,
        28 reserved: [U32; 9],
    }
}

record! {
    /// One entry of the section table.
    pub(super) SectionEntry, 32 {
        0 kind: U32,
        4 record_bytes: U32,
        8 offset: U64,
        16 records: U64,
        24 crc: U32,
        28 reserved: U32,
    }
}

/// Sections, by their number in the file. All are always there, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// JSON text of `Meta`.
    Meta = 1,
    /// One shape record.
    Shape = 2,
    /// Name records.
    Names = 3,
    /// Bytes of the names, UTF-8.
    NameBytes = 4,
    /// Allocation records.
    Allocs = 5,
    /// Stream records.
    Streams = 6,
    /// Op records of all streams.
    Ops = 7,
    /// Pointer records of all ops.
    Pointers = 8,
    /// Step records of all ops.
    Steps = 9,
    /// Range records of all steps.
    StepRanges = 10,
    /// Placement records.
    Placements = 11,
    /// Range records: what is on the device when a steady iteration starts.
    StartResident = 12,
}

/// Number of sections.
pub(super) const SECTIONS: usize = 12;

impl Kind {
    /// All sections, in file order.
    pub(super) const ALL: [Self; SECTIONS] = [
        Self::Meta,
        Self::Shape,
        Self::Names,
        Self::NameBytes,
        Self::Allocs,
        Self::Streams,
        Self::Ops,
        Self::Pointers,
        Self::Steps,
        Self::StepRanges,
        Self::Placements,
        Self::StartResident,
    ];

    /// The section's name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Shape => "shape",
            Self::Names => "names",
            Self::NameBytes => "name bytes",
            Self::Allocs => "allocations",
            Self::Streams => "streams",
            Self::Ops => "ops",
            Self::Pointers => "pointers",
            Self::Steps => "steps",
            Self::StepRanges => "step ranges",
            Self::Placements => "placements",
            Self::StartResident => "start resident",
        }
    }

    /// Bytes of one record.
    pub(super) fn record_bytes(self) -> usize {
        match self {
            Self::Meta | Self::NameBytes => 1,
            Self::Shape => size_of::<ShapeRecord>(),
            Self::Names => size_of::<NameRecord>(),
            Self::Allocs => size_of::<AllocRecord>(),
            Self::Streams => size_of::<StreamRecord>(),
            Self::Ops => size_of::<OpRecord>(),
            Self::Pointers => size_of::<PointerRecord>(),
            Self::Steps => size_of::<StepRecord>(),
            Self::StepRanges | Self::StartResident => size_of::<RangeRecord>(),
            Self::Placements => size_of::<PlacementRecord>(),
        }
    }
}

/// Bytes in front of the first section.
pub(super) const PREFIX_BYTES: usize =
    size_of::<FileHeader>() + SECTIONS * size_of::<SectionEntry>();

/// The next multiple of [`ALIGN`].
pub(super) fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes this changes the format: raise `VERSION`, and keep reading the old one.
    #[test]
    fn the_layout_is_that_of_version_1() {
        let sections = Kind::ALL.map(|kind| (kind as u32, kind.name(), kind.record_bytes()));
        let wanted = [
            (1, "meta", 1),
            (2, "shape", 48),
            (3, "names", 16),
            (4, "name bytes", 1),
            (5, "allocations", 24),
            (6, "streams", 24),
            (7, "ops", 40),
            (8, "pointers", 16),
            (9, "steps", 24),
            (10, "step ranges", 24),
            (11, "placements", 32),
            (12, "start resident", 24),
        ];
        assert_eq!(sections, wanted);
        for (number, name, bytes) in sections {
            let row = format!("| {number} | {name} | {bytes} |");
            assert!(
                include_str!("../../FORMAT.md").contains(&row),
                "FORMAT.md lacks {row}"
            );
        }
        assert_eq!((VERSION, PREFIX_BYTES, &MAGIC), (1, 448, b"TRNSPLAN"));
    }
}
