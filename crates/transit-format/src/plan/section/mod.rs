//! The sections of a plan: one module per kind of record, with its byte table, what it means, what
//! is checked of it when a plan is opened, and its tests. Accessors are what the launch path
//! reads: they neither allocate nor fail, because everything was checked before.

pub(super) mod allocs;
mod codes;
pub(super) mod names;
pub(super) mod ops;
pub(super) mod placements;
pub(super) mod pointers;
pub(super) mod ranges;
pub(super) mod shape;
pub(super) mod steps;
pub(super) mod streams;

#[cfg(test)]
mod testing;

use zerocopy::{Immutable, IntoBytes};

use crate::error::Error;

/// Defines a record: fixed size, no padding, any alignment. Each field names its offset, which is
/// asserted, so that the table and the struct cannot drift apart.
macro_rules! record {
    (
        $(#[$doc:meta])*
        $visible:vis $name:ident, $size:literal {
            $($(#[$field_doc:meta])* $at:literal $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        $visible struct $name {
            $($(#[$field_doc])* pub(in crate::plan) $field: $type),*
        }

        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() == 1);
        const _: () = assert!($size % crate::plan::layout::ALIGN == 0);
        $(const _: () = assert!(core::mem::offset_of!($name, $field) == $at);)*
    };
}
pub(super) use record;

/// Why a record is refused.
#[derive(Debug)]
pub(super) enum Fault {
    /// It contradicts a bound or another record.
    Wrong(String),
    /// It holds a code that this build does not know.
    Unknown(String),
}

pub(super) fn wrong<T>(what: String) -> Result<T, Fault> {
    Err(Fault::Wrong(what))
}

pub(super) fn unknown<T>(what: &str, code: u32) -> Result<T, Fault> {
    Err(Fault::Unknown(format!(
        "{what} {code} is unknown to this build"
    )))
}

/// Bytes of a section.
pub(super) fn bytes_of<T: IntoBytes + Immutable>(records: &[T]) -> Vec<u8> {
    records.as_bytes().to_vec()
}

/// A table index or length as stored: plans have fewer than 2^32 entries of any kind.
pub(super) fn small(section: &'static str, value: usize) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Invalid {
        section,
        what: format!("{value} entries, over 32 bits"),
    })
}

/// Divides a table among the records of another: each takes the entries after those of the record
/// before, and all are taken in the end.
pub(super) struct Division {
    due: usize,
    have: usize,
    what: &'static str,
}

impl Division {
    /// Begins to divide a table of `have` entries called `what`.
    pub(super) fn of(have: usize, what: &'static str) -> Self {
        Self { due: 0, have, what }
    }

    /// The next record's stretch.
    pub(super) fn take(&mut self, (first, count): (usize, usize)) -> Result<(), Fault> {
        let Self { due, have, what } = *self;
        if first != due || count > have - due {
            return wrong(format!(
                "{what} {first} + {count} of {have}, where {due} is due"
            ));
        }
        self.due += count;
        Ok(())
    }

    /// Fails if entries are left; also says how many were taken.
    pub(super) fn finish(&self) -> Result<(), (usize, Fault)> {
        if self.due == self.have {
            return Ok(());
        }
        let what = format!(
            "{} of {} {} belong to nothing",
            self.have - self.due,
            self.have,
            self.what
        );
        Err((self.due, Fault::Wrong(what)))
    }
}
