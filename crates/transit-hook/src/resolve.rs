//! Finding real symbols past our own exports.

use core::ffi::{CStr, c_void};

/// Handle of the mapped `libcuda.so.1`, if there is one. Never loads it.
#[must_use]
pub fn libcuda() -> Option<*mut c_void> {
    None
}

/// The symbol `name` of `library` as the dynamic linker knows it; null if it has none.
#[must_use]
pub fn real_symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    let _ = (library, name);
    core::ptr::null_mut()
}
