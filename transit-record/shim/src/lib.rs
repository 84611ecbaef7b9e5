//! `libtransit_record.so`: preloaded into a job, writes down what it does on the GPU. The hooks are
//! `transit-hook`'s, the recording is `transit-capture`'s; here the two are joined.

mod entry;
mod observer;
