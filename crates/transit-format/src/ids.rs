//! Newtypes shared by traces and plans, so that an allocation is never taken for an op, a byte
//! count or a time.

use serde::{Deserialize, Serialize};

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The position of the entry this id names in its table.
            #[must_use]
            pub fn index(self) -> usize {
                usize::try_from(self.0).unwrap_or(usize::MAX)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

newtype! {
    /// The n-th allocation the process made of memory TRANSIT tracks (0 is the first).
    AllocId(u32)
}
newtype! {
    /// A stream, in order of first use within the process.
    StreamId(u32)
}
newtype! {
    /// A device function (kernel), in order of first launch within the process.
    FunctionId(u32)
}
newtype! {
    /// Sequence number of an op within the process, over all streams (0 is the first).
    OpSeq(u64)
}
newtype! {
    /// The paper's kernel ordinal: the number of an op on its stream within one iteration.
    Ordinal(u32)
}
newtype! {
    /// Nanoseconds since the trace's start.
    Nanos(u64)
}
