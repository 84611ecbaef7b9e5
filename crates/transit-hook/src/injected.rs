//! The second way in: the driver has loaded us (`CUDA_INJECTION64_PATH`), nobody's calls pass
//! through our exports, and CUPTI tells of each driver call before and after it. A call that was
//! told is run through its wrapper as if the job had called it, with a "driver" behind it that only
//! repeats the result: so there is one account of ops, allocations and streams, whatever the way in.
//!
//! What differs: nothing can be changed, so nothing is converted; the caller of a call is unknown;
//! launches and frees are told before they happen and are taken to succeed.

use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::{guard, hooks, resolve, state};

/// When a call is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The driver has not begun.
    Enter,
    /// It has answered.
    Exit,
}

/// Calls worth a look, without `_ptsz` and `_ptds`: when, and their arguments in order, by size: `p`
/// 8 bytes, `u` 4, `s` 2, `c` 1. From CUPTI's `generated_cuda_meta.h`, where a call's structure
/// holds its arguments in order. Calls that answer questions are left out: their wrappers would
/// change the answers. `cuMemAllocPitch`'s would ask the driver a question of its own.
const CALLS: [(&str, Site, &str); 58] = {
    use Site::{Enter, Exit};
    [
        ("cuMemAlloc_v2", Exit, "pp"),
        ("cuMemAllocManaged", Exit, "ppu"),
        ("cuMemFree_v2", Enter, "p"),
        ("cuMemAllocAsync", Exit, "ppp"),
        ("cuMemAllocFromPoolAsync", Exit, "pppp"),
        ("cuMemFreeAsync", Enter, "pp"),
        ("cuLaunchKernel", Enter, "puuuuuuuppp"),
        ("cuLaunchKernelEx", Enter, "pppp"),
        ("cuLaunchCooperativeKernel", Enter, "puuuuuuupp"),
        ("cuLaunchCooperativeKernelMultiDevice", Enter, "puu"),
        ("cuGraphLaunch", Enter, "pp"),
        ("cuGraphInstantiate", Exit, "ppppp"),
        ("cuGraphInstantiate_v2", Exit, "ppppp"),
        ("cuGraphInstantiateWithFlags", Exit, "ppp"),
        ("cuGraphInstantiateWithParams", Exit, "ppp"),
        ("cuGraphExecDestroy", Enter, "p"),
        ("cuGraphExecUpdate", Exit, "pppp"),
        ("cuGraphExecUpdate_v2", Exit, "ppp"),
        ("cuGraphExecKernelNodeSetParams", Exit, "ppp"),
        ("cuGraphExecKernelNodeSetParams_v2", Exit, "ppp"),
        ("cuModuleGetFunction", Exit, "ppp"),
        ("cuLibraryGetKernel", Exit, "ppp"),
        ("cuModuleUnload", Enter, "p"),
        ("cuLibraryUnload", Enter, "p"),
        ("cuCtxDestroy_v2", Enter, "p"),
        ("cuDevicePrimaryCtxRelease_v2", Enter, "u"),
        ("cuDevicePrimaryCtxReset_v2", Enter, "u"),
        ("cuStreamDestroy_v2", Enter, "p"),
        ("cuStreamSynchronize", Exit, "p"),
        ("cuCtxSynchronize", Exit, ""),
        ("cuCtxSynchronize_v2", Exit, "p"),
        ("cuEventSynchronize", Exit, "p"),
        ("cuStreamBeginCapture", Enter, "p"),
        ("cuStreamBeginCapture_v2", Enter, "pu"),
        ("cuStreamBeginCaptureToGraph", Enter, "pppppu"),
        ("cuStreamEndCapture", Exit, "pp"),
        ("cuMemsetD8_v2", Enter, "pcp"),
        ("cuMemsetD8Async", Enter, "pcpp"),
        ("cuMemsetD16_v2", Enter, "psp"),
        ("cuMemsetD16Async", Enter, "pspp"),
        ("cuMemsetD32_v2", Enter, "pup"),
        ("cuMemsetD32Async", Enter, "pupp"),
        ("cuMemsetD2D8_v2", Enter, "ppcpp"),
        ("cuMemsetD2D8Async", Enter, "ppcppp"),
        ("cuMemsetD2D32_v2", Enter, "ppupp"),
        ("cuMemsetD2D32Async", Enter, "ppuppp"),
        ("cuMemcpy", Enter, "ppp"),
        ("cuMemcpyAsync", Enter, "pppp"),
        ("cuMemcpyHtoD_v2", Enter, "ppp"),
        ("cuMemcpyHtoDAsync_v2", Enter, "pppp"),
        ("cuMemcpyDtoH_v2", Enter, "ppp"),
        ("cuMemcpyDtoHAsync_v2", Enter, "pppp"),
        ("cuMemcpyDtoD_v2", Enter, "ppp"),
        ("cuMemcpyDtoDAsync_v2", Enter, "pppp"),
        ("cuMemcpy2D_v2", Enter, "p"),
        ("cuMemcpy2DAsync_v2", Enter, "pp"),
        ("cuMemcpy3D_v2", Enter, "p"),
        ("cuMemcpy3DAsync_v2", Enter, "pp"),
    ]
};

/// Most arguments of any of them; what a wrapper does not take it does not read.
const MOST: usize = 12;
type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

static INJECTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RESULT: Cell<u32> = const { Cell::new(0) };
}

/// Whether this process' calls come this way.
#[must_use]
pub fn injected() -> bool {
    INJECTED.load(Ordering::Relaxed)
}

/// Whether the process finds our exports before the C library's: then calls come to us anyway.
#[must_use]
pub fn preloaded() -> bool {
    let found = resolve::real_symbol(libc::RTLD_DEFAULT, c"dlsym");
    resolve::is_ours(found)
}

/// From here on calls are told by [`call`]. Before the shim's set-up.
pub fn begin() {
    INJECTED.store(true, Ordering::Relaxed);
    hooks::stand_in(repeat as *const c_void as *mut c_void);
}

/// The "driver" behind the wrappers.
unsafe extern "C" fn repeat() -> u32 {
    RESULT.get()
}

/// A driver call of the job's, as CUPTI tells it; `id` is CUPTI's number for its name.
///
/// # Safety
/// `name` is NUL-terminated and `params` points to the structure of the arguments of that call.
pub unsafe fn call(site: Site, id: u32, name: &CStr, params: *const c_void, result: u32) {
    if guard::inside() || params.is_null() {
        return;
    }
    let Some((wanted, wrapper, sizes)) = known(id, name).filter(|(wanted, ..)| *wanted == site)
    else {
        return;
    };
    if wanted == Site::Exit && result != 0 {
        return;
    }
    state::started();
    // SAFETY: the caller's promise, and the table's word for how the structure is laid out.
    let arguments = unsafe { read(params, sizes) };
    RESULT.set(if site == Site::Exit { result } else { 0 });
    let [a, b, c, d, e, f, g, h, i, j, k, l] = arguments;
    // SAFETY: the wrapper takes these arguments or fewer, integers and pointers all; further ones
    // are passed where nobody reads them.
    let wrapper = unsafe { core::mem::transmute::<*mut c_void, Any>(wrapper) };
    // SAFETY: as above; the arguments are the job's own and valid during its call.
    let _ = unsafe { wrapper(a, b, c, d, e, f, g, h, i, j, k, l) };
}

/// What to do with calls of that name. Names are compared once for each id.
fn known(id: u32, name: &CStr) -> Option<(Site, *mut c_void, &'static str)> {
    const UNSEEN: u16 = 0;
    const LEFT_ALONE: u16 = 1;
    static SEEN: [AtomicU16; 1024] = [const { AtomicU16::new(UNSEEN) }; 1024];
    let slot = usize::try_from(id).ok().and_then(|id| SEEN.get(id));
    let before = slot.map_or(UNSEEN, |slot| slot.load(Ordering::Relaxed));
    if before == LEFT_ALONE {
        return None;
    }
    let place = match before {
        UNSEEN => index_of(name),
        number => Some(usize::from(number) - 2),
    };
    if let Some(slot) = slot {
        let number = place.and_then(|place| u16::try_from(place + 2).ok());
        slot.store(number.unwrap_or(LEFT_ALONE), Ordering::Relaxed);
    }
    let (_, site, sizes) = CALLS.get(place?)?;
    let hook = hooks::by_name(name)?;
    Some((*site, hooks::wrapper_of(hook), sizes))
}

fn index_of(name: &CStr) -> Option<usize> {
    let name = name.to_str().ok()?;
    let base = name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"));
    let base = base.unwrap_or(name);
    CALLS.iter().position(|(known, ..)| *known == base)
}

/// The arguments as full words, out of a C structure.
///
/// # Safety
/// `params` points to a structure of members of those sizes.
unsafe fn read(params: *const c_void, sizes: &str) -> [u64; MOST] {
    let mut arguments = [0; MOST];
    let mut at = 0_usize;
    for (argument, size) in arguments.iter_mut().zip(sizes.bytes()) {
        let bytes = match size {
            b'p' => 8,
            b'u' => 4,
            b's' => 2,
            _ => 1,
        };
        at = at.next_multiple_of(bytes);
        let mut word = [0_u8; 8];
        let from = params.cast::<u8>().wrapping_add(at);
        // SAFETY: the caller's promise: `bytes` bytes of the structure lie there.
        unsafe { ptr::copy_nonoverlapping(from, word.as_mut_ptr(), bytes) };
        *argument = u64::from_le_bytes(word);
        at += bytes;
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_wrapper_and_fits() {
        for (name, _, sizes) in CALLS {
            let text = std::ffi::CString::new(name).unwrap();
            assert!(hooks::by_name(&text).is_some(), "{name}");
            assert!(sizes.len() <= MOST, "{name}");
        }
        assert_eq!(
            index_of(c"cuLaunchKernel_ptsz"),
            index_of(c"cuLaunchKernel")
        );
        assert_eq!(
            index_of(c"cuMemGetInfo_v2"),
            None,
            "its answer would be changed"
        );
    }

    #[test]
    fn arguments_are_read_as_c_lays_them_out() {
        #[repr(C)]
        struct Params(u64, u8, u64, u32, u16, u64);
        let params = Params(1, 2, 3, 4, 5, 6);
        // SAFETY: the structure has members of these sizes.
        let read = unsafe { read((&raw const params).cast(), "pcpusp") };
        assert_eq!(read.get(..7), Some([1, 2, 3, 4, 5, 6, 0].as_slice()));
    }
}
