//! Copies in batches, and single copies with attributes.

use core::ffi::c_void;

use transit_format::trace::model::OpKind;

use super::copies::described;
use super::stub;
use crate::driver::{Handle, NOT_FOUND};
use crate::hooks::{Hook, real};
use crate::observer::DeviceRecords;
use crate::ops::{self, Site};

/// Whether the driver makes one copy of a batch or many, and of how many bytes each, is its own
/// business.
const MANY: DeviceRecords = DeviceRecords {
    open: true,
    ..DeviceRecords::one(OpKind::Memcpy)
};

/// Copies of a batch looked at.
const MOST_COPIES: usize = 4096;

stub!(cuMemcpyBatchAsync, none, batch_first::<false>);
stub!(cuMemcpyBatchAsync_ptsz, none, batch_first::<true>);
stub!(cuMemcpyBatchAsync_v2, none, batch::<false>);
stub!(cuMemcpyBatchAsync_v2_ptsz, none, batch::<true>);

/// A batch is one op with the pointers of all its copies.
unsafe fn run_batch(
    lists: (*const u64, *const u64, *const usize),
    count: usize,
    site: Site,
    call: impl FnOnce() -> u32,
) -> u32 {
    ops::run(
        site,
        |_, ledger, pointers| {
            let (dsts, srcs, sizes) = lists;
            if dsts.is_null() || srcs.is_null() || sizes.is_null() {
                return None;
            }
            let mut extent = 0_u64;
            for place in 0..count.min(MOST_COPIES) {
                // SAFETY: the caller's lists have `count` entries.
                let bytes = unsafe { *sizes.wrapping_add(place) } as u64;
                // SAFETY: as above.
                pointers.look_at(ledger, unsafe { *dsts.wrapping_add(place) }, bytes);
                // SAFETY: as above.
                pointers.look_at(ledger, unsafe { *srcs.wrapping_add(place) }, bytes);
                extent = extent.saturating_add(bytes);
            }
            described(pointers, extent, 0, MANY)
        },
        call,
    )
}

/// The form of 12.8 and 12.9, with an index of the copy that failed.
unsafe extern "C" fn batch_first<const PER_THREAD: bool>(
    dsts: *const u64,
    srcs: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const c_void,
    indices: *const usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: Handle,
) -> u32 {
    type Real = unsafe extern "C" fn(
        *const u64,
        *const u64,
        *const usize,
        usize,
        *const c_void,
        *const usize,
        usize,
        *mut usize,
        Handle,
    ) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemcpyBatchAsync_ptsz
    } else {
        Hook::cuMemcpyBatchAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    let site = Site {
        stream,
        per_thread: PER_THREAD,
        caller: 0,
    };
    // SAFETY: the caller's arguments.
    let call = || unsafe {
        real(
            dsts,
            srcs,
            sizes,
            count,
            attributes,
            indices,
            attribute_count,
            failed,
            stream,
        )
    };
    // SAFETY: the caller's lists.
    unsafe { run_batch((dsts, srcs, sizes), count, site, call) }
}

unsafe extern "C" fn batch<const PER_THREAD: bool>(
    dsts: *const u64,
    srcs: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const c_void,
    indices: *const usize,
    attribute_count: usize,
    stream: Handle,
) -> u32 {
    type Real = unsafe extern "C" fn(
        *const u64,
        *const u64,
        *const usize,
        usize,
        *const c_void,
        *const usize,
        usize,
        Handle,
    ) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemcpyBatchAsync_v2_ptsz
    } else {
        Hook::cuMemcpyBatchAsync_v2
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    let site = Site {
        stream,
        per_thread: PER_THREAD,
        caller: 0,
    };
    // SAFETY: the caller's arguments.
    let call = || unsafe {
        real(
            dsts,
            srcs,
            sizes,
            count,
            attributes,
            indices,
            attribute_count,
            stream,
        )
    };
    // SAFETY: the caller's lists.
    unsafe { run_batch((dsts, srcs, sizes), count, site, call) }
}

/// `CU_MEMCPY_OPERAND_TYPE_POINTER`; the other is an array, which has no address.
const OPERAND_POINTER: u32 = 1;

/// `CUmemcpy3DOperand`, as its pointer form.
#[repr(C)]
#[derive(Clone, Copy)]
struct Operand {
    kind: u32,
    address: u64,
    row_bytes: usize,
    layer_rows: usize,
    hint: u64,
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BatchOp {
    src: Operand,
    dst: Operand,
    width: usize,
    height: usize,
    depth: usize,
    order_and_flags: [u32; 2],
}

impl BatchOp {
    /// Address and extent of one side; nothing for an array.
    fn place(&self, side: &Operand) -> Option<(u64, u64)> {
        if side.kind != OPERAND_POINTER {
            return None;
        }
        // Zero stands for tightly packed rows and layers.
        let row = side.row_bytes.max(self.width);
        let layer = side.layer_rows.max(self.height);
        let rows = layer
            .saturating_mul(self.depth.saturating_sub(1))
            .saturating_add(self.height.saturating_sub(1));
        let extent = row.saturating_mul(rows).saturating_add(self.width);
        Some((side.address, extent as u64))
    }
}

/// A batch of 3-D copies is one op with the pointers of all its copies.
unsafe fn run_ops(
    list: *const BatchOp,
    count: usize,
    site: Site,
    call: impl FnOnce() -> u32,
) -> u32 {
    ops::run(
        site,
        |_, ledger, pointers| {
            if list.is_null() {
                return None;
            }
            let mut extent = 0_u64;
            for place in 0..count.min(MOST_COPIES) {
                // SAFETY: the caller's list has `count` entries.
                let op = unsafe { *list.wrapping_add(place) };
                for side in [op.dst, op.src] {
                    if let Some((address, bytes)) = op.place(&side) {
                        pointers.look_at(ledger, address, bytes);
                        extent = extent.saturating_add(bytes / 2);
                    }
                }
            }
            described(pointers, extent, 0, MANY)
        },
        call,
    )
}

/// Defines a copy of one of the forms below, plain and with the per-thread suffix.
macro_rules! copies_3d {
    ($name:ident, $twin:ident, $inner:ident($($arg:ident: $type:ty),*; $from:ident, $count:tt),
        $list:expr, $number:expr) => {
        stub!($name, $count, $inner::<false>);
        stub!($twin, $count, $inner::<true>);
        unsafe extern "C" fn $inner<const PER_THREAD: bool>(
            $($arg: $type,)*
            stream: Handle,
            $from: usize,
        ) -> u32 {
            type Real = unsafe extern "C" fn($($type,)* Handle) -> u32;
            let hook = if PER_THREAD { Hook::$twin } else { Hook::$name };
            let Some(real) = real!(hook, Real) else {
                return NOT_FOUND;
            };
            let site = Site {
                stream,
                per_thread: PER_THREAD,
                caller: $from,
            };
            // SAFETY: the caller's arguments.
            let call = || unsafe { real($($arg,)* stream) };
            // SAFETY: the caller's list.
            unsafe { run_ops($list, $number, site, call) }
        }
    };
}

// The form of 12.8 and 12.9, with an index of the copy that failed.
copies_3d!(
    cuMemcpy3DBatchAsync,
    cuMemcpy3DBatchAsync_ptsz,
    batch_3d_first(count: usize, list: *const BatchOp, failed: *mut usize, flags: u64; from, 5),
    list,
    count
);
copies_3d!(
    cuMemcpy3DBatchAsync_v2,
    cuMemcpy3DBatchAsync_v2_ptsz,
    batch_3d(count: usize, list: *const BatchOp, flags: u64; from, 4),
    list,
    count
);
copies_3d!(
    cuMemcpy3DWithAttributesAsync,
    cuMemcpy3DWithAttributesAsync_ptsz,
    single_3d(op: *const BatchOp, flags: u64; from, 3),
    op,
    1
);

stub!(cuMemcpyWithAttributesAsync, 5, single::<false>);
stub!(cuMemcpyWithAttributesAsync_ptsz, 5, single::<true>);

unsafe extern "C" fn single<const PER_THREAD: bool>(
    dst: u64,
    src: u64,
    bytes: usize,
    attributes: *const c_void,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(u64, u64, usize, *const c_void, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemcpyWithAttributesAsync_ptsz
    } else {
        Hook::cuMemcpyWithAttributesAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    let site = Site {
        stream,
        per_thread: PER_THREAD,
        caller: from,
    };
    ops::run(
        site,
        |_, ledger, pointers| {
            pointers.look_at(ledger, dst, bytes as u64);
            pointers.look_at(ledger, src, bytes as u64);
            described(
                pointers,
                bytes as u64,
                bytes as u64,
                DeviceRecords::one(OpKind::Memcpy),
            )
        },
        // SAFETY: the caller's arguments.
        || unsafe { real(dst, src, bytes, attributes, stream) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_the_drivers() {
        // cuda.h of 12.8 and later: two operands of 40 bytes, three extents, two words.
        assert_eq!(size_of::<Operand>(), 40);
        assert_eq!(size_of::<BatchOp>(), 112);
    }

    #[test]
    fn the_extent_is_that_of_the_rows_in_between() {
        let side = |row_bytes, layer_rows| Operand {
            kind: OPERAND_POINTER,
            address: 4096,
            row_bytes,
            layer_rows,
            hint: 0,
        };
        let op = BatchOp {
            src: side(0, 0),
            dst: side(100, 10),
            width: 10,
            height: 3,
            depth: 2,
            order_and_flags: [0; 2],
        };
        assert_eq!(op.place(&op.src), Some((4096, 60)));
        assert_eq!(op.place(&op.dst), Some((4096, 100 * 12 + 10)));
        let array = Operand { kind: 2, ..op.src };
        assert_eq!(op.place(&array), None);
    }
}
