//! Answers about memory: how much there is, and what a pointer is. To frameworks converted memory
//! is device memory; libraries that choose a transport by it get the truth (see [`crate::callers`]).

use core::ffi::{c_int, c_void};

use super::{framed_stub, graph_memory, stub};
use crate::driver::{INVALID_VALUE, NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ledger::{Found, Ledger};
use crate::ops::hooked;
use crate::{callers, ceiling, state};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: i32 = 2;
/// `CU_POINTER_ATTRIBUTE_HOST_POINTER`.
const HOST_POINTER: i32 = 4;
/// `CU_POINTER_ATTRIBUTE_IS_MANAGED`.
const IS_MANAGED: i32 = 8;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: i32 = 9;
/// `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
const MEMPOOL_HANDLE: i32 = 17;
/// `CU_MEMORYTYPE_DEVICE`.
const TYPE_DEVICE: u32 = 2;

stub!(cuMemGetInfo_v2, 2, memory_info);
stub!(cuDeviceTotalMem_v2, 2, total_memory);
stub!(cuPointerGetAttribute, 3, attribute);
stub!(cuPointerGetAttributes, 4, attributes);
stub!(cuMemRangeGetAttribute, 5, range_attribute);
framed_stub!(cuMemRangeGetAttributes, range_attributes);

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
        graph_memory::refresh(driver, device);
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

/// The total is that of `cuMemGetInfo`.
unsafe extern "C" fn total_memory(bytes: *mut usize, device: c_int, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut usize, c_int) -> u32;
    let Some(real) = real!(Hook::cuDeviceTotalMem_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(bytes, device) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        let (Some(settings), Ok(device)) = (state::settings(), u32::try_from(device)) else {
            return result;
        };
        if result != SUCCESS || bytes.is_null() || callers::who(from).excluded {
            return result;
        }
        // SAFETY: the driver filled it in.
        let truth = unsafe { *bytes } as u64;
        let told = ceiling::total_bytes(driver, settings, device, truth);
        // SAFETY: non-null and the caller's to write to.
        unsafe { *bytes = usize::try_from(told).unwrap_or(usize::MAX) };
        result
    })
}

/// Converted memory of which the caller is to be told that it is plain device memory.
fn told_as_device(ledger: &Ledger, address: u64, from: usize) -> Option<Found> {
    let found = ledger.find(address).filter(|found| found.converted)?;
    (!callers::who(from).truthful).then_some(found)
}

/// Changes one answer. Only bytes the driver has written are written.
unsafe fn adjust(ledger: &Ledger, found: &Found, attribute: i32, data: *mut c_void) {
    match attribute {
        // The driver wrote 1, as one byte or four: clearing the lowest byte clears both.
        // SAFETY: at least one byte of the caller's.
        IS_MANAGED => unsafe { data.cast::<u8>().write(0) },
        // SAFETY: an unsigned int of the caller's.
        MEMORY_TYPE => unsafe { data.cast::<u32>().write(TYPE_DEVICE) },
        // Managed memory belongs to no device in particular.
        // SAFETY: an int of the caller's.
        DEVICE_ORDINAL => unsafe { data.cast::<u32>().write(found.device) },
        // Not our twin, of which the job knows nothing.
        MEMPOOL_HANDLE => {
            let pool = ledger.at_base(found.base).map_or(0, |known| known.pool);
            // SAFETY: a handle of the caller's.
            unsafe { data.cast::<usize>().write(pool) }
        }
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
        let Some(found) = told_as_device(ledger, address, from) else {
            return real_call();
        };
        if attribute == HOST_POINTER {
            // Device memory has none, and the driver says so.
            return INVALID_VALUE;
        }
        let result = real_call();
        if result == SUCCESS && !data.is_null() {
            // SAFETY: the driver filled the answer in.
            unsafe { adjust(ledger, &found, attribute, data) };
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
        let Some(found) = told_as_device(ledger, address, from) else {
            return result;
        };
        if result != SUCCESS || kinds.is_null() || data.is_null() {
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
                unsafe { adjust(ledger, &found, kind, answer) };
            }
        }
        result
    })
}

/// Ranges of device memory have no such attributes, and the driver says so.
unsafe extern "C" fn range_attribute(
    data: *mut c_void,
    bytes: usize,
    attribute: i32,
    address: u64,
    count: usize,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut c_void, usize, i32, u64, usize) -> u32;
    let Some(real) = real!(Hook::cuMemRangeGetAttribute, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(data, bytes, attribute, address, count) };
    hooked(plain, |_, ledger, real_call| {
        match told_as_device(ledger, address, from) {
            Some(_) => INVALID_VALUE,
            None => real_call(),
        }
    })
}

/// As above. Six arguments leave no register for the caller's address: it is read off the stack,
/// behind the unused registers of the ABI and a frame's padding.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn range_attributes(
    data: *const *mut c_void,
    sizes: *const usize,
    attributes: *const i32,
    number: usize,
    address: u64,
    count: usize,
    _padding: usize,
    from: usize,
) -> u32 {
    // SAFETY: the caller's arguments.
    unsafe { range_attributes_for(data, sizes, attributes, number, address, count, from) }
}

#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn range_attributes(
    data: *const *mut c_void,
    sizes: *const usize,
    attributes: *const i32,
    number: usize,
    address: u64,
    count: usize,
    _unused: usize,
    _unused_too: usize,
    _padding: usize,
    from: usize,
) -> u32 {
    // SAFETY: the caller's arguments.
    unsafe { range_attributes_for(data, sizes, attributes, number, address, count, from) }
}

unsafe fn range_attributes_for(
    data: *const *mut c_void,
    sizes: *const usize,
    attributes: *const i32,
    number: usize,
    address: u64,
    count: usize,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(
        *const *mut c_void,
        *const usize,
        *const i32,
        usize,
        u64,
        usize,
    ) -> u32;
    let Some(real) = real!(Hook::cuMemRangeGetAttributes, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(data, sizes, attributes, number, address, count) };
    hooked(plain, |_, ledger, real_call| {
        match told_as_device(ledger, address, from) {
            Some(_) => INVALID_VALUE,
            None => real_call(),
        }
    })
}
