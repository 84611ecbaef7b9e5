//! Streams that begin and end, waits and captures.

use core::ffi::{c_int, c_uint};

use super::stub;
use crate::driver::{Handle, NOT_FOUND, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ops::hooked;
use crate::{state, streams};

stub!(cuStreamCreate, none, create::<false>);
stub!(cuStreamCreateWithPriority, none, create::<true>);
stub!(cuStreamDestroy_v2, none, destroy);
stub!(cuStreamSynchronize, none, wait::<0>);
stub!(cuStreamSynchronize_ptsz, none, wait::<1>);
stub!(cuEventSynchronize, none, wait::<2>);
stub!(cuCtxSynchronize, none, wait::<3>);
stub!(cuCtxSynchronize_v2, none, wait::<4>);
stub!(cuStreamBeginCapture, none, begin::<0>);
stub!(cuStreamBeginCapture_ptsz, none, begin::<1>);
stub!(cuStreamBeginCapture_v2, none, begin::<2>);
stub!(cuStreamBeginCapture_v2_ptsz, none, begin::<3>);
stub!(cuStreamBeginCaptureToGraph, none, begin::<4>);
stub!(cuStreamBeginCaptureToGraph_ptsz, none, begin::<5>);
stub!(cuStreamEndCapture, none, end::<false>);
stub!(cuStreamEndCapture_ptsz, none, end::<true>);

/// The second form has a priority, which the first does not read.
unsafe extern "C" fn create<const PRIORITY: bool>(
    stream: *mut Handle,
    flags: c_uint,
    priority: c_int,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, c_uint, c_int) -> u32;
    const NON_BLOCKING: c_uint = 1;
    let hook = if PRIORITY {
        Hook::cuStreamCreateWithPriority
    } else {
        Hook::cuStreamCreate
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    if flags & NON_BLOCKING == 0 {
        streams::bound_to_legacy();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(stream, flags, priority) }
}

unsafe extern "C" fn destroy(stream: Handle) -> u32 {
    let Some(real) = real!(
        Hook::cuStreamDestroy_v2,
        unsafe extern "C" fn(Handle) -> u32
    ) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(stream) };
    hooked(plain, |driver, _, real_call| {
        let captured = streams::any_capture() && driver.stream_is_capturing(stream) == Ok(true);
        streams::destroyed(stream);
        let result = real_call();
        if captured && result == SUCCESS {
            // Its capture went with it.
            capture_over(stream);
        }
        result
    })
}

/// A capture is over, however it ended.
fn capture_over(stream: Handle) {
    if streams::capture_ended(stream)
        && let Some(observer) = state::observer()
    {
        observer.capturing(false);
    }
}

/// `cuCtxSynchronize` had no argument before 13.0: the register it would lie in is passed on unread.
unsafe extern "C" fn wait<const HOOK: usize>(what: Handle) -> u32 {
    let hook = match HOOK {
        0 => Hook::cuStreamSynchronize,
        1 => Hook::cuStreamSynchronize_ptsz,
        2 => Hook::cuEventSynchronize,
        3 => Hook::cuCtxSynchronize,
        _ => Hook::cuCtxSynchronize_v2,
    };
    let Some(real) = real!(hook, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(what) };
    hooked(plain, |_, _, real_call| {
        let result = real_call();
        if let Some(observer) = state::observer() {
            observer.synchronised();
        }
        result
    })
}

/// All forms begin with the stream; what follows differs and is passed on.
unsafe extern "C" fn begin<const HOOK: usize>(
    stream: Handle,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, usize, usize, usize, usize, usize) -> u32;
    let hook = match HOOK {
        0 => Hook::cuStreamBeginCapture,
        1 => Hook::cuStreamBeginCapture_ptsz,
        2 => Hook::cuStreamBeginCapture_v2,
        3 => Hook::cuStreamBeginCapture_v2_ptsz,
        4 => Hook::cuStreamBeginCaptureToGraph,
        _ => Hook::cuStreamBeginCaptureToGraph_ptsz,
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments; shorter forms do not read the last ones.
    let plain = || unsafe { real(stream, second, third, fourth, fifth, sixth) };
    hooked(plain, |driver, _, real_call| {
        let place = streams::canonical(stream, HOOK % 2 == 1);
        // Counted and told before, so that no op of another thread slips into the capture unseen
        // and no work of ours on another thread is still under way when it begins.
        streams::capture_began(place, streams::context_of(driver, place));
        if let Some(observer) = state::observer() {
            observer.capturing(true);
        }
        let result = real_call();
        if result != SUCCESS {
            capture_over(place);
        }
        result
    })
}

unsafe extern "C" fn end<const PER_THREAD: bool>(stream: Handle, graph: *mut Handle) -> u32 {
    type Real = unsafe extern "C" fn(Handle, *mut Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuStreamEndCapture_ptsz
    } else {
        Hook::cuStreamEndCapture
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(stream, graph) };
    hooked(plain, |driver, _, real_call| {
        let place = streams::canonical(stream, PER_THREAD);
        // A ruined capture ends with an error; a wrong thread's attempt ends nothing.
        let before = driver.stream_is_capturing(place).unwrap_or(false);
        let result = real_call();
        let after = driver.stream_is_capturing(place).unwrap_or(false);
        if result == SUCCESS || (before && !after) {
            capture_over(place);
        }
        result
    })
}
