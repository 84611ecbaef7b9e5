//! The planner as a library: a trace in, plans and pictures out. It needs no GPU, holds no unsafe
//! code and knows no bytes of its own (files are `transit-format`'s).
#![forbid(unsafe_code)]

pub mod assign;
pub mod cmd;
pub mod error;
pub mod iterations;
pub mod num;
pub mod policy;
pub mod ranges;
pub mod ranks;
pub mod render;
pub mod residency;
pub mod space;
pub mod synthetic;
pub mod timeline;
pub mod touch;
pub mod unrolled;
