//! Which wrapper a resolver hands out.

use std::ffi::c_void;

use transit_hook::{resolve, wrappers};

use crate::driver::{proc_address, turn};

fn address(wrapper: unsafe extern "C" fn()) -> *mut c_void {
    wrapper as *mut c_void
}

// Field report 4: the base name says little; the export returned says all.
#[test]
fn the_wrapper_is_that_of_the_export_the_driver_returned() {
    let turn = turn();
    let expected = address(wrappers::cuMemAlloc_v2);
    assert_eq!(proc_address(c"cuMemAlloc", 0), (0, expected));
    assert_eq!(
        proc_address(c"cuLaunchKernel", 0).1,
        address(wrappers::cuLaunchKernel)
    );
    assert_eq!(
        proc_address(c"cuLaunchKernel", 2).1,
        address(wrappers::cuLaunchKernel_ptsz)
    );
    let itself = wrappers::cuGetProcAddress_v2 as *mut c_void;
    assert_eq!(proc_address(c"cuGetProcAddress", 0).1, itself);
    let unhooked = turn.real(c"cuDriverGetVersion");
    assert_eq!(proc_address(c"cuDriverGetVersion", 0), (0, unhooked));
}

#[test]
fn what_the_driver_lacks_stays_lacking() {
    let _turn = turn();
    assert_eq!(proc_address(c"", 0), (500, core::ptr::null_mut()));
    // The hook has a wrapper for it, the driver no function.
    assert_eq!(
        proc_address(c"cuMemcpyBatchAsync_v2", 0),
        (500, core::ptr::null_mut())
    );
}

#[test]
fn dlsym_hands_out_wrappers_for_the_drivers_own_symbols_only() {
    let _turn = turn();
    // SAFETY: with RTLD_NOLOAD nothing runs.
    let library =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    let look_up = |name: &std::ffi::CStr| {
        // SAFETY: an open handle and a NUL-terminated name.
        unsafe { resolve::look_up(library, name.as_ptr()) }
    };
    assert_eq!(look_up(c"cuMemAlloc_v2"), address(wrappers::cuMemAlloc_v2));
    let real_decides = core::ptr::null_mut();
    assert_eq!(look_up(c"cuDriverGetVersion"), real_decides);
    assert_eq!(look_up(c"cudaMalloc"), real_decides);
    assert_eq!(look_up(c"cuMemcpyBatchAsync_v2"), real_decides);
}
