//! Device memory that is counted but stays as it is: stream-ordered pools, virtual memory
//! management, arrays.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::stub;
use crate::callers;
use crate::ceiling;
use crate::driver::{Driver, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ops::hooked;
use crate::{coverage, ledger, state, streams};

stub!(cuMemAllocAsync, 3, alloc_async::<false>);
stub!(cuMemAllocAsync_ptsz, 3, alloc_async::<true>);
stub!(cuMemAllocFromPoolAsync, 4, alloc_from_pool::<false>);
stub!(cuMemAllocFromPoolAsync_ptsz, 4, alloc_from_pool::<true>);
stub!(cuMemFreeAsync, none, free_async::<false>);
stub!(cuMemFreeAsync_ptsz, none, free_async::<true>);
stub!(cuMemCreate, 4, create);
stub!(cuMemRelease, none, release);
stub!(cuArrayCreate_v2, 2, array_create);
stub!(cuArray3DCreate_v2, 2, array_create_3d);
stub!(cuArrayDestroy, none, array_destroy::<false>);
stub!(cuMipmappedArrayCreate, 3, mipmap_create);
stub!(cuMipmappedArrayDestroy, none, array_destroy::<true>);

/// What a handle or address holds: kind apart, so that equal numbers do not meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Pool,
    Virtual,
    Array,
}

/// Device and bytes by what holds them.
type Held = HashMap<(Kind, u64), (u32, u64)>;

static HELD: Mutex<Option<Held>> = Mutex::new(None);

fn hold(kind: Kind, key: u64, device: u32, bytes: u64) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_default()
        .insert((kind, key), (device, bytes));
}

/// Runs a release. What was held is taken out first: once the driver has it back, another thread
/// may be given the same handle.
fn released(kind: Kind, key: u64, real_call: &dyn Fn() -> u32) -> u32 {
    let taken = HELD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .remove(&(kind, key));
    let result = real_call();
    let Some((device, bytes)) = taken else {
        return result;
    };
    if result != SUCCESS {
        hold(kind, key, device, bytes);
        return result;
    }
    if let Some(ledger) = ledger::get() {
        ledger.other_device_bytes().sub(bytes);
    }
    ceiling::give_back_unconverted(device, bytes);
    result
}

/// Runs an allocation that stays as it is, counting it if it succeeds. `key` reads the handle or
/// address the driver filled in.
fn counted(
    driver: &Driver,
    kind: Kind,
    device: u32,
    bytes: u64,
    real_call: &dyn Fn() -> u32,
    key: impl FnOnce() -> u64,
) -> u32 {
    let Some(settings) = state::settings() else {
        return real_call();
    };
    if !ceiling::ask_unconverted(driver, settings, device, bytes) {
        return OUT_OF_MEMORY;
    }
    let result = real_call();
    if result != SUCCESS {
        ceiling::give_back_unconverted(device, bytes);
        return result;
    }
    if let Some(ledger) = ledger::get() {
        ledger.other_device_bytes().add(bytes);
    }
    hold(kind, key(), device, bytes);
    result
}

/// Frees memory that is not in the ledger of `cuMemAlloc`: `cuMemFree` takes pool memory as well.
pub(super) fn free_other(
    ledger: &ledger::Ledger,
    address: u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let known = HELD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .is_some_and(|held| held.contains_key(&(Kind::Pool, address)));
    if !known {
        ledger.unknown_free();
    }
    released(Kind::Pool, address, real_call)
}

fn device_of(driver: &Driver) -> u32 {
    driver.ctx_device().unwrap_or(0)
}

fn note_bypass(how: &str, from: usize, bytes: u64) {
    let caller = callers::who(from);
    if !caller.excluded {
        coverage::bypassed(how, caller.name, bytes);
    }
}

unsafe extern "C" fn alloc_async<const PER_THREAD: bool>(
    answer: *mut u64,
    bytes: usize,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemAllocAsync_ptsz
    } else {
        Hook::cuMemAllocAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, stream) };
    hooked(plain, |driver, _, real_call| {
        note_bypass("cuMemAllocAsync", from, bytes as u64);
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Pool,
            device_of(driver),
            bytes as u64,
            real_call,
            || unsafe { *answer },
        )
    })
}

unsafe extern "C" fn alloc_from_pool<const PER_THREAD: bool>(
    answer: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, Handle, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemAllocFromPoolAsync_ptsz
    } else {
        Hook::cuMemAllocFromPoolAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, pool, stream) };
    hooked(plain, |driver, _, real_call| {
        note_bypass("cuMemAllocFromPoolAsync", from, bytes as u64);
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Pool,
            device_of(driver),
            bytes as u64,
            real_call,
            || unsafe { *answer },
        )
    })
}

/// Frees pool memory, or memory of `cuMemAlloc`, which `cuMemFreeAsync` accepts as well.
unsafe extern "C" fn free_async<const PER_THREAD: bool>(address: u64, stream: Handle) -> u32 {
    type Real = unsafe extern "C" fn(u64, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemFreeAsync_ptsz
    } else {
        Hook::cuMemFreeAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(address, stream) };
    hooked(plain, |driver, ledger, real_call| {
        if streams::captured(driver, streams::canonical(stream, PER_THREAD)) {
            // A node of a graph: nothing is freed now, and waiting would ruin the capture.
            return real_call();
        }
        if let Some(known) = ledger.at_base(address) {
            if known.converted {
                return free_converted(driver, ledger, address, stream, PER_THREAD);
            }
            return super::memory::free_known(ledger, address, real_call);
        }
        released(Kind::Pool, address, real_call)
    })
}

/// Managed memory cannot be freed in stream order: wait for the stream, then free it.
fn free_converted(
    driver: &Driver,
    ledger: &ledger::Ledger,
    address: u64,
    stream: Handle,
    per_thread: bool,
) -> u32 {
    let stream = streams::canonical(stream, per_thread);
    if let Err(error) = driver.stream_synchronize(stream) {
        return error;
    }
    let Some(free) = driver.mem_free else {
        return NOT_FOUND;
    };
    super::memory::free_known(ledger, address, &|| {
        // SAFETY: memory of ours that the job gives back.
        unsafe { free(address) }
    })
}

/// The first fields of `CUmemAllocationProp`.
#[repr(C)]
struct AllocationProp {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location_id: i32,
}

unsafe extern "C" fn create(
    handle: *mut u64,
    bytes: usize,
    prop: *const c_void,
    flags: u64,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> u32;
    const LOCATION_DEVICE: i32 = 1;
    let Some(real) = real!(Hook::cuMemCreate, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, bytes, prop, flags) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's properties, which begin with these fields. There may be no
        // current context: the device is what the properties say.
        let Some(prop) = (unsafe { prop.cast::<AllocationProp>().as_ref() }) else {
            return real_call();
        };
        let Ok(device) = u32::try_from(prop.location_id) else {
            return real_call();
        };
        if prop.location_kind != LOCATION_DEVICE || handle.is_null() {
            return real_call();
        }
        note_bypass("cuMemCreate (expandable segments?)", from, bytes as u64);
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Virtual,
            device,
            bytes as u64,
            real_call,
            || unsafe { *handle },
        )
    })
}

unsafe extern "C" fn release(handle: u64) -> u32 {
    let Some(real) = real!(Hook::cuMemRelease, unsafe extern "C" fn(u64) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(handle) };
    hooked(plain, |_, _, real_call| {
        released(Kind::Virtual, handle, real_call)
    })
}

/// Bytes of an element of `CUarray_format`.
fn element_bytes(format: u32) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

/// `CUDA_ARRAY3D_DESCRIPTOR`; the 2-D form lacks depth and flags, and its format follows height.
#[repr(C)]
struct Array3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

#[repr(C)]
struct Array2d {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

fn array_bytes(width: usize, height: usize, depth: usize, format: u32, channels: u32) -> u64 {
    [width, height.max(1), depth.max(1)].iter().fold(
        element_bytes(format) * u64::from(channels.max(1)),
        |bytes, extent| bytes.saturating_mul(*extent as u64),
    )
}

unsafe extern "C" fn array_create(handle: *mut Handle, shape: *const c_void, _from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void) -> u32;
    let Some(real) = real!(Hook::cuArrayCreate_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, shape) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's description.
        let Some(shape) = (unsafe { shape.cast::<Array2d>().as_ref() }) else {
            return real_call();
        };
        let bytes = array_bytes(shape.width, shape.height, 1, shape.format, shape.channels);
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Array,
            device_of(driver),
            bytes,
            real_call,
            || unsafe { *handle as u64 },
        )
    })
}

unsafe extern "C" fn array_create_3d(
    handle: *mut Handle,
    shape: *const c_void,
    _from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void) -> u32;
    let Some(real) = real!(Hook::cuArray3DCreate_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, shape) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's description.
        let Some(shape) = (unsafe { shape.cast::<Array3d>().as_ref() }) else {
            return real_call();
        };
        let bytes = array_bytes(
            shape.width,
            shape.height,
            shape.depth,
            shape.format,
            shape.channels,
        );
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Array,
            device_of(driver),
            bytes,
            real_call,
            || unsafe { *handle as u64 },
        )
    })
}

/// A mipmapped array takes a third more than its largest level.
unsafe extern "C" fn mipmap_create(
    handle: *mut Handle,
    shape: *const c_void,
    levels: u32,
    _from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void, u32) -> u32;
    let Some(real) = real!(Hook::cuMipmappedArrayCreate, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, shape, levels) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's description.
        let Some(shape) = (unsafe { shape.cast::<Array3d>().as_ref() }) else {
            return real_call();
        };
        let first = array_bytes(
            shape.width,
            shape.height,
            shape.depth,
            shape.format,
            shape.channels,
        );
        let bytes = if levels > 1 {
            first.saturating_add(first / 3)
        } else {
            first
        };
        // SAFETY: read after success, when the driver has filled it in.
        counted(
            driver,
            Kind::Array,
            device_of(driver),
            bytes,
            real_call,
            || unsafe { *handle as u64 },
        )
    })
}

unsafe extern "C" fn array_destroy<const MIPMAP: bool>(handle: Handle) -> u32 {
    let hook = if MIPMAP {
        Hook::cuMipmappedArrayDestroy
    } else {
        Hook::cuArrayDestroy
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(handle) };
    hooked(plain, |_, _, real_call| {
        released(Kind::Array, handle as u64, real_call)
    })
}
