//! `cuInit`, the resolvers, and the ends of contexts.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::stub;
use crate::driver::{NO_DEVICE, NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::{guard, proc_address, state};

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

unsafe extern "C" fn context_ends<const HOOK: usize>(argument: usize) -> u32 {
    let hook = match HOOK {
        0 => Hook::cuCtxDestroy,
        1 => Hook::cuCtxDestroy_v2,
        2 => Hook::cuDevicePrimaryCtxRelease,
        3 => Hook::cuDevicePrimaryCtxRelease_v2,
        4 => Hook::cuDevicePrimaryCtxReset,
        _ => Hook::cuDevicePrimaryCtxReset_v2,
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(usize) -> u32) else {
        return NOT_FOUND;
    };
    if let Some(_guard) = guard::enter() {
        let _ = guard::protect(state::context_ends);
    }
    // SAFETY: the caller's argument.
    unsafe { real(argument) }
}

stub!(cuCtxDestroy, none, context_ends::<0>);
stub!(cuCtxDestroy_v2, none, context_ends::<1>);
stub!(cuDevicePrimaryCtxRelease, none, context_ends::<2>);
stub!(cuDevicePrimaryCtxRelease_v2, none, context_ends::<3>);
stub!(cuDevicePrimaryCtxReset, none, context_ends::<4>);
stub!(cuDevicePrimaryCtxReset_v2, none, context_ends::<5>);
