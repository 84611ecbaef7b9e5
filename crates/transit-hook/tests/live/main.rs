//! The hooks over a driver that only remembers: what reaches the driver, what the observer is told,
//! in which order. One process, one shim: tests take turns.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failed assumption is a failed test"
)]

mod counting;
mod driver;
mod memory;
mod ops;
mod resolvers;
