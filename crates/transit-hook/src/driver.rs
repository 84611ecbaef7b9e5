//! The real driver's entry points that TRANSIT itself calls, found once after `cuInit`, never
//! through our own `dlsym`. Anything the driver lacks is `None` and answers [`NOT_SUPPORTED`], so
//! an old driver costs a feature and never the job.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::resolve;

/// `CUDA_SUCCESS`.
pub const SUCCESS: u32 = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_NOT_READY`: an event or stream is still busy.
pub const NOT_READY: u32 = 600;
/// `CUDA_ERROR_NOT_SUPPORTED`: also what a method answers when the driver lacks the entry point.
pub const NOT_SUPPORTED: u32 = 801;

/// `CUmemLocation`: type (1 device, 2 host) and id.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

const LOCATION_DEVICE: c_int = 1;
const LOCATION_HOST: c_int = 2;
/// `CU_DEVICE_CPU`, the host in the first forms of prefetch and advise.
const DEVICE_CPU: c_int = -1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const CAPTURE_RELAXED: c_int = 2;

const ADVISE_SET_READ_MOSTLY: c_int = 1;
const ADVISE_UNSET_READ_MOSTLY: c_int = 2;
const ADVISE_SET_PREFERRED_LOCATION: c_int = 3;
const ADVISE_UNSET_PREFERRED_LOCATION: c_int = 4;
const ADVISE_SET_ACCESSED_BY: c_int = 5;
const ADVISE_UNSET_ACCESSED_BY: c_int = 6;

/// Stands for a stream or event handle; 0, 1 and 2 are the default streams.
pub type Handle = usize;
/// A driver call's outcome: `Err` holds the driver's error number.
pub type Outcome<T = ()> = Result<T, u32>;

macro_rules! driver_table {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal $(or $older:literal)? : fn($($arg:ty),*);)*) => {
        /// The real driver, as a table of optional entry points.
        #[derive(Debug, Default)]
        #[non_exhaustive]
        pub struct Driver {
            $($(#[$doc])* pub $field: Option<unsafe extern "C" fn($($arg),*) -> u32>,)*
        }

        impl Driver {
            /// Asks `find` for each entry point.
            #[must_use]
            pub fn resolve(find: &dyn Fn(&CStr) -> *mut c_void) -> Self {
                Self {
                    $($field: {
                        #[allow(unused_mut)]
                        let mut found = find(to_cstr(concat!($symbol, "\0")));
                        $(if found.is_null() { found = find(to_cstr(concat!($older, "\0"))); })?
                        // SAFETY: a non-null answer is the driver's function of that name, whose
                        // C signature is the one given in the table; null becomes `None`.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($arg),*) -> u32>,
                            >(found)
                        }
                    },)*
                }
            }
        }
    };
}

driver_table! {
    /// `cuDriverGetVersion`.
    driver_get_version = "cuDriverGetVersion": fn(*mut c_int);
    /// `cuCtxGetCurrent`.
    ctx_get_current = "cuCtxGetCurrent": fn(*mut Handle);
    /// `cuCtxGetDevice`.
    ctx_get_device = "cuCtxGetDevice": fn(*mut c_int);
    /// `cuCtxSetCurrent`.
    ctx_set_current = "cuCtxSetCurrent": fn(Handle);
    /// `cuCtxSynchronize`.
    ctx_sync = "cuCtxSynchronize": fn();
    /// `cuDevicePrimaryCtxRetain`.
    primary_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    /// `cuDevicePrimaryCtxRelease_v2`, else the first form.
    primary_release = "cuDevicePrimaryCtxRelease_v2" or "cuDevicePrimaryCtxRelease": fn(c_int);
    /// `cuDevicePrimaryCtxGetState`.
    primary_state = "cuDevicePrimaryCtxGetState": fn(c_int, *mut c_uint, *mut c_int);
    /// `cuDeviceGetAttribute`.
    device_get_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    /// `cuDeviceGetCount`.
    device_get_count = "cuDeviceGetCount": fn(*mut c_int);
    /// `cuDeviceGetName`.
    device_get_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    /// `cuDeviceGetUuid_v2`, else `cuDeviceGetUuid`.
    device_get_uuid = "cuDeviceGetUuid_v2" or "cuDeviceGetUuid": fn(*mut u8, c_int);
    /// `cuDeviceTotalMem_v2`.
    device_total_mem = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    /// `cuMemGetInfo_v2`.
    mem_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    /// `cuMemAlloc_v2`.
    mem_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    /// `cuMemAllocManaged`.
    mem_alloc_managed = "cuMemAllocManaged": fn(*mut u64, usize, c_uint);
    /// `cuMemFree_v2`.
    mem_free = "cuMemFree_v2": fn(u64);
    /// `cuMemPoolCreate`.
    pool_create_raw = "cuMemPoolCreate": fn(*mut Handle, *const c_void);
    /// `cuMemPoolDestroy`.
    pool_destroy_raw = "cuMemPoolDestroy": fn(Handle);
    /// `cuMemPoolTrimTo`.
    pool_trim_raw = "cuMemPoolTrimTo": fn(Handle, usize);
    /// `cuMemPoolSetAttribute`.
    pool_set_raw = "cuMemPoolSetAttribute": fn(Handle, c_int, *mut c_void);
    /// `cuMemPoolGetAttribute`.
    pool_get_raw = "cuMemPoolGetAttribute": fn(Handle, c_int, *mut c_void);
    /// `cuMemAllocFromPoolAsync`.
    pool_alloc_raw = "cuMemAllocFromPoolAsync": fn(*mut u64, usize, Handle, Handle);
    /// `cuDeviceGetDefaultMemPool`.
    default_pool_raw = "cuDeviceGetDefaultMemPool": fn(*mut Handle, c_int);
    /// `cuDeviceGetMemPool`.
    current_pool_raw = "cuDeviceGetMemPool": fn(*mut Handle, c_int);
    /// `cuMemPrefetchAsync_v2` (12.2 and later).
    mem_prefetch_v2 = "cuMemPrefetchAsync_v2": fn(u64, usize, Location, c_uint, Handle);
    /// `cuMemPrefetchAsync`, the form that takes a device ordinal.
    mem_prefetch_v1 = "cuMemPrefetchAsync": fn(u64, usize, c_int, Handle);
    /// `cuMemAdvise_v2` (12.2 and later).
    mem_advise_v2 = "cuMemAdvise_v2": fn(u64, usize, c_int, Location);
    /// `cuMemAdvise`, the form that takes a device ordinal.
    mem_advise_v1 = "cuMemAdvise": fn(u64, usize, c_int, c_int);
    /// `cuStreamCreate`.
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    /// `cuStreamDestroy_v2`.
    stream_destroy_raw = "cuStreamDestroy_v2": fn(Handle);
    /// `cuStreamSynchronize`.
    stream_sync = "cuStreamSynchronize": fn(Handle);
    /// `cuStreamQuery`.
    stream_query_raw = "cuStreamQuery": fn(Handle);
    /// `cuStreamWaitEvent`.
    stream_wait_event_raw = "cuStreamWaitEvent": fn(Handle, Handle, c_uint);
    /// `cuStreamIsCapturing`.
    stream_capture_status = "cuStreamIsCapturing": fn(Handle, *mut c_int);
    /// `cuStreamGetCtx`.
    stream_get_ctx = "cuStreamGetCtx": fn(Handle, *mut Handle);
    /// `cuThreadExchangeStreamCaptureMode`.
    thread_exchange_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_int);
    /// `cuEventCreate`.
    event_create_raw = "cuEventCreate": fn(*mut Handle, c_uint);
    /// `cuEventDestroy_v2`.
    event_destroy_raw = "cuEventDestroy_v2": fn(Handle);
    /// `cuEventRecord`.
    event_record_raw = "cuEventRecord": fn(Handle, Handle);
    /// `cuEventQuery`.
    event_query_raw = "cuEventQuery": fn(Handle);
    /// `cuEventSynchronize`.
    event_sync_raw = "cuEventSynchronize": fn(Handle);
    /// `cuFuncGetName` (12.3 and later).
    func_get_name = "cuFuncGetName": fn(*mut *const c_char, Handle);
    /// `cuKernelGetName` (12.3 and later).
    kernel_get_name = "cuKernelGetName": fn(*mut *const c_char, Handle);
    /// `cuFuncGetParamInfo` (12.4 and later).
    func_get_param_info = "cuFuncGetParamInfo": fn(Handle, usize, *mut usize, *mut usize);
    /// `cuKernelGetParamInfo` (12.4 and later).
    kernel_get_param_info = "cuKernelGetParamInfo": fn(Handle, usize, *mut usize, *mut usize);
    /// `cuGraphGetNodes`.
    graph_get_nodes = "cuGraphGetNodes": fn(Handle, *mut Handle, *mut usize);
    /// `cuGraphNodeGetType`.
    graph_node_get_type = "cuGraphNodeGetType": fn(Handle, *mut c_int);
    /// `cuGraphKernelNodeGetParams_v2`, else the first form (a prefix of the second).
    graph_kernel_params = "cuGraphKernelNodeGetParams_v2" or "cuGraphKernelNodeGetParams":
        fn(Handle, *mut c_void);
    /// `cuGraphKernelNodeGetAttribute`.
    graph_kernel_attribute = "cuGraphKernelNodeGetAttribute": fn(Handle, c_int, *mut c_void);
    /// `cuGraphMemsetNodeGetParams`.
    graph_memset_params = "cuGraphMemsetNodeGetParams": fn(Handle, *mut c_void);
    /// `cuGraphMemcpyNodeGetParams`.
    graph_memcpy_params = "cuGraphMemcpyNodeGetParams": fn(Handle, *mut c_void);
    /// `cuGraphMemAllocNodeGetParams`.
    graph_alloc_params = "cuGraphMemAllocNodeGetParams": fn(Handle, *mut c_void);
    /// `cuDeviceGetGraphMemAttribute`.
    graph_memory_raw = "cuDeviceGetGraphMemAttribute": fn(c_int, c_int, *mut c_void);
    /// `cuGraphChildGraphNodeGetGraph`.
    graph_child = "cuGraphChildGraphNodeGetGraph": fn(Handle, *mut Handle);
}

/// The string up to its NUL; an empty string if it has none (the table's literals all do).
const fn to_cstr(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

fn outcome(result: u32) -> Outcome {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}

/// Calls an optional entry point.
macro_rules! call {
    ($entry:expr, $($arg:expr),*) => {
        match $entry {
            // SAFETY: the entry point is the driver's own, called with values of the types its
            // header gives; out-pointers are to live locals of the caller.
            Some(entry) => outcome(unsafe { entry($($arg),*) }),
            None => Err(NOT_SUPPORTED),
        }
    };
}

fn as_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Driver {
    /// Moves `bytes` from `addr` to `device`, in order on `stream`
    /// (`cuMemPrefetchAsync_v2`, else the first form).
    pub fn mem_prefetch_to_device(
        &self,
        addr: u64,
        bytes: u64,
        device: u32,
        stream: Handle,
    ) -> Outcome {
        let id = device.cast_signed();
        let place = Location {
            kind: LOCATION_DEVICE,
            id,
        };
        self.prefetch(addr, bytes, place, id, stream)
    }

    /// Moves `bytes` from `addr` to the host. The caller is blocked for the whole transfer on
    /// today's drivers: use requests of at most 2 MiB from a thread of our own.
    pub fn mem_prefetch_to_host(&self, addr: u64, bytes: u64, stream: Handle) -> Outcome {
        let place = Location {
            kind: LOCATION_HOST,
            id: 0,
        };
        self.prefetch(addr, bytes, place, DEVICE_CPU, stream)
    }

    fn prefetch(
        &self,
        addr: u64,
        bytes: u64,
        place: Location,
        old_place: c_int,
        stream: Handle,
    ) -> Outcome {
        if self.mem_prefetch_v2.is_some() {
            return call!(self.mem_prefetch_v2, addr, as_len(bytes), place, 0, stream);
        }
        call!(self.mem_prefetch_v1, addr, as_len(bytes), old_place, stream)
    }

    /// `SET_ACCESSED_BY` for `device`.
    pub fn advise_accessed_by(&self, addr: u64, bytes: u64, device: u32) -> Outcome {
        self.advise_device(addr, bytes, ADVISE_SET_ACCESSED_BY, device)
    }

    /// `UNSET_ACCESSED_BY` for `device`.
    pub fn unadvise_accessed_by(&self, addr: u64, bytes: u64, device: u32) -> Outcome {
        self.advise_device(addr, bytes, ADVISE_UNSET_ACCESSED_BY, device)
    }

    /// `SET_PREFERRED_LOCATION` to the host.
    pub fn advise_prefer_host(&self, addr: u64, bytes: u64) -> Outcome {
        self.advise_host(addr, bytes, ADVISE_SET_PREFERRED_LOCATION)
    }

    /// `SET_PREFERRED_LOCATION` to `device`.
    pub fn advise_prefer_device(&self, addr: u64, bytes: u64, device: u32) -> Outcome {
        self.advise_device(addr, bytes, ADVISE_SET_PREFERRED_LOCATION, device)
    }

    /// `UNSET_PREFERRED_LOCATION`.
    pub fn unadvise_prefer(&self, addr: u64, bytes: u64) -> Outcome {
        self.advise_host(addr, bytes, ADVISE_UNSET_PREFERRED_LOCATION)
    }

    /// Sets or unsets `READ_MOSTLY`.
    pub fn advise_read_mostly(&self, addr: u64, bytes: u64, on: bool) -> Outcome {
        let advice = if on {
            ADVISE_SET_READ_MOSTLY
        } else {
            ADVISE_UNSET_READ_MOSTLY
        };
        self.advise_device(addr, bytes, advice, 0)
    }

    fn advise_device(&self, addr: u64, bytes: u64, advice: c_int, device: u32) -> Outcome {
        let id = device.cast_signed();
        self.advise(
            addr,
            bytes,
            advice,
            Location {
                kind: LOCATION_DEVICE,
                id,
            },
            id,
        )
    }

    fn advise_host(&self, addr: u64, bytes: u64, advice: c_int) -> Outcome {
        self.advise(
            addr,
            bytes,
            advice,
            Location {
                kind: LOCATION_HOST,
                id: 0,
            },
            DEVICE_CPU,
        )
    }

    fn advise(
        &self,
        addr: u64,
        bytes: u64,
        advice: c_int,
        place: Location,
        old_place: c_int,
    ) -> Outcome {
        if self.mem_advise_v2.is_some() {
            return call!(self.mem_advise_v2, addr, as_len(bytes), advice, place);
        }
        call!(self.mem_advise_v1, addr, as_len(bytes), advice, old_place)
    }

    /// Makes a pool; `props` is a `CUmemPoolProps`.
    pub(crate) fn pool_create(&self, props: *const c_void) -> Outcome<Handle> {
        let mut pool = 0;
        call!(self.pool_create_raw, &raw mut pool, props)?;
        Ok(pool)
    }

    /// Destroys a pool of ours, once nothing lives in it.
    pub(crate) fn pool_destroy(&self, pool: Handle) -> Outcome {
        call!(self.pool_destroy_raw, pool)
    }

    /// Gives back what a pool holds beyond `keep` bytes.
    pub(crate) fn pool_trim(&self, pool: Handle, keep: usize) -> Outcome {
        call!(self.pool_trim_raw, pool, keep)
    }

    /// Sets an attribute of a pool; `value` points to what the attribute is.
    pub(crate) fn pool_set(&self, pool: Handle, which: c_int, value: *mut c_void) -> Outcome {
        call!(self.pool_set_raw, pool, which, value)
    }

    /// Asks for an attribute of a pool; `value` has room for 8 bytes.
    pub(crate) fn pool_get(&self, pool: Handle, which: c_int, value: *mut c_void) -> Outcome {
        call!(self.pool_get_raw, pool, which, value)
    }

    /// Memory from a pool, in stream order; the driver's answer.
    pub(crate) fn pool_alloc(
        &self,
        address: &mut u64,
        bytes: usize,
        pool: Handle,
        stream: Handle,
    ) -> u32 {
        let made = call!(self.pool_alloc_raw, address, bytes, pool, stream);
        made.err().unwrap_or(SUCCESS)
    }

    /// The pool a device starts with.
    pub(crate) fn default_pool(&self, device: u32) -> Outcome<Handle> {
        let mut pool = 0;
        let device = device.cast_signed();
        call!(self.default_pool_raw, &raw mut pool, device)?;
        Ok(pool)
    }

    /// The pool that a device's stream-ordered requests come from now.
    pub(crate) fn current_pool(&self, device: u32) -> Outcome<Handle> {
        let mut pool = 0;
        let device = device.cast_signed();
        call!(self.current_pool_raw, &raw mut pool, device)?;
        Ok(pool)
    }

    /// Bytes that a device holds for memory nodes of graphs.
    pub(crate) fn graph_memory(&self, device: u32) -> Outcome<u64> {
        const RESERVED_NOW: c_int = 2;
        let mut bytes = 0_u64;
        let place: *mut c_void = (&raw mut bytes).cast();
        call!(
            self.graph_memory_raw,
            device.cast_signed(),
            RESERVED_NOW,
            place
        )?;
        Ok(bytes)
    }

    /// Waits for everything in the current context.
    pub fn ctx_synchronize(&self) -> Outcome {
        call!(self.ctx_sync,)
    }

    /// Makes `context` current on this thread.
    pub fn ctx_set(&self, context: Handle) -> Outcome {
        call!(self.ctx_set_current, context)
    }

    /// Whether a device's primary context exists.
    pub fn primary_active(&self, device: c_int) -> Outcome<bool> {
        let (mut flags, mut active) = (0, 0);
        call!(self.primary_state, device, &raw mut flags, &raw mut active)?;
        Ok(active != 0)
    }

    /// A device's primary context, if it exists. Makes none and keeps none.
    pub fn primary_context(&self, device: c_int) -> Outcome<Option<Handle>> {
        if !self.primary_active(device)? || self.primary_release.is_none() {
            return Ok(None);
        }
        let mut context = 0;
        call!(self.primary_retain, &raw mut context, device)?;
        call!(self.primary_release, device)?;
        Ok(Some(context))
    }

    /// The current context's handle; 0 if there is none.
    pub fn ctx_current(&self) -> Outcome<Handle> {
        let mut context = 0;
        call!(self.ctx_get_current, &raw mut context)?;
        Ok(context)
    }

    /// Device ordinal of the current context.
    pub fn ctx_device(&self) -> Outcome<u32> {
        let mut device = 0;
        call!(self.ctx_get_device, &raw mut device)?;
        u32::try_from(device).map_err(|_| INVALID_VALUE)
    }

    /// Waits for a stream.
    pub fn stream_synchronize(&self, stream: Handle) -> Outcome {
        call!(self.stream_sync, stream)
    }

    /// Whether a stream's work is done.
    pub fn stream_done(&self, stream: Handle) -> Outcome<bool> {
        ready(call!(self.stream_query_raw, stream))
    }

    /// Makes later work of `stream` wait for `event`. Never used on a stream of the job's.
    pub fn stream_wait_event(&self, stream: Handle, event: Handle) -> Outcome {
        call!(self.stream_wait_event_raw, stream, event, 0)
    }

    /// A stream that does not synchronise with the legacy default stream.
    pub fn stream_create_nonblocking(&self) -> Outcome<Handle> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = 0;
        call!(self.stream_create, &raw mut stream, NON_BLOCKING)?;
        Ok(stream)
    }

    /// Destroys a stream of ours.
    pub fn stream_destroy(&self, stream: Handle) -> Outcome {
        call!(self.stream_destroy_raw, stream)
    }

    /// Whether a stream is being captured. An error counts as capturing for the caller's purposes
    /// (nothing may be added), so it is passed on.
    pub fn stream_is_capturing(&self, stream: Handle) -> Outcome<bool> {
        let mut status = 0;
        call!(self.stream_capture_status, stream, &raw mut status)?;
        Ok(status != 0)
    }

    /// The context of a stream.
    pub fn stream_context(&self, stream: Handle) -> Outcome<Handle> {
        let mut context = 0;
        call!(self.stream_get_ctx, stream, &raw mut context)?;
        Ok(context)
    }

    /// Puts this thread into RELAXED capture mode, so that its driver calls cannot ruin a capture
    /// of the job's. Every thread of ours calls it once.
    pub fn thread_capture_relaxed(&self) -> Outcome {
        self.thread_capture_mode(CAPTURE_RELAXED).map(|_| ())
    }

    /// Exchanges this thread's capture mode (0 global, 1 thread-local, 2 relaxed) for another and
    /// returns the one before: for a hook that must call the driver on a thread of the job's and
    /// give the mode back.
    pub fn thread_capture_mode(&self, mode: c_int) -> Outcome<c_int> {
        let mut mode = mode;
        call!(self.thread_exchange_mode, &raw mut mode)?;
        Ok(mode)
    }

    /// Does `work` with this thread in RELAXED capture mode, on whichever thread of the job's: what
    /// it asks of the driver on streams of ours then cannot ruin a capture, be it under way or just
    /// beginning (measured for prefetches on an H200, driver 580). `None`, and nothing done, where the driver
    /// cannot do that.
    pub(crate) fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let before = self.thread_capture_mode(CAPTURE_RELAXED).ok()?;
        let done = work();
        // The job's mode is the job's: a refusal, which no driver has been seen to give, is not the
        // last word.
        let back = || self.thread_capture_mode(before);
        let _ = back().or_else(|_| back());
        Some(done)
    }

    /// An event without timing.
    pub fn event_create(&self) -> Outcome<Handle> {
        const DISABLE_TIMING: c_uint = 2;
        let mut event = 0;
        call!(self.event_create_raw, &raw mut event, DISABLE_TIMING)?;
        Ok(event)
    }

    /// Destroys an event of ours.
    pub fn event_destroy(&self, event: Handle) -> Outcome {
        call!(self.event_destroy_raw, event)
    }

    /// Records an event of ours on a stream. Not allowed while that stream is captured.
    pub fn event_record(&self, event: Handle, stream: Handle) -> Outcome {
        call!(self.event_record_raw, event, stream)
    }

    /// Whether an event has passed.
    pub fn event_query(&self, event: Handle) -> Outcome<bool> {
        ready(call!(self.event_query_raw, event))
    }

    /// Waits for an event.
    pub fn event_synchronize(&self, event: Handle) -> Outcome {
        call!(self.event_sync_raw, event)
    }

    /// Free and total bytes of the current context's device, as the driver sees them.
    pub fn mem_get_info(&self) -> Outcome<(u64, u64)> {
        let (mut free, mut total) = (0_usize, 0_usize);
        call!(self.mem_info, &raw mut free, &raw mut total)?;
        Ok((free as u64, total as u64))
    }

    /// `CUDA_VERSION` of the driver (13000 is 13.0).
    pub fn version(&self) -> Outcome<u32> {
        let mut version = 0;
        call!(self.driver_get_version, &raw mut version)?;
        Ok(version.cast_unsigned())
    }

    /// A `CUdevice_attribute` of a device.
    pub fn device_attribute(&self, attribute: c_int, device: u32) -> Outcome<i32> {
        let mut value = 0;
        call!(
            self.device_get_attribute,
            &raw mut value,
            attribute,
            device.cast_signed()
        )?;
        Ok(value)
    }

    /// Number of devices.
    pub fn device_count(&self) -> Outcome<u32> {
        let mut count = 0;
        call!(self.device_get_count, &raw mut count)?;
        Ok(count.cast_unsigned())
    }

    /// Total memory of a device, in bytes.
    pub fn device_total_bytes(&self, device: u32) -> Outcome<u64> {
        let mut bytes = 0_usize;
        call!(self.device_total_mem, &raw mut bytes, device.cast_signed())?;
        Ok(bytes as u64)
    }

    /// Name of a device.
    pub fn device_name(&self, device: u32) -> Outcome<String> {
        let mut name = [0_u8; 128];
        call!(
            self.device_get_name,
            name.as_mut_ptr().cast(),
            127,
            device.cast_signed()
        )?;
        let text = CStr::from_bytes_until_nul(&name).map_err(|_| INVALID_VALUE)?;
        Ok(text.to_string_lossy().into_owned())
    }

    /// UUID of a device.
    pub fn device_uuid(&self, device: u32) -> Outcome<[u8; 16]> {
        let mut uuid = [0_u8; 16];
        call!(
            self.device_get_uuid,
            uuid.as_mut_ptr(),
            device.cast_signed()
        )?;
        Ok(uuid)
    }
}

/// `NOT_READY` is an answer, not an error.
fn ready(result: Outcome) -> Outcome<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The driver of this process, if libcuda is mapped.
pub(crate) fn resolve_from_process() -> Option<Driver> {
    let library = resolve::libcuda()?;
    Some(Driver::resolve(&|name| resolve::real_symbol(library, name)))
}
