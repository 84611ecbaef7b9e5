//! What `cuGetProcAddress` should answer: the driver decides first; the function it returned is
//! recognised by its address, and replaced by the wrapper of exactly that export. Base names,
//! versions and flags are never guessed at: one base name stands for several ABIs.

use core::ffi::{CStr, c_void};

use crate::hooks::{self, Hook};
use crate::{coverage, resolve};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// The wrapper that takes the place of `found`; `None` leaves the answer alone.
pub(crate) fn wrapper_for(found: *mut c_void, name: &CStr, flags: u64) -> Option<*mut c_void> {
    hooks::resolve_all();
    if hooks::is_wrapper(found) {
        return None;
    }
    let hook = by_address(found, flags).or_else(|| by_symbol(found));
    match hook {
        Some(hook) => Some(hooks::wrapper_of(hook)),
        None => {
            coverage::passed_uncovered(name);
            None
        }
    }
}

/// Several exports may share an address where a linker folded equal functions: then the flags say
/// which stream the caller means by 0.
fn by_address(found: *mut c_void, flags: u64) -> Option<Hook> {
    let wanted = flags & PER_THREAD != 0;
    let mut first = None;
    for hook in hooks::by_real(found) {
        if is_per_thread(hook) == wanted {
            return Some(hook);
        }
        first = first.or(Some(hook));
    }
    first
}

fn is_per_thread(hook: Hook) -> bool {
    let name = hooks::name_of(hook).to_bytes();
    name.ends_with(b"_ptsz") || name.ends_with(b"_ptds")
}

/// An answer that is not in the table may still be an export by another way: the exact start of a
/// symbol of that name, or one of our own exports where the driver's reference to itself was bound
/// to us.
fn by_symbol(found: *mut c_void) -> Option<Hook> {
    let about = resolve::about(found)?;
    if about.dli_sname.is_null() || about.dli_saddr != found {
        return None;
    }
    // SAFETY: the dynamic linker's names are NUL-terminated and live as long as the object.
    let hook = hooks::by_name(unsafe { CStr::from_ptr(about.dli_sname) })?;
    (!hooks::real_of(hook).is_null()).then_some(hook)
}
