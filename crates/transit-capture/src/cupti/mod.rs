//! The CUPTI session: which records are asked for, how they are fetched, when it ends.
//!
//! `cuptiFinalize` is never called (it races with CUPTI's own threads); what is not wanted any
//! more is disabled. The activity API is process-wide, so there is one session.

mod check;
mod failure;
mod library;
mod pool;
mod record;
mod share;
mod told;

use std::ffi::c_void;

pub use check::{CuptiCheck, check_cupti};
pub(crate) use failure::Failure;
pub(crate) use record::{Counter, Paging, Record, Work};
pub(crate) use share::handed_over;
pub use told::follow_calls;

use failure::CONFIGURE;
use library::Library;
use pool::{POOL, on_complete, on_request};
use record::{KERNEL, MEMCPY, MEMSET, UNIFIED_MEMORY, UmConfig};

/// First API version whose records carry graph ids.
const OLDEST: u32 = 14;
const WORK: [u32; 3] = [KERNEL, MEMSET, MEMCPY];
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: hand over buffers with unfinished records too.
const FORCED: u32 = 1;

/// An open CUPTI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    library: Library,
    version: u32,
}

/// A call that may be missing, with the name it has in a [`Failure`].
macro_rules! call {
    ($entry:expr, $name:literal, $doing:expr, $($arg:expr),*) => {
        match $entry {
            // SAFETY: CUPTI's own entry point with the argument types of its header; pointers
            // are to locals or statics that outlive the call.
            Some(entry) => match unsafe { entry($($arg),*) } {
                0 => Ok(()),
                result => Err(Failure::Refused($doing, result)),
            },
            None => Err(Failure::Missing($name)),
        }
    };
}

impl Session {
    /// Finds CUPTI and asks its version; enables nothing.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::of(Library::find(&[])?.0)
    }

    fn of(library: Library) -> Result<Self, Failure> {
        let mut version = 0;
        call!(
            library.get_version,
            "cuptiGetVersion",
            "asking its version",
            &raw mut version
        )?;
        if version < OLDEST {
            return Err(Failure::TooOld(version));
        }
        // The trace's clock: without it records could not be told apart in time.
        library
            .get_timestamp
            .ok_or(Failure::Missing("cuptiGetTimestamp"))?;
        Ok(Self { library, version })
    }

    /// `CUPTI_API_VERSION` of the library found.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Starts recording. With `faults`, fault and remote-map records too. Answers why transfers
    /// are missing, if they are; kernel times then still come.
    pub(crate) fn start(&self, faults: bool) -> Result<Option<Failure>, Failure> {
        share::alone(&self.library)?;
        POOL.fill();
        let library = self.library;
        let register = library.register;
        call!(
            register,
            "cuptiActivityRegisterCallbacks",
            "handing it buffers",
            on_request,
            on_complete
        )?;
        for kind in WORK {
            self.enable(kind)?;
        }
        share::started(*self);
        Ok(self.start_paging(faults).err())
    }

    /// Asks for transfers, and with `faults` for faults and remote maps. What some CUPTI or device
    /// may not know comes last and is done without if it is refused: a single GPU has no peer to
    /// move data to.
    fn start_paging(&self, faults: bool) -> Result<(), Failure> {
        use Counter::{CpuFault, DtoD, DtoH, GpuFault, HtoD, RemoteMap};
        const TRANSFERS: usize = 2;
        const FAULTS: usize = 3;
        let with_faults = [HtoD, DtoH, GpuFault, RemoteMap, CpuFault, DtoD];
        let without = [HtoD, DtoH, DtoD];
        let (wanted, least) = if faults {
            (&with_faults[..], FAULTS)
        } else {
            (&without[..], TRANSFERS)
        };
        let mut result = Ok(());
        for count in (least..=wanted.len()).rev() {
            result = self.configure(wanted.get(..count).unwrap_or(wanted));
            if result.is_ok() {
                break;
            }
        }
        result?;
        self.enable(UNIFIED_MEMORY)
    }

    /// All counters go into one call: whether a second call adds to the first is not documented.
    fn configure(&self, counters: &[Counter]) -> Result<(), Failure> {
        let mut configs: Vec<UmConfig> = counters
            .iter()
            .map(|counter| UmConfig {
                scope: 2,
                kind: counter.code(),
                device: 0,
                enable: 1,
            })
            .collect();
        let count = u32::try_from(configs.len()).unwrap_or(0);
        let entry = self.library.configure_um;
        let name = "cuptiActivityConfigureUnifiedMemoryCounter";
        let entry = entry.ok_or(Failure::Missing(name))?;
        // SAFETY: CUPTI's own entry point; the array has `count` entries and outlives the call.
        match unsafe { entry(configs.as_mut_ptr(), count) } {
            0 => Ok(()),
            result => Err(Failure::Refused(CONFIGURE, result)),
        }
    }

    fn enable(&self, kind: u32) -> Result<(), Failure> {
        call!(
            self.library.enable,
            "cuptiActivityEnable",
            "enabling records",
            kind
        )
    }

    /// Stops recording; the process runs on as if CUPTI had never been started.
    pub(crate) fn stop(&self) {
        if share::handed_over() {
            // What is enabled now is somebody else's.
            return;
        }
        self.disable_all();
    }

    fn disable_all(&self) {
        WORK.into_iter()
            .chain([UNIFIED_MEMORY])
            .for_each(|kind| self.disable(kind));
    }

    fn disable(&self, kind: u32) {
        let _ = call!(
            self.library.disable,
            "cuptiActivityDisable",
            "disabling",
            kind
        );
    }

    /// Takes records of kernels, sets and copies from here on, or none. Once [started](Self::start);
    /// from one thread.
    pub(crate) fn take_work(&self, on: bool) {
        share::unless_handed_over(|| {
            for kind in WORK {
                if on {
                    let _ = self.enable(kind);
                } else {
                    self.disable(kind);
                }
            }
        });
    }

    /// Makes CUPTI hand over what it has: finished buffers, or with `forced` all of them. Blocks
    /// for 10 to 20 ms on a real device.
    pub(crate) fn flush(&self, forced: bool) {
        if share::handed_over() {
            return;
        }
        self.hand_over_buffers(forced);
    }

    fn hand_over_buffers(&self, forced: bool) {
        let flag = if forced { FORCED } else { 0 };
        let _ = call!(
            self.library.flush,
            "cuptiActivityFlushAll",
            "flushing",
            flag
        );
    }

    /// CUPTI's time, in its nanoseconds.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut now = 0;
        call!(
            self.library.get_timestamp,
            "cuptiGetTimestamp",
            "its time",
            &raw mut now
        )
        .ok()?;
        Some(now)
    }

    /// CUPTI's numbers for a context and a stream of it (0, 1 and 2 are the default streams).
    pub(crate) fn stream(&self, context: usize, stream: usize) -> Option<(u32, u32)> {
        const PER_THREAD: usize = 2;
        let (mut context_id, mut stream_id) = (0, 0);
        let context = context as *mut c_void;
        let per_thread = u8::from(stream == PER_THREAD);
        // The default streams are named by null and the flag.
        let handle = if stream <= PER_THREAD { 0 } else { stream } as *mut c_void;
        call!(
            self.library.context_id,
            "cuptiGetContextId",
            "ids",
            context,
            &raw mut context_id
        )
        .ok()?;
        call!(
            self.library.stream_id,
            "cuptiGetStreamIdEx",
            "ids",
            context,
            handle,
            per_thread,
            &raw mut stream_id
        )
        .ok()?;
        Some((context_id, stream_id))
    }

    /// Hands every record of the completed buffers to `sink`. Several threads may call it; each
    /// buffer goes to one of them.
    pub(crate) fn drain(&self, sink: &mut dyn FnMut(Record)) {
        let Some(next) = self.library.next_record else {
            return;
        };
        while let Some(full) = POOL.take() {
            let mut record = std::ptr::null_mut();
            loop {
                // SAFETY: the buffer is CUPTI's own, handed back with that many valid bytes, and
                // `record` is null or the record before.
                let result = unsafe { next(full.buffer, full.valid_bytes, &raw mut record) };
                if result != 0 || record.is_null() {
                    break;
                }
                // SAFETY: CUPTI has just said that a record lies there.
                sink(unsafe { record::read(record) });
            }
            POOL.give_back(full);
        }
    }

    /// Records CUPTI dropped since this was last asked.
    pub(crate) fn dropped(&self) -> u64 {
        let mut dropped = 0;
        let nowhere = std::ptr::null_mut();
        let asked = call!(
            self.library.dropped,
            "cuptiActivityGetNumDroppedRecords",
            "asking for drops",
            nowhere,
            0,
            &raw mut dropped
        );
        asked.map_or(0, |()| dropped as u64)
    }
}
