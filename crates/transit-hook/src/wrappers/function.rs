//! Functions found by name, and modules and libraries that are unloaded.

use core::ffi::{CStr, c_char};

use super::stub;
use crate::driver::{Handle, NOT_FOUND, SUCCESS};
use crate::functions;
use crate::hooks::{Hook, real};
use crate::ops::hooked;

stub!(cuModuleGetFunction, none, get::<0>);
stub!(cuLibraryGetKernel, none, get::<1>);
stub!(cuModuleUnload, none, unload::<0>);
stub!(cuLibraryUnload, none, unload::<1>);

unsafe extern "C" fn get<const HOOK: usize>(
    answer: *mut Handle,
    holder: Handle,
    name: *const c_char,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> u32;
    let hook = if HOOK == 0 {
        Hook::cuModuleGetFunction
    } else {
        Hook::cuLibraryGetKernel
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, holder, name) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        if result == SUCCESS && !answer.is_null() && !name.is_null() {
            // SAFETY: the driver accepted it as a NUL-terminated name.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: the driver filled the answer in.
            functions::found_by_name(driver, unsafe { *answer }, name);
        }
        result
    })
}

unsafe extern "C" fn unload<const HOOK: usize>(what: Handle) -> u32 {
    let hook = if HOOK == 0 {
        Hook::cuModuleUnload
    } else {
        Hook::cuLibraryUnload
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(what) };
    hooked(plain, |_, _, real_call| {
        // Before the call: from the moment it frees a handle, another thread may be given it again.
        functions::unloaded();
        real_call()
    })
}
