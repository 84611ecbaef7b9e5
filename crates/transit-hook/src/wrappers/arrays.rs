//! Arrays and mipmapped arrays: opaque device memory that no address points to. Counted.

use core::ffi::c_void;

use super::stub;
use crate::driver::{Handle, NOT_FOUND, SUCCESS};
use crate::held::{self, Kind};
use crate::hooks::{Hook, real};
use crate::ops::hooked;

stub!(cuArrayCreate_v2, none, array_create);
stub!(cuArray3DCreate_v2, none, array_create_3d);
stub!(cuArrayDestroy, none, array_destroy::<false>);
stub!(cuMipmappedArrayCreate, none, mipmap_create);
stub!(cuMipmappedArrayDestroy, none, array_destroy::<true>);

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

fn product(extents: [usize; 3], format: u32, channels: u32) -> u64 {
    extents.iter().fold(
        element_bytes(format) * u64::from(channels.max(1)),
        |bytes, extent| bytes.saturating_mul((*extent).max(1) as u64),
    )
}

impl Array2d {
    fn bytes(&self) -> u64 {
        product([self.width, self.height, 1], self.format, self.channels)
    }
}

impl Array3d {
    fn bytes(&self) -> u64 {
        let extents = [self.width, self.height, self.depth];
        product(extents, self.format, self.channels)
    }
}

/// Runs a creation; `bytes` is `None` for a description that is missing, which the driver refuses.
fn create(handle: *mut Handle, bytes: Option<u64>, plain: impl Fn() -> u32) -> u32 {
    hooked(plain, |driver, _, real_call| {
        let (Some(bytes), false) = (bytes, handle.is_null()) else {
            return real_call();
        };
        let device = driver.ctx_device().unwrap_or(0);
        let result = held::counted(driver, device, bytes, real_call);
        if result == SUCCESS {
            // SAFETY: the driver accepted the pointer and filled it in.
            let made = unsafe { *handle };
            held::hold(Kind::Array, made as u64, device, bytes);
        }
        result
    })
}

unsafe extern "C" fn array_create(handle: *mut Handle, shape: *const c_void) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void) -> u32;
    let Some(real) = real!(Hook::cuArrayCreate_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: null, or the caller's description.
    let bytes = unsafe { shape.cast::<Array2d>().as_ref() }.map(Array2d::bytes);
    // SAFETY: the caller's arguments.
    create(handle, bytes, || unsafe { real(handle, shape) })
}

unsafe extern "C" fn array_create_3d(handle: *mut Handle, shape: *const c_void) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void) -> u32;
    let Some(real) = real!(Hook::cuArray3DCreate_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: null, or the caller's description.
    let bytes = unsafe { shape.cast::<Array3d>().as_ref() }.map(Array3d::bytes);
    // SAFETY: the caller's arguments.
    create(handle, bytes, || unsafe { real(handle, shape) })
}

/// A mipmapped array takes a third more than its largest level.
unsafe extern "C" fn mipmap_create(handle: *mut Handle, shape: *const c_void, levels: u32) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void, u32) -> u32;
    let Some(real) = real!(Hook::cuMipmappedArrayCreate, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: null, or the caller's description.
    let first = unsafe { shape.cast::<Array3d>().as_ref() }.map(Array3d::bytes);
    let bytes = first.map(|first| first.saturating_add(if levels > 1 { first / 3 } else { 0 }));
    // SAFETY: the caller's arguments.
    create(handle, bytes, || unsafe { real(handle, shape, levels) })
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
        held::released(Kind::Array, handle as u64, real_call)
    })
}
