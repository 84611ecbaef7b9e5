//! Other tools in the job's process: profilers that use CUPTI, and preloads that answer for CUDA as
//! we do. CUPTI's buffers belong to the whole process and to whoever registered last, so we must
//! know when somebody else does: `cuptiActivityRegisterCallbacks` is answered like the driver's
//! functions, passed on at once, and told to whoever records.
#![expect(
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "CUPTI's own function"
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use crate::resolve::{self, ANSWER_NULL, REAL_DECIDES};
use crate::wrappers::stub;
use crate::{guard, log, state};

/// Parts of the file names of libraries worth naming, and what people call them. Beginnings of
/// names where the part begins with `lib`.
const KNOWN: [(&str, &str); 8] = [
    ("libtransit_", "another of our shims"),
    ("libvgpu", "HAMi"),
    ("libnvshare", "nvshare"),
    ("libToolsInjection", "Nsight Systems"),
    ("libcuda-injection", "Nsight Compute"),
    ("libcuinj", "nvprof"),
    ("libaccelinj", "nvprof"),
    ("libnvbit", "NVBit"),
];
/// Copies of CUPTI, newest first.
const CUPTI: [&CStr; 2] = [c"libcupti.so.13", c"libcupti.so.12"];
/// The one function of CUPTI's that is answered.
pub(crate) const REGISTER: &CStr = c"cuptiActivityRegisterCallbacks";
/// `CUPTI_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: u32 = 15;

/// The function that was last looked up by name.
static LAST_FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static PROFILER: OnceLock<String> = OnceLock::new();
static LISTENER: OnceLock<fn(&str)> = OnceLock::new();

/// What people call the library of that file name, if it is a known neighbour.
#[must_use]
pub fn known(file_name: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(part, _)| file_name.starts_with(part));
    found.map(|(_, who)| *who)
}

/// The library that has registered buffers with CUPTI, if one but us has.
#[must_use]
pub fn profiler() -> Option<&'static str> {
    PROFILER.get().map(String::as_str)
}

/// Has `listener` called, with the library's name, before another's registration reaches CUPTI.
pub fn before_another_registers(listener: fn(&str)) {
    let _ = LISTENER.set(listener);
}

stub!(cuptiActivityRegisterCallbacks, 2, register);

unsafe extern "C" fn register(request: usize, complete: usize, from: usize) -> u32 {
    let _ = guard::protect(|| noticed(from));
    let Some(real) = real_register(from) else {
        return NOT_INITIALIZED;
    };
    // SAFETY: the caller's arguments.
    unsafe { real(request, complete) }
}

type Register = unsafe extern "C" fn(usize, usize) -> u32;

fn noticed(from: usize) {
    let who = file_name(&object_at(from).unwrap_or_default());
    let first = PROFILER.set(who).is_ok();
    if !first || state::live().is_none() || guard::inside() {
        return;
    }
    let _ours = guard::ours();
    if let (Some(listener), Some(who)) = (LISTENER.get(), profiler()) {
        listener(who);
    }
}

fn object_at(address: usize) -> Option<String> {
    resolve::object_of(ptr::with_exposed_provenance(address))
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// CUPTI's own function, of the copy that the caller means: the one it was linked with, else the
/// one it looked up, else the one that is mapped.
fn real_register(from: usize) -> Option<Register> {
    let linked = object_at(from).and_then(|path| {
        let path = std::ffi::CString::new(path).ok()?;
        in_library(&path)
    });
    let found = linked
        .or_else(|| Some(LAST_FOUND.load(Ordering::Acquire)).filter(|found| !found.is_null()))
        .or_else(|| CUPTI.iter().find_map(|name| in_library(name)))?;
    // SAFETY: a non-null address of CUPTI's function of that name, whose type `Register` is.
    Some(unsafe { core::mem::transmute::<*mut c_void, Register>(found) })
}

/// The function as a mapped library and what it is linked with have it.
fn in_library(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated; with RTLD_NOLOAD nothing is loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let found = resolve::real_symbol(handle, REGISTER);
    (!found.is_null() && !resolve::is_ours(found)).then_some(found)
}

/// The answer of our `dlsym` for [`REGISTER`], in the terms of [`resolve::look_up`].
pub(crate) fn look_up(handle: *mut c_void) -> *mut c_void {
    if handle == libc::RTLD_NEXT {
        return REAL_DECIDES;
    }
    let mut found = resolve::real_symbol(handle, REGISTER);
    if found.is_null() {
        return REAL_DECIDES;
    }
    if resolve::is_ours(found) {
        // RTLD_DEFAULT finds our own export first.
        let Some(mapped) = CUPTI.iter().find_map(|name| in_library(name)) else {
            return ANSWER_NULL;
        };
        found = mapped;
    }
    LAST_FOUND.store(found, Ordering::Release);
    cuptiActivityRegisterCallbacks as *const c_void as *mut c_void
}

struct Search {
    /// Where our own code is, to be left out.
    here: Option<String>,
    found: Vec<String>,
}

/// The known neighbours mapped in this process, as `file name (what it is)`.
#[must_use]
pub fn mapped() -> Vec<String> {
    let here = register as *const c_void;
    let mut search = Search {
        here: resolve::object_of(here),
        found: Vec::new(),
    };
    // SAFETY: the callback has the signature asked for; `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _bytes: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: `data` is the `Search` of `mapped`, alive and not otherwise borrowed.
    let search = unsafe { &mut *data.cast::<Search>() };
    if name.is_null() {
        return 0;
    }
    // SAFETY: non-null names are NUL-terminated.
    let path = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let file = file_name(&path);
    if let Some(who) = known(&file)
        && search.here.as_deref() != Some(path.as_ref())
    {
        search.found.push(format!("{file} ({who})"));
    }
    0
}

/// Says once who else is here: neighbours by name, and whoever answers `dlsym` behind us.
pub(crate) fn report() {
    let mut here = mapped();
    let next = resolve::object_of(resolve::real_dlsym_address());
    let next = next.map(|path| file_name(&path)).unwrap_or_default();
    let c_library = ["libc.so", "libc-", "libdl"]
        .iter()
        .any(|start| next.starts_with(start));
    if !next.is_empty() && !c_library && !here.iter().any(|known| known.starts_with(&next)) {
        here.push(next);
    }
    let ours = |name: &String| name.starts_with("libtransit_");
    if let Some(sibling) = here.iter().position(ours).map(|place| here.remove(place)) {
        log::say(format_args!(
            "{sibling} is in this process too and stays idle: one shim at a time"
        ));
    }
    if !here.is_empty() {
        log::say(format_args!(
            "{} is in this process too: what it does to CUDA stays as it is, and comes after us",
            here.join(" and ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_known_by_their_libraries() {
        assert_eq!(known("libvgpu.so"), Some("HAMi"));
        assert_eq!(known("libToolsInjection64.so"), Some("Nsight Systems"));
        assert_eq!(known("libjemalloc.so.2"), None);
        assert!(mapped().is_empty());
    }

    #[test]
    fn without_cupti_nobody_can_register() {
        // SAFETY: nothing is mapped that could be called.
        let result = unsafe { register(0, 0, 0) };
        assert_eq!(result, NOT_INITIALIZED);
        assert_eq!(look_up(libc::RTLD_NEXT), REAL_DECIDES);
    }
}
