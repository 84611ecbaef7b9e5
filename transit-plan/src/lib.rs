//! The planner as a library: a trace in, plans and pictures out. It needs no GPU, holds no unsafe
//! code and knows no bytes of its own (files are `transit-format`'s).
#![forbid(unsafe_code)]

pub mod alloc_table;
pub mod assign;
pub mod build;
pub mod cmd;
pub mod compose;
pub mod cost;
pub mod error;
pub mod iterations;
pub mod num;
pub mod output;
pub mod policy;
pub mod profile;
pub mod progress;
pub mod ranges;
pub mod ranks;
pub mod render;
pub mod residency;
pub mod space;
pub mod summary;
pub mod synthetic;
pub mod timeline;
pub mod touch;
pub mod unrolled;
