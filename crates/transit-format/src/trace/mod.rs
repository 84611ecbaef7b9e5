//! Trace files: a chain of independent zstd frames, one per block, that any zstd tool can check
//! and unpack. `FORMAT.md` beside this crate describes them to the byte.
//!
//! A [`Writer`] hands each block to its sink as one whole frame; [`Trace::open`] decodes blocks in
//! parallel and joins them. A trace whose writer was killed reads up to its last whole block
//! ([`End::Cut`]); a block damaged in the middle is an error of `open`, and
//! [`Trace::open_lenient`] keeps every other block.

pub mod check;
pub mod model;

#[cfg(feature = "trace")]
mod block;
#[cfg(feature = "trace")]
mod coding;
#[cfg(feature = "trace")]
mod column;
#[cfg(feature = "trace")]
mod reader;
#[cfg(feature = "trace")]
mod section;
#[cfg(feature = "trace")]
mod stitch;
#[cfg(feature = "trace")]
mod whole;
#[cfg(feature = "trace")]
mod writer;

#[cfg(feature = "trace")]
pub use {
    block::VERSION,
    reader::{Damage, Salvage},
    whole::{End, Trace},
    writer::{MAX_CALLER_BYTES, MAX_TEXT_BYTES, Writer},
};
