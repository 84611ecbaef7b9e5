//! Memsets and copies: ops where they touch managed memory, passed through where they do not.

use std::sync::OnceLock;

use transit_format::ids::FunctionId;
use transit_format::trace::model::OpKind;

use super::stub;
use crate::driver::{Handle, NOT_FOUND};
use crate::functions;
use crate::hooks::{Hook, real};
use crate::observer::DeviceRecords;
use crate::ops::{self, Described, Site};
use crate::scan::Pointers;

/// An op of a kind that has no function of its own.
fn described(kind: OpKind, name: &'static str, extent: u64, payload_bytes: u64) -> Described {
    static MEMSET: OnceLock<(FunctionId, u64)> = OnceLock::new();
    static MEMCPY: OnceLock<(FunctionId, u64)> = OnceLock::new();
    let cell = if kind == OpKind::Memset {
        &MEMSET
    } else {
        &MEMCPY
    };
    let (function, hash) = functions::of_pseudo(name, cell);
    Described {
        kind,
        function,
        hash,
        shape: ops::shape_of_bytes(extent),
        records: DeviceRecords::one(kind),
        payload_bytes,
    }
}

/// Runs `call` as a memset or copy over the given (address, extent) pairs, if any is managed.
/// `payload` is what is written where that is not the extent.
#[inline]
fn run(
    kind: OpKind,
    site: Site,
    places: &[(u64, u64)],
    payload: Option<u64>,
    call: impl FnOnce() -> u32,
) -> u32 {
    ops::run(
        site,
        |_, ledger, pointers: &mut Pointers| {
            for (address, bytes) in places {
                pointers.look_at(ledger, *address, *bytes);
            }
            if pointers.as_slice().is_empty() {
                ops::pass_transfer();
                return None;
            }
            let name = if kind == OpKind::Memset {
                "memset"
            } else {
                "memcpy"
            };
            let extent = places.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            Some(described(kind, name, extent, payload.unwrap_or(extent)))
        },
        call,
    )
}

/// The bytes written where they are not the extent.
macro_rules! payload {
    () => {
        None
    };
    ($bytes:expr) => {
        Some($bytes as u64)
    };
}

/// Defines one entry point: a stub that adds the return address, and the function behind it.
macro_rules! entry {
    ($kind:ident, $name:ident $inner:ident $count:tt $per_thread:literal
     ($($arg:ident: $type:ty),*) stream $stream:expr; $($address:expr, $bytes:expr);*
     $(=> $payload:expr)?) => {
        stub!($name, $count, $inner);
        unsafe extern "C" fn $inner($($arg: $type,)* from: usize) -> u32 {
            type Real = unsafe extern "C" fn($($type),*) -> u32;
            let Some(real) = real!(Hook::$name, Real) else { return NOT_FOUND };
            run(
                OpKind::$kind,
                Site { stream: $stream, per_thread: $per_thread, caller: from },
                &[$(($address as u64, $bytes as u64)),*],
                payload!($($payload)?),
                // SAFETY: the caller's arguments.
                || unsafe { real($($arg),*) },
            )
        }
    };
}

/// The same for entry points with more arguments than fit into registers beside an address: the
/// caller stays unknown.
macro_rules! wide_entry {
    ($kind:ident, $name:ident $inner:ident $per_thread:literal
     ($($arg:ident: $type:ty),*) stream $stream:expr; $($address:expr, $bytes:expr);*
     $(=> $payload:expr)?) => {
        stub!($name, none, $inner);
        #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
        unsafe extern "C" fn $inner($($arg: $type),*) -> u32 {
            type Real = unsafe extern "C" fn($($type),*) -> u32;
            let Some(real) = real!(Hook::$name, Real) else { return NOT_FOUND };
            run(
                OpKind::$kind,
                Site { stream: $stream, per_thread: $per_thread, caller: 0 },
                &[$(($address as u64, $bytes as u64)),*],
                payload!($($payload)?),
                // SAFETY: the caller's arguments.
                || unsafe { real($($arg),*) },
            )
        }
    };
}

/// Extent of `rows` rows of `width` bytes, `pitch` bytes apart.
fn rows(pitch: usize, width: usize, rows: usize) -> usize {
    pitch
        .saturating_mul(rows.saturating_sub(1))
        .saturating_add(width)
}

entry!(Memset, cuMemsetD8_v2 set_d8 3 false
    (dst: u64, value: u8, n: usize) stream 0; dst, n);
entry!(Memset, cuMemsetD8_v2_ptds set_d8_ptds 3 true
    (dst: u64, value: u8, n: usize) stream 0; dst, n);
entry!(Memset, cuMemsetD8Async set_d8_async 4 false
    (dst: u64, value: u8, n: usize, stream: Handle) stream stream; dst, n);
entry!(Memset, cuMemsetD8Async_ptsz set_d8_async_ptsz 4 true
    (dst: u64, value: u8, n: usize, stream: Handle) stream stream; dst, n);
entry!(Memset, cuMemsetD2D8_v2 set_2d8 5 false
    (dst: u64, pitch: usize, value: u8, width: usize, height: usize)
    stream 0; dst, rows(pitch, width, height)
     => width.saturating_mul(height));
entry!(Memset, cuMemsetD2D8_v2_ptds set_2d8_ptds 5 true
    (dst: u64, pitch: usize, value: u8, width: usize, height: usize)
    stream 0; dst, rows(pitch, width, height)
     => width.saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D8Async set_2d8_async false
    (dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width, height)
     => width.saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D8Async_ptsz set_2d8_async_ptsz true
    (dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width, height)
     => width.saturating_mul(height));
entry!(Memset, cuMemsetD16_v2 set_d16 3 false
    (dst: u64, value: u16, n: usize) stream 0; dst, n.saturating_mul(2));
entry!(Memset, cuMemsetD16_v2_ptds set_d16_ptds 3 true
    (dst: u64, value: u16, n: usize) stream 0; dst, n.saturating_mul(2));
entry!(Memset, cuMemsetD16Async set_d16_async 4 false
    (dst: u64, value: u16, n: usize, stream: Handle) stream stream; dst, n.saturating_mul(2));
entry!(Memset, cuMemsetD16Async_ptsz set_d16_async_ptsz 4 true
    (dst: u64, value: u16, n: usize, stream: Handle) stream stream; dst, n.saturating_mul(2));
entry!(Memset, cuMemsetD2D16_v2 set_2d16 5 false
    (dst: u64, pitch: usize, value: u16, width: usize, height: usize)
    stream 0; dst, rows(pitch, width.saturating_mul(2), height)
     => width.saturating_mul(2).saturating_mul(height));
entry!(Memset, cuMemsetD2D16_v2_ptds set_2d16_ptds 5 true
    (dst: u64, pitch: usize, value: u16, width: usize, height: usize)
    stream 0; dst, rows(pitch, width.saturating_mul(2), height)
     => width.saturating_mul(2).saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D16Async set_2d16_async false
    (dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width.saturating_mul(2), height)
     => width.saturating_mul(2).saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D16Async_ptsz set_2d16_async_ptsz true
    (dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width.saturating_mul(2), height)
     => width.saturating_mul(2).saturating_mul(height));
entry!(Memset, cuMemsetD32_v2 set_d32 3 false
    (dst: u64, value: u32, n: usize) stream 0; dst, n.saturating_mul(4));
entry!(Memset, cuMemsetD32_v2_ptds set_d32_ptds 3 true
    (dst: u64, value: u32, n: usize) stream 0; dst, n.saturating_mul(4));
entry!(Memset, cuMemsetD32Async set_d32_async 4 false
    (dst: u64, value: u32, n: usize, stream: Handle) stream stream; dst, n.saturating_mul(4));
entry!(Memset, cuMemsetD32Async_ptsz set_d32_async_ptsz 4 true
    (dst: u64, value: u32, n: usize, stream: Handle) stream stream; dst, n.saturating_mul(4));
entry!(Memset, cuMemsetD2D32_v2 set_2d32 5 false
    (dst: u64, pitch: usize, value: u32, width: usize, height: usize)
    stream 0; dst, rows(pitch, width.saturating_mul(4), height)
     => width.saturating_mul(4).saturating_mul(height));
entry!(Memset, cuMemsetD2D32_v2_ptds set_2d32_ptds 5 true
    (dst: u64, pitch: usize, value: u32, width: usize, height: usize)
    stream 0; dst, rows(pitch, width.saturating_mul(4), height)
     => width.saturating_mul(4).saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D32Async set_2d32_async false
    (dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width.saturating_mul(4), height)
     => width.saturating_mul(4).saturating_mul(height));
wide_entry!(Memset, cuMemsetD2D32Async_ptsz set_2d32_async_ptsz true
    (dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle)
    stream stream; dst, rows(pitch, width.saturating_mul(4), height)
     => width.saturating_mul(4).saturating_mul(height));

entry!(Memcpy, cuMemcpy copy 3 false
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpy_ptds copy_ptds 3 true
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyAsync copy_async 4 false
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyAsync_ptsz copy_async_ptsz 4 true
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyHtoD_v2 copy_h2d 3 false
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyHtoD_v2_ptds copy_h2d_ptds 3 true
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyHtoDAsync_v2 copy_h2d_async 4 false
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyHtoDAsync_v2_ptsz copy_h2d_async_ptsz 4 true
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoH_v2 copy_d2h 3 false
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoH_v2_ptds copy_d2h_ptds 3 true
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoHAsync_v2 copy_d2h_async 4 false
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoHAsync_v2_ptsz copy_d2h_async_ptsz 4 true
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoD_v2 copy_d2d 3 false
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoD_v2_ptds copy_d2d_ptds 3 true
    (dst: u64, src: u64, bytes: usize) stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoDAsync_v2 copy_d2d_async 4 false
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyDtoDAsync_v2_ptsz copy_d2d_async_ptsz 4 true
    (dst: u64, src: u64, bytes: usize, stream: Handle) stream stream; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyPeer copy_peer 5 false
    (dst: u64, to: Handle, src: u64, of: Handle, bytes: usize)
    stream 0; dst, bytes; src, bytes);
entry!(Memcpy, cuMemcpyPeer_ptds copy_peer_ptds 5 true
    (dst: u64, to: Handle, src: u64, of: Handle, bytes: usize)
    stream 0; dst, bytes; src, bytes);
wide_entry!(Memcpy, cuMemcpyPeerAsync copy_peer_async false
    (dst: u64, to: Handle, src: u64, of: Handle, bytes: usize, stream: Handle)
    stream stream; dst, bytes; src, bytes);
wide_entry!(Memcpy, cuMemcpyPeerAsync_ptsz copy_peer_async_ptsz true
    (dst: u64, to: Handle, src: u64, of: Handle, bytes: usize, stream: Handle)
    stream stream; dst, bytes; src, bytes);
