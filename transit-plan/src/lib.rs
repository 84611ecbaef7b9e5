//! The planner as a library: a trace in, plans and pictures out. It needs no GPU, holds no unsafe
//! code and knows no bytes of its own (files are `transit-format`'s).
#![forbid(unsafe_code)]

pub mod cmd;
pub mod error;
pub mod ranks;
pub mod render;
