//! A deterministic discrete-event simulator of a GPU cluster of racks, for one question: what happens
//! to queues, rack traffic and throughput if multi-node jobs run on fewer nodes (the paper's section
//! 4.3). It stands alone: no other part of TRANSIT is needed to use it.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod cmd;

pub mod engine;
pub mod error;
pub mod failure;
pub mod generate;
pub mod input;
pub mod jobs_csv;
pub mod metrics;
pub mod output;
pub mod paper;
pub mod progress;
pub mod queue;
pub mod render;
pub mod scenario;
pub mod simulate;
pub mod task;
pub mod trace;
pub mod units;
