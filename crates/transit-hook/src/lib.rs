//! Between a process and libcuda.

pub mod driver;
pub mod observer;
