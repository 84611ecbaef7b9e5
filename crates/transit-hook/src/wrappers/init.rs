//! `cuInit`, the resolvers, and the ends of contexts.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::stub;
use crate::driver::{Handle, NO_DEVICE, NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ops::hooked;
use crate::{contexts, guard, proc_address, state};

/// `cuInit`: after its first success the shim goes live.
///
/// # Safety
/// As `cuInit`.
pub unsafe extern "C" fn cuInit(flags: u32) -> u32 {
    let Some(real) = real!(Hook::cuInit, unsafe extern "C" fn(u32) -> u32) else {
        // A program that took our export for a driver's: there is none.
        return NO_DEVICE;
    };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(flags) };
    if result == SUCCESS && !guard::inside() {
        state::started();
    }
    result
}

/// `cuGetProcAddress` of CUDA 11.
///
/// # Safety
/// As `cuGetProcAddress`.
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    answer: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> u32 {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32;
    let Some(real) = real!(Hook::cuGetProcAddress, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(symbol, answer, version, flags) };
    // SAFETY: the caller's arguments, after the call that fills them in.
    unsafe { substitute(result, symbol, answer, flags) };
    result
}

/// `cuGetProcAddress_v2`.
///
/// # Safety
/// As `cuGetProcAddress_v2`.
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    answer: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    type Real =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    let Some(real) = real!(Hook::cuGetProcAddress_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(symbol, answer, version, flags, status) };
    // SAFETY: a non-null status pointer is the caller's to write to; 0 is "found".
    let found = status.is_null() || unsafe { *status } == 0;
    if found {
        // SAFETY: the caller's arguments, after the call that fills them in.
        unsafe { substitute(result, symbol, answer, flags) };
    }
    result
}

unsafe fn substitute(result: u32, symbol: *const c_char, answer: *mut *mut c_void, flags: u64) {
    if result != SUCCESS || answer.is_null() || symbol.is_null() {
        return;
    }
    // SAFETY: the driver filled the answer in.
    let found = unsafe { *answer };
    if found.is_null() {
        return;
    }
    // SAFETY: the driver accepted it as a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(symbol) };
    let wrapper = guard::protect(|| proc_address::wrapper_for(found, name, flags));
    if let Some(wrapper) = wrapper.flatten() {
        // SAFETY: as above, the caller's to write to.
        unsafe { *answer = wrapper };
    }
}

unsafe extern "C" fn destroy<const FORM: usize>(context: Handle) -> u32 {
    let hook = if FORM == 0 {
        Hook::cuCtxDestroy
    } else {
        Hook::cuCtxDestroy_v2
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(context) };
    hooked(plain, |_, ledger, real_call| {
        contexts::may_end();
        let result = real_call();
        if result == SUCCESS {
            contexts::gone(ledger, context);
        }
        result
    })
}

/// Releases and resets of a primary context: a release ends it if it was the last, a reset always.
unsafe extern "C" fn primary<const FORM: usize>(device: c_int) -> u32 {
    let hook = match FORM {
        0 => Hook::cuDevicePrimaryCtxRelease,
        1 => Hook::cuDevicePrimaryCtxRelease_v2,
        2 => Hook::cuDevicePrimaryCtxReset,
        _ => Hook::cuDevicePrimaryCtxReset_v2,
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(c_int) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(device) };
    hooked(plain, |driver, ledger, real_call| {
        contexts::may_end();
        let context = driver.primary_context(device).ok().flatten();
        let result = real_call();
        let ended = FORM >= 2 || driver.primary_active(device) == Ok(false);
        if let Some(context) = context.filter(|_| result == SUCCESS && ended) {
            contexts::gone(ledger, context);
        }
        result
    })
}

stub!(cuCtxDestroy, none, destroy::<0>);
stub!(cuCtxDestroy_v2, none, destroy::<1>);
stub!(cuDevicePrimaryCtxRelease, none, primary::<0>);
stub!(cuDevicePrimaryCtxRelease_v2, none, primary::<1>);
stub!(cuDevicePrimaryCtxReset, none, primary::<2>);
stub!(cuDevicePrimaryCtxReset_v2, none, primary::<3>);
