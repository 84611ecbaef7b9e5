//! Finding real symbols past our own exports, and the answer of our own `dlsym`.
//!
//! The exported `dlsym` (see [`crate::export_all!`]) is a naked function: every name that does not
//! start with `cu`, and whatever is left to the real one to decide, jumps to it with the caller's
//! return address in place, because that address decides what `RTLD_NEXT` and `RTLD_DEFAULT` mean.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::{hooks, neighbours};

/// The C library's `dlsym`, found at first use. Read by the naked stub.
#[doc(hidden)]
pub static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static LIBCUDA: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// What [`look_up`] answers for "the real `dlsym` decides".
pub(crate) const REAL_DECIDES: *mut c_void = ptr::null_mut();
/// What [`look_up`] answers for "null".
#[doc(hidden)]
pub const ANSWER_NULL: *mut c_void = ptr::without_provenance_mut(1);

/// Versions under which a C library has `dlsym`: current, x86-64 and aarch64 before 2.34.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// The real `dlsym`, found on first use. Aborts the process only if the C library has none, which
/// would leave no way to answer anybody.
#[doc(hidden)]
pub extern "C" fn real_dlsym_address() -> *mut c_void {
    let known = REAL_DLSYM.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = VERSIONS
        .iter()
        // SAFETY: name and version are NUL-terminated; `dlvsym` has no other preconditions.
        .map(|version| unsafe {
            libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr())
        })
        .find(|found| !found.is_null())
        .unwrap_or_else(|| crate::elf::symbol_of_libc(c"dlsym"));
    if found.is_null() {
        std::process::abort();
    }
    let found = next_tool(found).unwrap_or(found);
    REAL_DLSYM.store(found, Ordering::Release);
    found
}

/// Another preload's `dlsym` behind ours. Without a version of its own it is not found under one,
/// so the C library's is asked. One of our own shims is left out of it: one account is enough.
fn next_tool(of_libc: *mut c_void) -> Option<*mut c_void> {
    // SAFETY: the address is the C library's `dlsym`, whose signature `Dlsym` is.
    let call = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(of_libc) };
    // SAFETY: the name is NUL-terminated; the caller whose next one is meant is this library.
    let next = unsafe { call(libc::RTLD_NEXT, c"dlsym".as_ptr()) };
    let path = object_of(next)?;
    let sibling = path.rsplit('/').next()?.starts_with("libtransit_");
    (!next.is_null() && !sibling && !is_at(next, of_libc)).then_some(next)
}

fn real_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the address is the C library's `dlsym`, whose signature `Dlsym` is.
    let call = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(real_dlsym_address()) };
    // SAFETY: the handle is the caller's or ours, the name is NUL-terminated.
    unsafe { call(handle, name) }
}

/// Handle of the mapped `libcuda.so.1`, if there is one. Never loads it.
#[must_use]
pub fn libcuda() -> Option<*mut c_void> {
    let known = LIBCUDA.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    // SAFETY: the name is NUL-terminated; with RTLD_NOLOAD nothing is loaded and no constructor
    // runs.
    let found = unsafe {
        libc::dlopen(
            c"libcuda.so.1".as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_NOLOAD,
        )
    };
    if found.is_null() {
        return None;
    }
    LIBCUDA.store(found, Ordering::Release);
    Some(found)
}

/// The symbol `name` of `library` (a `dlopen` handle), past our own exports; null if it has none.
/// For any library: shims use it to find CUPTI's functions.
#[must_use]
pub fn real_symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    real_dlsym(library, name.as_ptr())
}

/// Whether an address lies in the shim itself.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    let here = real_dlsym_address as extern "C" fn() -> *mut c_void as *const c_void;
    is_at(address, here)
}

/// Whether two addresses lie in one object.
fn is_at(one: *const c_void, other: *const c_void) -> bool {
    match (base_of(one), base_of(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

fn base_of(address: *const c_void) -> Option<usize> {
    about(address).map(|info| info.dli_fbase.addr())
}

/// The path of the mapped object that holds `address`.
#[must_use]
pub fn object_of(address: *const c_void) -> Option<String> {
    let info = about(address).filter(|info| !info.dli_fname.is_null())?;
    // SAFETY: the dynamic linker's names are NUL-terminated and live as long as the object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(name.to_string_lossy().into_owned())
}

/// What the dynamic linker knows about an address.
pub(crate) fn about(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: `info` is a live local of the type `dladdr` fills in.
    let found: c_int = unsafe { libc::dladdr(address, &raw mut info) };
    (found != 0).then_some(info)
}

/// The slow half of the exported `dlsym`, for names that start with `cu`. Null: the real `dlsym`
/// decides. [`ANSWER_NULL`]: the answer is null. Else: the answer.
///
/// # Safety
/// `name` must be NUL-terminated and `handle` what `dlsym` accepts, as for `dlsym` itself.
#[doc(hidden)]
pub unsafe fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller of `dlsym` passed a NUL-terminated name.
    let wanted = unsafe { CStr::from_ptr(name) };
    if wanted == neighbours::REGISTER {
        return neighbours::look_up(handle);
    }
    let Some(hook) = hooks::by_name(wanted) else {
        return REAL_DECIDES;
    };
    if handle == libc::RTLD_NEXT {
        // A program before us would find our export, driver or not. Where there is no driver there
        // is no next one, and the failed call has said so to `dlerror`.
        let next = real_dlsym(handle, name);
        let absent = next.is_null() && libcuda().is_none();
        return if absent { ANSWER_NULL } else { REAL_DECIDES };
    }
    let mut found = real_dlsym(handle, name);
    if found.is_null() {
        // Asked again by the stub, so that `dlerror` says the right thing.
        return REAL_DECIDES;
    }
    if is_ours(found) {
        // RTLD_DEFAULT and the main program's handle find our own export first.
        let Some(library) = libcuda() else {
            let next = real_dlsym(libc::RTLD_NEXT, name);
            return if next.is_null() { ANSWER_NULL } else { next };
        };
        found = real_dlsym(library, name);
        if found.is_null() {
            return ANSWER_NULL;
        }
    }
    hooks::resolve_all();
    if hooks::real_of(hook) == found {
        hooks::wrapper_of(hook)
    } else {
        found
    }
}
