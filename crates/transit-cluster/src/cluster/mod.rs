//! The cluster: racks of nodes of GPUs, what a job asks of it, what is free, and where a job goes.

pub mod demand;
pub mod free;
pub mod place;
pub mod shape;

pub use demand::{Demand, LastNode, SubNode};
pub use free::{Free, Part};
pub use place::Placement;
pub use shape::Shape;
