//! Where things lie in a plan file: header, section table, and the fixed records of each section.
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
//! Header, section table, then sections in the order of their kinds, each padded to 8 bytes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a plan.
pub const MAGIC: [u8; 8] = *b"TRNSPLAN";
/// Version written, and the newest that can be read.
pub const VERSION: u32 = 1;
/// Alignment of sections in the file.
pub const ALIGN: usize = 8;

/// Defines records and asserts their size.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable,
            KnownLayout, Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub(super) $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() == 1);
        const _: () = assert!($size % 8 == 0);
    )*};
}

records! {
    /// The file's header.
    FileHeader, 64 {
        magic: [u8; 8],
        version: U32,
        sections: U32,
        file_bytes: U64,
        crc: U32,
        reserved: [U32; 9],
    }
    /// One entry of the section table.
    SectionEntry, 32 {
        kind: U32,
        record_bytes: U32,
        offset: U64,
        records: U64,
        crc: U32,
        reserved: U32,
    }
    /// Numbers the replayer needs first.
    ShapeRecord, 48 {
        capacity_bytes: U64,
        card_bytes: U64,
        min_convert_bytes: U64,
        main_stream: U32,
        anchor_ops: U32,
        midpoint: U32,
        /// 1: advise `SetAccessedBy` on all at the midpoint.
        flags: U32,
        reserved: U64,
    }
    /// A function name: a stretch of the name bytes, and their FNV-1a hash.
    NameRecord, 16 {
        hash: U64,
        first_byte: U32,
        bytes: U32,
    }
    /// An allocation.
    AllocRecord, 24 {
        bytes: U64,
        ordinal: U32,
        turn: U32,
        device: U32,
        reserved: U32,
    }
    /// A stream and its ops: a stretch of the op records.
    StreamRecord, 24 {
        kind: U32,
        device: U32,
        turn: U32,
        first_op: U32,
        ops: U32,
        reserved: U32,
    }
    /// An op: its pointers and steps are stretches of theirs.
    OpRecord, 40 {
        name_hash: U64,
        shape: U32,
        name: U32,
        kind: U32,
        pointers: U32,
        first_pointer: U32,
        first_step: U32,
        steps: U32,
        reserved: U32,
    }
    /// A pointer of an op.
    PointerRecord, 16 {
        offset: U64,
        alloc: U32,
        reserved: U32,
    }
    /// A step: its ranges are a stretch of the step ranges.
    StepRecord, 24 {
        action: U32,
        stream: U32,
        ordinal: U32,
        first_range: U32,
        ranges: U32,
        reserved: U32,
    }
    /// A stretch of an allocation.
    RangeRecord, 24 {
        offset: U64,
        bytes: U64,
        alloc: U32,
        reserved: U32,
    }
    /// A placement.
    PlacementRecord, 32 {
        range: RangeRecord,
        action: U32,
        reserved: U32,
    }
}

/// Sections, by their number in the file. All are always there, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// JSON text of [`super::model::Meta`].
    Meta = 1,
    /// One [`ShapeRecord`].
    Shape = 2,
    /// [`NameRecord`]s.
    Names = 3,
    /// Bytes of the names, UTF-8.
    NameBytes = 4,
    /// [`AllocRecord`]s.
    Allocs = 5,
    /// [`StreamRecord`]s.
    Streams = 6,
    /// [`OpRecord`]s of all streams.
    Ops = 7,
    /// [`PointerRecord`]s of all ops.
    Pointers = 8,
    /// [`StepRecord`]s of all ops.
    Steps = 9,
    /// [`RangeRecord`]s of all steps.
    StepRanges = 10,
    /// [`PlacementRecord`]s.
    Placements = 11,
    /// [`RangeRecord`]s on the device when a steady iteration starts.
    StartResident = 12,
}

/// Number of sections.
pub const SECTIONS: usize = 12;

impl Kind {
    /// All sections, in file order.
    pub const ALL: [Self; SECTIONS] = [
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
    #[must_use]
    pub fn name(self) -> &'static str {
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
    #[must_use]
    pub fn record_bytes(self) -> usize {
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
