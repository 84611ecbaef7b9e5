//! Tensor maps: which address the opaque bytes stand for.

use super::stub;
use crate::driver::{NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ops::hooked;
use crate::tensor_maps;

/// Runs a call that fills `map` in for `address`, and remembers it.
fn encoded(map: *const u64, address: u64, plain: impl Fn() -> u32) -> u32 {
    hooked(plain, |_, _, real_call| {
        let result = real_call();
        if result == SUCCESS && !map.is_null() {
            // SAFETY: the driver accepted the pointer and filled the whole map in.
            unsafe { tensor_maps::encoded(map, address) };
        }
        result
    })
}

/// Defines an entry point that begins with map, type, rank and address. What follows is passed on
/// word by word: integers and pointers alike take a register or a slot of the stack each.
macro_rules! encoder {
    ($name:ident $inner:ident, $($rest:ident)*) => {
        stub!($name, none, $inner);
        #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
        unsafe extern "C" fn $inner(
            map: *const u64,
            kind: usize,
            rank: usize,
            address: u64,
            $($rest: usize),*
        ) -> u32 {
            type Word<T> = T;
            type Real = unsafe extern "C" fn(
                *const u64, usize, usize, u64, $(encoder!(@word $rest)),*
            ) -> u32;
            let Some(real) = real!(Hook::$name, Real) else { return NOT_FOUND };
            // SAFETY: the caller's arguments.
            encoded(map, address, || unsafe { real(map, kind, rank, address, $($rest),*) })
        }
    };
    (@word $rest:ident) => { Word<usize> };
}

encoder!(cuTensorMapEncodeTiled tiled, a b c d e f g h);
encoder!(cuTensorMapEncodeIm2col im2col, a b c d e f g h i j k);
encoder!(cuTensorMapEncodeIm2colWide im2col_wide, a b c d e f g h i j k l);

stub!(cuTensorMapReplaceAddress, none, replace);

unsafe extern "C" fn replace(map: *const u64, address: u64) -> u32 {
    type Real = unsafe extern "C" fn(*const u64, u64) -> u32;
    let Some(real) = real!(Hook::cuTensorMapReplaceAddress, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    encoded(map, address, || unsafe { real(map, address) })
}
