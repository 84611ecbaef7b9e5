//! The child's side: loads `libcuda.so.1` (never `libcuda.so`, which is the toolkit's stub), asks
//! every GPU, tries CUPTI, and prints a line of JSON before each step and after each part. Ending
//! the process gives back whatever it had.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use transit_capture::check_cupti;

use super::cupti::{Cupti, python_directories};

/// A line from the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// What is about to be done.
    At(String),
    /// All that is known so far.
    Facts(Box<Facts>),
}

/// What the driver says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// File of the `libcuda.so.1` found.
    pub(super) library: Option<String>,
    /// Why none could be loaded.
    pub(super) not_loaded: Option<String>,
    /// `cuDriverGetVersion`.
    pub(super) cuda_version: i32,
    /// `cuInit`'s answer.
    pub(super) init: Option<u32>,
    /// Optional entry points that are missing.
    pub(super) missing: Vec<String>,
    pub(super) gpus: Vec<Gpu>,
    /// The copy found, or why there is none.
    pub(super) cupti: Option<Result<Cupti, String>>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Gpu {
    pub(super) ordinal: i32,
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) total_bytes: u64,
    /// `None`: no context could be made to ask in.
    pub(super) free_bytes: Option<u64>,
    /// The driver's error where no context could be made.
    pub(super) context_error: Option<u32>,
    pub(super) capability: (i32, i32),
    pub(super) concurrent_managed_access: bool,
    pub(super) pageable_memory_access: bool,
    /// `CUcomputemode`: 0 default, 2 prohibited, 3 one process.
    pub(super) compute_mode: i32,
}

/// Entry points without which something is done without, and since when drivers have them.
pub(super) const OPTIONAL: [(&str, &str); 6] = [
    ("cuGetProcAddress_v2", "12.0"),
    ("cuMemPrefetchAsync_v2", "12.2"),
    ("cuMemAdvise_v2", "12.2"),
    ("cuFuncGetName", "12.3"),
    ("cuFuncGetParamInfo", "12.4"),
    ("cuMemAllocManaged", "6.0"),
];

const PAGEABLE_MEMORY_ACCESS: c_int = 88;
const CONCURRENT_MANAGED_ACCESS: c_int = 89;
const COMPUTE_MODE: c_int = 20;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const PROHIBITED: c_int = 2;

fn tell(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        // Nobody left to tell: the parent has given up on us.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }
}

fn at(step: &str) {
    tell(&Line::At(step.to_owned()));
}

/// Asks everything.
pub(super) fn run() {
    let mut facts = Facts::default();
    ask(&mut facts);
    tell(&Line::Facts(Box::new(facts)));
}

fn ask(facts: &mut Facts) {
    at("loading libcuda.so.1");
    // SAFETY: loading the driver's library runs its constructors, as in every CUDA program.
    let library = match unsafe { libloading::Library::new("libcuda.so.1") } {
        Ok(library) => std::mem::ManuallyDrop::new(library),
        Err(error) => {
            facts.not_loaded = Some(error.to_string());
            return;
        }
    };
    let driver = Driver { library: &library };
    facts.library = driver.path();
    let mut version: c_int = 0;
    let _ = driver.call1(c"cuDriverGetVersion", &raw mut version);
    facts.cuda_version = version;
    for (name, _) in OPTIONAL {
        if !driver.has(name) {
            facts.missing.push(name.to_owned());
        }
    }
    at("cuInit");
    facts.init = driver.init();
    tell(&Line::Facts(Box::new(facts.clone())));
    if facts.init != Some(0) {
        return;
    }
    let mut count: c_int = 0;
    let _ = driver.call1(c"cuDeviceGetCount", &raw mut count);
    for ordinal in 0..count {
        at(&format!("asking GPU {ordinal}"));
        if let Some(gpu) = driver.gpu(ordinal) {
            facts.gpus.push(gpu);
        }
    }
    tell(&Line::Facts(Box::new(facts.clone())));
    at("trying CUPTI");
    let directories: Vec<PathBuf> = python_directories();
    facts.cupti = Some(check_cupti(&directories).map(Into::into));
    for gpu in facts.gpus.iter().filter(|gpu| gpu.free_bytes.is_some()) {
        at(&format!("releasing GPU {}", gpu.ordinal));
        driver.release(gpu.ordinal);
    }
}

/// The library's functions, called by name.
struct Driver<'a> {
    library: &'a libloading::Library,
}

impl Driver<'_> {
    fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol is only looked up.
        unsafe { self.library.get::<*const c_void>(name.as_bytes()) }.is_ok()
    }

    /// The function of that name.
    ///
    /// # Safety
    /// `F` must be its type.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        found.ok().map(|symbol| *symbol)
    }

    fn path(&self) -> Option<String> {
        // SAFETY: the symbol is only looked up.
        let address = unsafe { self.function::<*const c_void>(c"cuInit") }?;
        transit_hook::resolve::object_of(address)
    }

    /// A function that fills in one number.
    fn call1(&self, name: &CStr, out: *mut c_int) -> Option<u32> {
        type Call = unsafe extern "C" fn(*mut c_int) -> u32;
        // SAFETY: the two functions called through here have this type.
        let call = unsafe { self.function::<Call>(name) }?;
        // SAFETY: the callers' pointers are to live locals.
        Some(unsafe { call(out) })
    }

    fn init(&self) -> Option<u32> {
        // SAFETY: cuInit has this type.
        let call = unsafe { self.function::<unsafe extern "C" fn(u32) -> u32>(c"cuInit") }?;
        // SAFETY: no preconditions; 0 is the only flag there is.
        Some(unsafe { call(0) })
    }

    fn gpu(&self, ordinal: c_int) -> Option<Gpu> {
        let attribute = |which| self.attribute(ordinal, which).unwrap_or(0);
        let (name, uuid) = (self.name(ordinal)?, self.uuid(ordinal));
        let compute_mode = attribute(COMPUTE_MODE);
        let (memory, context_error) = match compute_mode {
            PROHIBITED => (None, None),
            _ => match self.memory(ordinal) {
                Ok(memory) => (Some(memory), None),
                Err(error) => (None, Some(error)),
            },
        };
        Some(Gpu {
            ordinal,
            name,
            uuid,
            total_bytes: self.total(ordinal).unwrap_or(0),
            free_bytes: memory,
            context_error,
            capability: (attribute(CAPABILITY_MAJOR), attribute(CAPABILITY_MINOR)),
            concurrent_managed_access: attribute(CONCURRENT_MANAGED_ACCESS) != 0,
            pageable_memory_access: attribute(PAGEABLE_MEMORY_ACCESS) != 0,
            compute_mode,
        })
    }

    fn attribute(&self, device: c_int, which: c_int) -> Option<c_int> {
        type Call = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> u32;
        let mut value = 0;
        // SAFETY: cuDeviceGetAttribute has this type.
        let call = unsafe { self.function::<Call>(c"cuDeviceGetAttribute") }?;
        // SAFETY: `value` is a live local.
        (unsafe { call(&raw mut value, which, device) } == 0).then_some(value)
    }

    fn name(&self, device: c_int) -> Option<String> {
        type Call = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32;
        let mut text = [0 as c_char; 256];
        // SAFETY: cuDeviceGetName has this type.
        let call = unsafe { self.function::<Call>(c"cuDeviceGetName") }?;
        // SAFETY: `text` has 256 bytes, the last of which stays 0.
        if unsafe { call(text.as_mut_ptr(), 255, device) } != 0 {
            return None;
        }
        // SAFETY: NUL-terminated by the driver or by the last byte.
        let name = unsafe { CStr::from_ptr(text.as_ptr()) };
        Some(name.to_string_lossy().into_owned())
    }

    fn uuid(&self, device: c_int) -> String {
        type Call = unsafe extern "C" fn(*mut [u8; 16], c_int) -> u32;
        let mut bytes = [0_u8; 16];
        // Version 2 tells slices of one GPU apart.
        let call = [c"cuDeviceGetUuid_v2", c"cuDeviceGetUuid"]
            .iter()
            // SAFETY: both have this type.
            .find_map(|name| unsafe { self.function::<Call>(name) });
        if let Some(call) = call {
            // SAFETY: `bytes` is a live local of that size.
            let _ = unsafe { call(&raw mut bytes, device) };
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |from, to| hex.get(from..to).unwrap_or_default();
        let parts = [
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32),
        ];
        format!("GPU-{}", parts.join("-"))
    }

    fn total(&self, device: c_int) -> Option<u64> {
        type Call = unsafe extern "C" fn(*mut usize, c_int) -> u32;
        let mut bytes = 0;
        // SAFETY: cuDeviceTotalMem_v2 has this type.
        let call = unsafe { self.function::<Call>(c"cuDeviceTotalMem_v2") }?;
        // SAFETY: `bytes` is a live local.
        (unsafe { call(&raw mut bytes, device) } == 0).then_some(bytes as u64)
    }

    /// Free bytes, asked in the device's primary context, which [`Self::release`] gives back.
    fn memory(&self, device: c_int) -> Result<u64, u32> {
        type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> u32;
        type SetCurrent = unsafe extern "C" fn(*mut c_void) -> u32;
        type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> u32;
        const NOT_FOUND: u32 = 500;
        // SAFETY: cuDevicePrimaryCtxRetain has this type.
        let retain = unsafe { self.function::<Retain>(c"cuDevicePrimaryCtxRetain") };
        // SAFETY: cuCtxSetCurrent has this type.
        let set_current = unsafe { self.function::<SetCurrent>(c"cuCtxSetCurrent") };
        // SAFETY: cuMemGetInfo_v2 has this type.
        let info = unsafe { self.function::<Info>(c"cuMemGetInfo_v2") };
        let (Some(retain), Some(set_current), Some(info)) = (retain, set_current, info) else {
            return Err(NOT_FOUND);
        };
        let mut context = std::ptr::null_mut();
        let (mut free, mut total) = (0, 0);
        let good = |result: u32| if result == 0 { Ok(()) } else { Err(result) };
        // SAFETY: `context` is a live local.
        good(unsafe { retain(&raw mut context, device) })?;
        // SAFETY: the context was just retained.
        good(unsafe { set_current(context) })?;
        // SAFETY: both are live locals.
        good(unsafe { info(&raw mut free, &raw mut total) })?;
        Ok(free as u64)
    }

    fn release(&self, device: c_int) {
        let names = [
            c"cuDevicePrimaryCtxRelease_v2",
            c"cuDevicePrimaryCtxRelease",
        ];
        let call = names
            .iter()
            // SAFETY: both have this type.
            .find_map(|name| unsafe { self.function::<unsafe extern "C" fn(c_int) -> u32>(name) });
        if let Some(call) = call {
            // SAFETY: the context was retained by `memory`.
            let _ = unsafe { call(device) };
        }
    }
}
