//! Finds CUPTI and its entry points. A second copy in one process is undefined behaviour, so the
//! copy that is mapped already comes first, then the one that belongs to the mapped CUDA runtime.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use transit_hook::resolve::real_symbol;

use super::failure::Failure;
use super::record::UmConfig;

/// Newest first: CUPTI must not be newer than the runtime in use, which step 2 takes care of.
const SONAMES: [&CStr; 2] = [c"libcupti.so.13", c"libcupti.so.12"];

/// `CUpti_BuffersCallbackRequestFunc`.
pub(super) type OnRequest = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(super) type OnComplete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `CUpti_CallbackFunc`.
pub(super) type OnCall = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `CUpti_SubscriberParams` as 13.0 has it; later versions take the shorter form.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SubscriberParams {
    pub(super) bytes: usize,
    pub(super) name: *const c_char,
    /// Room for the name of the subscriber that is there already.
    pub(super) old_name: *mut c_char,
    pub(super) old_name_bytes: usize,
}

macro_rules! library {
    ($($field:ident = $symbol:literal : fn($($arg:ty),*);)*) => {
        /// CUPTI's entry points; any of them may be missing. Enumerations are plain numbers, since
        /// a newer CUPTI may answer values this code has never heard of.
        #[derive(Debug, Default, Clone, Copy)]
        pub(super) struct Library {
            $(pub(super) $field: Option<unsafe extern "C" fn($($arg),*) -> u32>,)*
        }

        impl Library {
            fn resolve(handle: *mut c_void) -> Self {
                Self {
                    $($field: {
                        let found = real_symbol(handle, $symbol);
                        // SAFETY: a non-null answer is CUPTI's function of that name, whose C
                        // signature is the one in the table; null becomes `None`.
                        unsafe {
                            std::mem::transmute::<
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

library! {
    get_version = c"cuptiGetVersion": fn(*mut u32);
    get_timestamp = c"cuptiGetTimestamp": fn(*mut u64);
    register = c"cuptiActivityRegisterCallbacks": fn(OnRequest, OnComplete);
    configure_um = c"cuptiActivityConfigureUnifiedMemoryCounter": fn(*mut UmConfig, u32);
    enable = c"cuptiActivityEnable": fn(u32);
    disable = c"cuptiActivityDisable": fn(u32);
    flush = c"cuptiActivityFlushAll": fn(u32);
    next_record = c"cuptiActivityGetNextRecord": fn(*mut u8, usize, *mut *mut u8);
    dropped = c"cuptiActivityGetNumDroppedRecords": fn(*mut c_void, u32, *mut usize);
    subscribe = c"cuptiSubscribe": fn(*mut *mut c_void, OnCall, *mut c_void);
    subscribe_v2 = c"cuptiSubscribe_v2":
        fn(*mut *mut c_void, OnCall, *mut c_void, *mut SubscriberParams);
    unsubscribe = c"cuptiUnsubscribe": fn(*mut c_void);
    enable_domain = c"cuptiEnableDomain": fn(u32, *mut c_void, u32);
    stream_id = c"cuptiGetStreamIdEx": fn(*mut c_void, *mut c_void, u8, *mut u32);
    context_id = c"cuptiGetContextId": fn(*mut c_void, *mut u32);
}

impl Library {
    /// Finds CUPTI as the module's documentation says. `given` are directories that come after
    /// the mapped copy: where a job that has not started would map it from.
    pub(super) fn find(given: &[PathBuf]) -> Result<(Self, &'static str), Failure> {
        let of = |way: &'static str| move |handle| (handle, way);
        let (handle, way) = mapped()
            .map(of("mapped already"))
            .or_else(|| {
                let found = given.iter().find_map(|directory| open_in(directory));
                found.map(of("Python packages"))
            })
            .or_else(|| beside_the_runtime().map(of("beside libcudart")))
            .or_else(|| on_the_path().map(of("library path")))
            .or_else(|| under_cuda_home().map(of("CUDA_HOME")))
            .ok_or(Failure::NotFound)?;
        Ok((Self::resolve(handle), way))
    }

    /// The file this copy was loaded from.
    pub(super) fn path(&self) -> Option<String> {
        let inside = self.get_version? as *const c_void;
        transit_hook::resolve::object_of(inside)
    }
}

fn open(name: &CStr, flags: i32) -> Option<*mut c_void> {
    // SAFETY: `name` is NUL-terminated; loading CUPTI runs its constructors, which is meant.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!handle.is_null()).then_some(handle)
}

fn mapped() -> Option<*mut c_void> {
    SONAMES
        .iter()
        .find_map(|name| open(name, libc::RTLD_NOW | libc::RTLD_NOLOAD))
}

fn on_the_path() -> Option<*mut c_void> {
    SONAMES.iter().find_map(|name| open(name, libc::RTLD_NOW))
}

fn open_in(directory: &Path) -> Option<*mut c_void> {
    SONAMES.iter().find_map(|name| {
        let path = directory.join(name.to_str().ok()?);
        let path = path.exists().then_some(path)?;
        open(
            &CString::new(path.as_os_str().as_bytes()).ok()?,
            libc::RTLD_NOW,
        )
    })
}

fn beside_the_runtime() -> Option<*mut c_void> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    runtime_directories(&maps)
        .iter()
        .find_map(|directory| open_in(directory))
}

/// Directories in which a CUPTI for the mapped libcudart can lie: its own, and that of the Python
/// wheel beside the runtime's wheel.
fn runtime_directories(maps: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in maps.lines().filter(|line| line.contains("/libcudart")) {
        let Some(at) = line.find('/') else { continue };
        let Some(own) = line.get(at..).and_then(|path| Path::new(path).parent()) else {
            continue;
        };
        let beside = own.join("../../cuda_cupti/lib");
        for directory in [own.to_owned(), own.join("../extras/CUPTI/lib64"), beside] {
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
    }
    directories
}

fn under_cuda_home() -> Option<*mut c_void> {
    let home = std::env::var_os("CUDA_HOME").or_else(|| std::env::var_os("CUDA_PATH"));
    let home = home.map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    ["extras/CUPTI/lib64", "lib64"]
        .iter()
        .find_map(|below| open_in(&home.join(below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_of_the_mapped_runtime_is_found() {
        let maps = "7f00-7f01 r-xp 0000 08:01 12  /v/nvidia/cuda_runtime/lib/libcudart.so.12\n\
                    7f01-7f02 r--p 0000 08:01 12  /v/nvidia/cuda_runtime/lib/libcudart.so.12\n\
                    7f02-7f03 r--p 0000 08:01 13  /lib/libc.so.6\n";
        let found = runtime_directories(maps);
        assert_eq!(found.len(), 3);
        assert!(found.contains(&PathBuf::from(
            "/v/nvidia/cuda_runtime/lib/../../cuda_cupti/lib"
        )));
    }
}
