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

/// How many bits an array holds for each of its elements, by `CUarray_format` (values as in
/// `cuda.h` of 12.9 and 13.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Per channel.
    Channel(u64),
    /// Per element, whatever the number of channels: packed, planar and subsampled formats.
    Element(u64),
    /// Per block of 4 by 4 elements.
    Block(u64),
}

fn depth(format: u32) -> Depth {
    use Depth::{Block, Channel, Element};
    match format {
        0x01 | 0x08 => Channel(8),
        0x02 | 0x09 | 0x10 => Channel(16),
        // BC1 and BC4; BC2, 3, 5, 6H and 7.
        0x91 | 0x92 | 0x97 | 0x98 => Block(64),
        0x93..=0x96 | 0x99..=0x9e => Block(128),
        // Chroma of every second row and column: NV12; P010, P016.
        0xb0 | 0x53 | 0x59 => Element(12),
        0x9f | 0xa1 | 0x54 | 0x5a => Element(24),
        // Of every second column: NV16, YUY2; P210, P216, Y210, Y216.
        0xa2 | 0xa5 | 0x51 | 0x55 | 0x5b => Element(16),
        0xa3 | 0xa4 | 0xa6 | 0xa7 | 0x56 | 0x5c => Element(32),
        // Three channels of 8 bits, of 16; four of 8 (AYUV), of 10, 10, 10 and 2 (Y410), of 16 (Y416).
        0xb2 | 0xb4 | 0x57 | 0x5d => Element(24),
        0xb3 | 0xb5 | 0x58 | 0x5e => Element(48),
        0xa8 | 0xa9 | 0x50 | 0x52 => Element(32),
        0xb1 => Element(64),
        // Normalised integers that name their channels.
        0xc0 | 0xc6 => Element(8),
        0xc1 | 0xc3 | 0xc7 | 0xc9 => Element(16),
        0xc2 | 0xc4 | 0xc8 | 0xca => Element(32),
        0xc5 | 0xcb => Element(64),
        // 32-bit integers and floats, and what is newer than this list.
        _ => Channel(32),
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

/// Bytes of an array; what one dimension does not have counts as one.
fn product(extents: [usize; 3], format: u32, channels: u32) -> u64 {
    let [width, height, layers] = extents.map(|extent| extent.max(1) as u64);
    let of = |extents: [u64; 3]| {
        let [first, rest @ ..] = extents;
        rest.iter()
            .fold(first, |all, extent| all.saturating_mul(*extent))
    };
    let bits = match depth(format) {
        Depth::Channel(bits) => {
            of([width, height, layers]).saturating_mul(bits * u64::from(channels.max(1)))
        }
        Depth::Element(bits) => of([width, height, layers]).saturating_mul(bits),
        Depth::Block(bits) => {
            of([width.div_ceil(4), height.div_ceil(4), layers]).saturating_mul(bits)
        }
    };
    bits.div_ceil(8)
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

#[cfg(test)]
mod tests {
    use super::product;

    #[test]
    fn arrays_of_every_kind_of_format_have_their_bytes() {
        let image = |format, channels| product([1920, 1080, 0], format, channels);
        const PIXELS: u64 = 1920 * 1080;
        for (format, channels, bytes) in [
            (0x01, 4, PIXELS * 4),
            (0x10, 2, PIXELS * 4),
            (0x20, 4, PIXELS * 16),
            (0xb0, 3, PIXELS * 3 / 2),
            (0x9f, 3, PIXELS * 3),
            (0xa5, 2, PIXELS * 2),
            (0xb1, 4, PIXELS * 8),
            (0xc1, 2, PIXELS * 2),
            (0xc5, 4, PIXELS * 8),
            (0x91, 4, PIXELS / 2),
            (0x9d, 4, PIXELS),
        ] {
            assert_eq!(image(format, channels), bytes, "format {format:#x}");
        }
        assert_eq!(
            product([5, 5, 2], 0x91, 4),
            2 * 2 * 2 * 8,
            "blocks are whole"
        );
        assert_eq!(
            product([usize::MAX; 3], 0x20, 4),
            u64::MAX.div_ceil(8),
            "no overflow"
        );
    }
}
