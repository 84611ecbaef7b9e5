//! Between a process and libcuda. The crate owns everything that has to be right before a shim can
//! record or replay: resolution, wrappers, the ledger of allocations, conversion to managed memory
//! and its ceiling, op numbering, function names, stream identity, capture state, the model of the
//! emulated card. It exports nothing itself: a shim does, with [`export_all!`].
//!
//! A shim is
//! ```ignore
//! fn set_up() { transit_hook::install(&OBSERVER, Settings::from_env("transit-record")); }
//! transit_hook::export_all!(set_up);
//! ```
//! `set_up` runs once, at the first look-up of a driver function or the first `cuInit`, whichever
//! comes first; it must not start threads, open files, print or call the driver. After the first
//! successful `cuInit` the observer's `started` is called.

pub mod birth;
mod callers;
pub mod card;
mod ceiling;
mod contexts;
pub mod coverage;
#[doc(hidden)]
pub mod dlsym_text;
pub mod driver;
mod elf;
mod exclusions;
pub mod exports;
mod functions;
mod gpu_lock;
mod graphs;
mod guard;
mod handles;
mod held;
mod hooks;
pub mod host;
pub mod injected;
pub mod kept;
pub mod ledger;
pub mod log;
pub mod neighbours;
pub mod observer;
mod ops;
mod own_streams;
mod proc_address;
#[doc(hidden)]
pub mod resolve;
mod scan;
pub mod settings;
pub mod spared;
pub mod state;
mod streams;
mod tensor_maps;
mod thread;
mod twins;
#[doc(hidden)]
pub mod wrappers;

pub use callers::excluded_libraries;
pub use card::{Chunk, EmulatedCard};
pub use ceiling::oversubscribed;
pub use driver::Driver;
pub use exports::EXPORTS;
pub use observer::{
    Allocation, DeviceRecords, FunctionInfo, Observer, OpCall, PointerArg, StreamInfo,
};
pub use ops::{now_ns, passed_transfers};
pub use own_streams::OwnStreams;
pub use resolve::real_symbol;
pub use settings::Settings;
pub use state::{as_our_own, close_before_what_is_loaded, disable, driver, install, ops_issued};
pub use streams::any_capture;
