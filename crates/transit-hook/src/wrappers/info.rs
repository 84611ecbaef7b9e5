//! Answers about memory: how much there is, and what a pointer is. To frameworks converted memory
//! is device memory; libraries that choose a transport by it get the truth (see [`crate::callers`]).

use core::ffi::c_void;

use super::stub;
use crate::driver::{NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::ops::hooked;
use crate::{callers, ceiling, state};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: i32 = 2;
/// `CU_POINTER_ATTRIBUTE_HOST_POINTER`.
const HOST_POINTER: i32 = 4;
/// `CU_POINTER_ATTRIBUTE_IS_MANAGED`.
const IS_MANAGED: i32 = 8;
/// `CU_MEMORYTYPE_DEVICE`.
const TYPE_DEVICE: u32 = 2;

stub!(cuMemGetInfo_v2, 2, memory_info);
stub!(cuPointerGetAttribute, 3, attribute);
stub!(cuPointerGetAttributes, 4, attributes);

unsafe extern "C" fn memory_info(free: *mut usize, total: *mut usize, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut usize, *mut usize) -> u32;
    let Some(real) = real!(Hook::cuMemGetInfo_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(free, total) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        let caller = callers::who(from);
        if result != SUCCESS || free.is_null() || total.is_null() || caller.excluded {
            return result;
        }
        // SAFETY: the driver filled it in.
        let truly_free = unsafe { *free } as u64;
        // SAFETY: as above.
        let truth = (truly_free, unsafe { *total } as u64);
        let Some(settings) = state::settings() else {
            return result;
        };
        let Ok(device) = driver.ctx_device() else {
            return result;
        };
        let Some((free_bytes, total_bytes)) = ceiling::memory_info(driver, settings, device, truth)
        else {
            return result;
        };
        // SAFETY: non-null and the caller's to write to.
        unsafe { *free = usize::try_from(free_bytes).unwrap_or(usize::MAX) };
        // SAFETY: as above.
        unsafe { *total = usize::try_from(total_bytes).unwrap_or(usize::MAX) };
        result
    })
}

/// Whether the caller is to be told that `address` is plain device memory.
fn told_as_device(ledger: &Ledger, address: u64, from: usize) -> bool {
    ledger.find(address).is_some_and(|found| found.converted) && !callers::who(from).truthful
}

/// Changes one answer. Only bytes the driver has written are written.
unsafe fn adjust(attribute: i32, data: *mut c_void) {
    match attribute {
        // The driver wrote 1, as one byte or four: clearing the lowest byte clears both.
        // SAFETY: at least one byte of the caller's.
        IS_MANAGED => unsafe { data.cast::<u8>().write(0) },
        // SAFETY: an unsigned int of the caller's.
        MEMORY_TYPE => unsafe { data.cast::<u32>().write(TYPE_DEVICE) },
        _ => {}
    }
}

unsafe extern "C" fn attribute(
    data: *mut c_void,
    attribute: i32,
    address: u64,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut c_void, i32, u64) -> u32;
    let Some(real) = real!(Hook::cuPointerGetAttribute, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(data, attribute, address) };
    hooked(plain, |_, ledger, real_call| {
        let result = real_call();
        if result == SUCCESS && !data.is_null() && told_as_device(ledger, address, from) {
            // SAFETY: the driver filled the answer in.
            unsafe { adjust(attribute, data) };
        }
        result
    })
}

unsafe extern "C" fn attributes(
    count: u32,
    kinds: *const i32,
    data: *const *mut c_void,
    address: u64,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(u32, *const i32, *const *mut c_void, u64) -> u32;
    let Some(real) = real!(Hook::cuPointerGetAttributes, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(count, kinds, data, address) };
    hooked(plain, |_, ledger, real_call| {
        let result = real_call();
        if result != SUCCESS
            || kinds.is_null()
            || data.is_null()
            || !told_as_device(ledger, address, from)
        {
            return result;
        }
        for place in 0..count as usize {
            // SAFETY: the caller's arrays have `count` entries.
            let kind = unsafe { *kinds.wrapping_add(place) };
            // SAFETY: as above.
            let answer = unsafe { *data.wrapping_add(place) };
            if answer.is_null() {
                continue;
            }
            if kind == HOST_POINTER {
                // SAFETY: a pointer of the caller's; device memory has no host pointer.
                unsafe { answer.cast::<usize>().write(0) };
            } else {
                // SAFETY: the driver filled the answer in.
                unsafe { adjust(kind, answer) };
            }
        }
        result
    })
}
