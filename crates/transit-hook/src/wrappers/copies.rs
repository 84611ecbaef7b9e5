//! Copies described by a structure: 2-D and 3-D, within a context or between two.

use core::ffi::c_void;
use std::sync::OnceLock;

use transit_format::ids::FunctionId;
use transit_format::trace::model::OpKind;

use super::stub;
use crate::driver::{Handle, NOT_FOUND};
use crate::functions;
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::observer::DeviceRecords;
use crate::ops::{self, Described, Site};
use crate::scan::Pointers;

/// `CU_MEMORYTYPE_HOST`, whose address lies in the host field.
const TYPE_HOST: u32 = 1;
/// `CU_MEMORYTYPE_ARRAY`, which has no address.
const TYPE_ARRAY: u32 = 3;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2d {
    src_x: usize,
    src_y: usize,
    src_type: u32,
    src_host: u64,
    src_device: u64,
    src_array: Handle,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: u64,
    dst_array: Handle,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has contexts in place of what is reserved.
#[repr(C)]
struct Copy3d {
    src_x: usize,
    src_y: usize,
    src_z: usize,
    src_lod: usize,
    src_type: u32,
    src_host: u64,
    src_device: u64,
    src_array: Handle,
    reserved0: usize,
    src_pitch: usize,
    src_height: usize,
    dst_x: usize,
    dst_y: usize,
    dst_z: usize,
    dst_lod: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: u64,
    dst_array: Handle,
    reserved1: usize,
    dst_pitch: usize,
    dst_height: usize,
    width: usize,
    height: usize,
    depth: usize,
}

/// One side of a copy.
struct Side {
    kind: u32,
    host: u64,
    device: u64,
    skipped: usize,
    pitch: usize,
    rows: usize,
    width: usize,
}

impl Side {
    /// Address and extent; nothing for an array.
    fn place(&self) -> Option<(u64, u64)> {
        let base = match self.kind {
            TYPE_ARRAY => return None,
            TYPE_HOST => self.host,
            _ => self.device,
        };
        let extent = self
            .pitch
            .saturating_mul(self.rows.saturating_sub(1))
            .saturating_add(self.width);
        Some((base.wrapping_add(self.skipped as u64), extent as u64))
    }
}

impl Copy2d {
    /// Bytes copied.
    fn payload(&self) -> u64 {
        self.width.saturating_mul(self.height) as u64
    }

    fn sides(&self) -> [Side; 2] {
        [
            Side {
                kind: self.dst_type,
                host: self.dst_host,
                device: self.dst_device,
                skipped: self
                    .dst_y
                    .wrapping_mul(self.dst_pitch)
                    .wrapping_add(self.dst_x),
                pitch: self.dst_pitch,
                rows: self.height,
                width: self.width,
            },
            Side {
                kind: self.src_type,
                host: self.src_host,
                device: self.src_device,
                skipped: self
                    .src_y
                    .wrapping_mul(self.src_pitch)
                    .wrapping_add(self.src_x),
                pitch: self.src_pitch,
                rows: self.height,
                width: self.width,
            },
        ]
    }
}

impl Copy3d {
    /// Bytes copied.
    fn payload(&self) -> u64 {
        let rows = self.height.saturating_mul(self.depth);
        self.width.saturating_mul(rows) as u64
    }

    fn sides(&self) -> [Side; 2] {
        let skipped = |x: usize, y: usize, z: usize, pitch: usize, height: usize| {
            z.wrapping_mul(height)
                .wrapping_add(y)
                .wrapping_mul(pitch)
                .wrapping_add(x)
        };
        let rows = |height: usize| {
            height
                .saturating_mul(self.depth.saturating_sub(1))
                .saturating_add(self.height)
        };
        [
            Side {
                kind: self.dst_type,
                host: self.dst_host,
                device: self.dst_device,
                skipped: skipped(
                    self.dst_x,
                    self.dst_y,
                    self.dst_z,
                    self.dst_pitch,
                    self.dst_height,
                ),
                pitch: self.dst_pitch,
                rows: rows(self.dst_height),
                width: self.width,
            },
            Side {
                kind: self.src_type,
                host: self.src_host,
                device: self.src_device,
                skipped: skipped(
                    self.src_x,
                    self.src_y,
                    self.src_z,
                    self.src_pitch,
                    self.src_height,
                ),
                pitch: self.src_pitch,
                rows: rows(self.src_height),
                width: self.width,
            },
        ]
    }
}

/// The op of a copy, if it touches managed memory.
pub(super) fn described(
    pointers: &Pointers,
    extent: u64,
    payload_bytes: u64,
    records: DeviceRecords,
) -> Option<Described> {
    static NAME: OnceLock<(FunctionId, u64)> = OnceLock::new();
    if pointers.as_slice().is_empty() {
        ops::pass_transfer();
        return None;
    }
    let (function, hash) = functions::of_pseudo("memcpy", &NAME);
    Some(Described {
        kind: OpKind::Memcpy,
        function,
        hash,
        shape: ops::shape_of_bytes(extent),
        records,
        payload_bytes,
    })
}

fn look_at(
    ledger: &Ledger,
    sides: &[Side],
    payload_bytes: u64,
    pointers: &mut Pointers,
) -> Option<Described> {
    let mut extent = 0;
    for (address, bytes) in sides.iter().filter_map(Side::place) {
        pointers.look_at(ledger, address, bytes);
        extent = extent.max(bytes);
    }
    described(
        pointers,
        extent,
        payload_bytes,
        DeviceRecords::one(OpKind::Memcpy),
    )
}

macro_rules! shaped {
    ($type:ident, $name:ident $inner:ident $per_thread:literal) => {
        stub!($name, 1, $inner);
        unsafe extern "C" fn $inner(shape: *const c_void, from: usize) -> u32 {
            type Real = unsafe extern "C" fn(*const c_void) -> u32;
            let Some(real) = real!(Hook::$name, Real) else {
                return NOT_FOUND;
            };
            ops::run(
                Site {
                    stream: 0,
                    per_thread: $per_thread,
                    caller: from,
                },
                |_, ledger, pointers| {
                    // SAFETY: null, or the caller's description.
                    let shape = unsafe { shape.cast::<$type>().as_ref() }?;
                    look_at(ledger, &shape.sides(), shape.payload(), pointers)
                },
                // SAFETY: the caller's arguments.
                || unsafe { real(shape) },
            )
        }
    };
    ($type:ident, $name:ident $inner:ident $per_thread:literal stream) => {
        stub!($name, 2, $inner);
        unsafe extern "C" fn $inner(shape: *const c_void, stream: Handle, from: usize) -> u32 {
            type Real = unsafe extern "C" fn(*const c_void, Handle) -> u32;
            let Some(real) = real!(Hook::$name, Real) else {
                return NOT_FOUND;
            };
            ops::run(
                Site {
                    stream,
                    per_thread: $per_thread,
                    caller: from,
                },
                |_, ledger, pointers| {
                    // SAFETY: null, or the caller's description.
                    let shape = unsafe { shape.cast::<$type>().as_ref() }?;
                    look_at(ledger, &shape.sides(), shape.payload(), pointers)
                },
                // SAFETY: the caller's arguments.
                || unsafe { real(shape, stream) },
            )
        }
    };
}

shaped!(Copy2d, cuMemcpy2D_v2 copy_2d false);
shaped!(Copy2d, cuMemcpy2D_v2_ptds copy_2d_ptds true);
shaped!(Copy2d, cuMemcpy2DUnaligned_v2 copy_2d_unaligned false);
shaped!(Copy2d, cuMemcpy2DUnaligned_v2_ptds copy_2d_unaligned_ptds true);
shaped!(Copy2d, cuMemcpy2DAsync_v2 copy_2d_async false stream);
shaped!(Copy2d, cuMemcpy2DAsync_v2_ptsz copy_2d_async_ptsz true stream);
shaped!(Copy3d, cuMemcpy3D_v2 copy_3d false);
shaped!(Copy3d, cuMemcpy3D_v2_ptds copy_3d_ptds true);
shaped!(Copy3d, cuMemcpy3DAsync_v2 copy_3d_async false stream);
shaped!(Copy3d, cuMemcpy3DAsync_v2_ptsz copy_3d_async_ptsz true stream);
// `CUDA_MEMCPY3D_PEER` has the contexts where the plain form has its reserved fields.
shaped!(Copy3d, cuMemcpy3DPeer copy_3d_peer false);
shaped!(Copy3d, cuMemcpy3DPeer_ptds copy_3d_peer_ptds true);
shaped!(Copy3d, cuMemcpy3DPeerAsync copy_3d_peer_async false stream);
shaped!(Copy3d, cuMemcpy3DPeerAsync_ptsz copy_3d_peer_async_ptsz true stream);
