//! The CUPTI session: which records are asked for, how they are fetched, when it ends.
//!
//! `cuptiFinalize` is never called (it races with CUPTI's own threads); what is not wanted any
//! more is disabled. The activity API is process-wide, so there is one session.

mod failure;
mod library;
mod pool;
mod record;

use std::ffi::c_void;

pub(crate) use failure::Failure;
pub(crate) use record::{Counter, Paging, Record, Work};

use failure::CONFIGURE;
use library::Library;
use pool::{POOL, on_complete, on_request};
use record::{KERNEL, MEMCPY, MEMSET, UNIFIED_MEMORY, UmConfig};

/// First API version whose records carry graph ids.
const OLDEST: u32 = 14;
const KINDS: [u32; 4] = [KERNEL, MEMSET, MEMCPY, UNIFIED_MEMORY];
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
        let library = Library::find()?;
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
        Ok(Self { library, version })
    }

    /// `CUPTI_API_VERSION` of the library found.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Starts recording. With `faults`, fault and remote-map records too. Answers why transfers
    /// are missing, if they are; kernel times then still come.
    pub(crate) fn start(&self, faults: bool) -> Result<Option<Failure>, Failure> {
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
        for kind in [KERNEL, MEMSET, MEMCPY] {
            self.enable(kind)?;
        }
        Ok(self.start_paging(faults).err())
    }

    fn start_paging(&self, faults: bool) -> Result<(), Failure> {
        self.configure(Counter::HtoD)?;
        self.configure(Counter::DtoH)?;
        // A single GPU has no peer to move data to; some versions refuse the kind then.
        let _ = self.configure(Counter::DtoD);
        if faults {
            self.configure(Counter::GpuFault)?;
            let _ = self.configure(Counter::RemoteMap);
            let _ = self.configure(Counter::CpuFault);
        }
        self.enable(UNIFIED_MEMORY)
    }

    fn configure(&self, counter: Counter) -> Result<(), Failure> {
        let mut config = UmConfig {
            scope: 2,
            kind: counter.code(),
            device: 0,
            enable: 1,
        };
        let name = "cuptiActivityConfigureUnifiedMemoryCounter";
        match self.library.configure_um {
            // SAFETY: CUPTI's own entry point; `config` is one entry and outlives the call.
            Some(entry) => match unsafe { entry(&raw mut config, 1) } {
                0 => Ok(()),
                result => Err(Failure::Refused(CONFIGURE, result)),
            },
            None => Err(Failure::Missing(name)),
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
        for kind in KINDS {
            let _ = call!(
                self.library.disable,
                "cuptiActivityDisable",
                "disabling",
                kind
            );
        }
    }

    /// Makes CUPTI hand over what it has: finished buffers, or with `forced` all of them. Blocks
    /// for 10 to 20 ms on a real device.
    pub(crate) fn flush(&self, forced: bool) {
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
        // The legacy stream has two handles, null and 1.
        let handle = if stream == 1 { 0 } else { stream } as *mut c_void;
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
