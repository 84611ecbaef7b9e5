//! `libtransit_record.so`: preloaded into a job, writes down what it does on the GPU. The hooks are
//! `transit-hook`'s, the recording is `transit-capture`'s; here the two are joined.

// The exports are what uses the rest, and tests have none (see `export_all!`).
#![cfg_attr(test, allow(dead_code))]

mod entry;
mod observer;
