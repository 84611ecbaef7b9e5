//! TRANSIT's files. This is the only crate that knows bytes: a trace is what the recorder saw, a
//! plan is what the replayer does. `FORMAT.md` beside this crate describes both to the byte.
//!
//! ```
//! use transit_format::trace::model::{Event, Function, Header, Op, Stream};
//! use transit_format::trace::{End, Trace, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), &Header::default())?;
//! writer.push(Event::Stream(Stream::default()))?;
//! writer.push(Event::Function(Function { name: "_Z4stepPf".into(), params: 1 }))?;
//! writer.push(Event::Op(Op::default(), Vec::new()))?;
//! let bytes = writer.finish()?;
//!
//! let trace = Trace::read(&bytes, "memory")?;
//! assert_eq!((trace.ops.len(), trace.end), (1, End::Clean));
//!
//! let killed = Trace::read(&bytes[..bytes.len() - 1], "memory")?;
//! assert_eq!(killed.ops.len(), 1);
//! assert!(matches!(killed.end, End::Cut { .. }));
//! # Ok::<(), transit_format::Error>(())
//! ```

mod error;
#[cfg(any(feature = "trace", feature = "plan"))]
mod file;
pub mod ids;
#[cfg(feature = "plan")]
pub mod plan;
pub mod trace;

pub use error::Error;
