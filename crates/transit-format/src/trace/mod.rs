//! Trace files: a chain of independent zstd frames, one per block.

pub mod model;
