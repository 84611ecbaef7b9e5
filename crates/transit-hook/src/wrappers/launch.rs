//! Kernel launches of every kind.

use core::ffi::{c_int, c_void};

use transit_format::trace::model::OpKind;

use super::{framed_stub, stub};
use crate::driver::{Driver, Handle, NOT_FOUND};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::observer::{DeviceRecords, PointerArg};
use crate::ops::{self, Described, Shape, Site};
use crate::scan::{self, Pointers};
use crate::{coverage, functions};

type Params = *const *const c_void;

framed_stub!(cuLaunchKernel, launch::<0>);
framed_stub!(cuLaunchKernel_ptsz, launch::<1>);
framed_stub!(cuLaunchCooperativeKernel, launch::<2>);
framed_stub!(cuLaunchCooperativeKernel_ptsz, launch::<3>);
stub!(cuLaunchKernelEx, 4, launch_ex::<false>);
stub!(cuLaunchKernelEx_ptsz, 4, launch_ex::<true>);
stub!(cuLaunchCooperativeKernelMultiDevice, 3, launch_multi);
stub!(cuLaunch, 1, launch_old);
stub!(cuLaunchGrid, 3, launch_grid);
stub!(cuLaunchGridAsync, 4, launch_grid_async);

/// Finds the function and its pointers.
#[inline(always)]
fn describe(
    driver: &Driver,
    ledger: &Ledger,
    handle: Handle,
    shape: Shape,
    arguments: (Params, Params),
    pointers: &mut Pointers,
) -> Option<Described> {
    let function = functions::of(driver, handle)?;
    let (params, extra) = arguments;
    // SAFETY: the job's own arguments of this launch.
    unsafe {
        scan::launch(ledger, function, params, extra, &mut |_, alloc, offset| {
            pointers.push(PointerArg {
                alloc,
                offset,
                bytes: 0,
            });
        });
    }
    Some(Described {
        kind: OpKind::Kernel,
        function: function.id,
        hash: function.hash,
        shape,
        records: DeviceRecords::one(OpKind::Kernel),
        payload_bytes: 0,
    })
}

// The cooperative form lacks `extra`: the word read in its place is the caller's and unused.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn launch<const HOOK: usize>(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    _padding: usize,
    from: usize,
    block_z: u32,
    shared: u32,
    stream: Handle,
    params: Params,
    extra: Params,
) -> u32 {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    // SAFETY: the caller's arguments.
    unsafe { launch_any::<HOOK>(function, shape, stream, params, extra, from) }
}

#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn launch<const HOOK: usize>(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    _padding: usize,
    from: usize,
    stream: Handle,
    params: Params,
    extra: Params,
) -> u32 {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    // SAFETY: the caller's arguments.
    unsafe { launch_any::<HOOK>(function, shape, stream, params, extra, from) }
}

#[inline]
unsafe fn launch_any<const HOOK: usize>(
    function: Handle,
    shape: Shape,
    stream: Handle,
    params: Params,
    extra: Params,
    from: usize,
) -> u32 {
    type Plain = unsafe extern "C" fn(
        Handle,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        Handle,
        Params,
        Params,
    ) -> u32;
    let (hook, cooperative, per_thread) = match HOOK {
        0 => (Hook::cuLaunchKernel, false, false),
        1 => (Hook::cuLaunchKernel_ptsz, false, true),
        2 => (Hook::cuLaunchCooperativeKernel, true, false),
        _ => (Hook::cuLaunchCooperativeKernel_ptsz, true, true),
    };
    let Some(real) = real!(hook, Plain) else {
        return NOT_FOUND;
    };
    let extra = if cooperative {
        core::ptr::null()
    } else {
        extra
    };
    let [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared] = shape;
    ops::run(
        Site {
            stream,
            per_thread,
            caller: from,
        },
        |driver, ledger, pointers| {
            describe(driver, ledger, function, shape, (params, extra), pointers)
        },
        // The cooperative form does not read the last argument: passing one more is harmless.
        // SAFETY: the caller's arguments.
        || unsafe {
            real(
                function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                params, extra,
            )
        },
    )
}

/// The first fields of `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    shape: Shape,
    stream: Handle,
}

unsafe extern "C" fn launch_ex<const PER_THREAD: bool>(
    config: *const c_void,
    function: Handle,
    params: Params,
    extra: Params,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*const c_void, Handle, Params, Params) -> u32;
    let hook = if PER_THREAD {
        Hook::cuLaunchKernelEx_ptsz
    } else {
        Hook::cuLaunchKernelEx
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let call = || unsafe { real(config, function, params, extra) };
    // SAFETY: null, or the caller's configuration, which begins with these fields.
    let Some(known) = (unsafe { config.cast::<LaunchConfig>().as_ref() }) else {
        return call();
    };
    ops::run(
        Site {
            stream: known.stream,
            per_thread: PER_THREAD,
            caller: from,
        },
        |driver, ledger, pointers| {
            describe(
                driver,
                ledger,
                function,
                known.shape,
                (params, extra),
                pointers,
            )
        },
        call,
    )
}

/// `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
struct DeviceLaunch {
    function: Handle,
    shape: Shape,
    stream: Handle,
    params: Params,
}

/// One op, on the first device's stream, with the pointers of all devices.
unsafe extern "C" fn launch_multi(list: *const c_void, count: u32, flags: u32, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*const c_void, u32, u32) -> u32;
    let Some(real) = real!(Hook::cuLaunchCooperativeKernelMultiDevice, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let call = || unsafe { real(list, count, flags) };
    if list.is_null() || count == 0 || count > 64 {
        return call();
    }
    // SAFETY: the caller's list has `count` entries.
    let launches =
        unsafe { core::slice::from_raw_parts(list.cast::<DeviceLaunch>(), count as usize) };
    let Some(first) = launches.first() else {
        return call();
    };
    ops::run(
        Site {
            stream: first.stream,
            per_thread: false,
            caller: from,
        },
        |driver, ledger, pointers| {
            let mut all = None;
            for launch in launches.iter().rev() {
                let arguments = (launch.params, core::ptr::null());
                all = describe(
                    driver,
                    ledger,
                    launch.function,
                    launch.shape,
                    arguments,
                    pointers,
                );
            }
            all.map(|described| Described {
                records: DeviceRecords {
                    kernels: count,
                    ..described.records
                },
                ..described
            })
        },
        call,
    )
}

/// Launches of the oldest kind set their arguments elsewhere: counted, without pointers.
fn run_old(
    function: Handle,
    shape: [u32; 2],
    stream: Handle,
    from: usize,
    call: impl FnOnce() -> u32,
) -> u32 {
    ops::run(
        Site {
            stream,
            per_thread: false,
            caller: from,
        },
        |driver, ledger, pointers| {
            coverage::old_launch();
            let none = (core::ptr::null(), core::ptr::null());
            let [width, height] = shape;
            let shape = [width, height, 0, 0, 0, 0, 0];
            describe(driver, ledger, function, shape, none, pointers)
        },
        call,
    )
}

unsafe extern "C" fn launch_old(function: Handle, from: usize) -> u32 {
    let Some(real) = real!(Hook::cuLaunch, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    run_old(function, [1, 1], 0, from, || unsafe { real(function) })
}

unsafe extern "C" fn launch_grid(
    function: Handle,
    width: c_int,
    height: c_int,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, c_int, c_int) -> u32;
    let Some(real) = real!(Hook::cuLaunchGrid, Real) else {
        return NOT_FOUND;
    };
    let shape = [width.cast_unsigned(), height.cast_unsigned()];
    // SAFETY: the caller's arguments.
    run_old(function, shape, 0, from, || unsafe {
        real(function, width, height)
    })
}

unsafe extern "C" fn launch_grid_async(
    function: Handle,
    width: c_int,
    height: c_int,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, c_int, c_int, Handle) -> u32;
    let Some(real) = real!(Hook::cuLaunchGridAsync, Real) else {
        return NOT_FOUND;
    };
    let shape = [width.cast_unsigned(), height.cast_unsigned()];
    // SAFETY: the caller's arguments.
    run_old(function, shape, stream, from, || unsafe {
        real(function, width, height, stream)
    })
}
