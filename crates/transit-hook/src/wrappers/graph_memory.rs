//! Memory nodes of graphs, added by hand or captured from `cuMemAllocAsync`. Their memory is the
//! driver's: it is held per device, grows when a graph is instantiated or launched, and shrinks
//! when it is trimmed. So it is counted by asking the driver at those points.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::stub;
use crate::callers::{self, Caller};
use crate::coverage::{self, Bypass};
use crate::driver::{Driver, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS};
use crate::held::{self, Kind};
use crate::hooks::{Hook, real};
use crate::ops::hooked;
use crate::{ceiling, state};

stub!(cuGraphAddMemAllocNode, 5, add_node);
stub!(cuDeviceGraphMemTrim, none, trim);

/// Devices told apart.
const MOST_DEVICES: usize = 64;

/// Some graph has memory nodes.
static SEEN: AtomicBool = AtomicBool::new(false);
/// What each device held when last asked.
static RESERVED: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeParams {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location_id: c_int,
    rest: [u64; 9],
    access: usize,
    access_count: usize,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
}

/// A node for memory exists: its address is known from now on.
pub(crate) fn seen(device: u32, address: u64, bytes: u64, caller: Caller) {
    SEEN.store(true, Ordering::Relaxed);
    if !held::known(Kind::Graph, address) {
        held::hold(Kind::Graph, address, device, 0);
        coverage::bypassed(Bypass::Graph, caller, bytes);
    }
}

/// Asks the driver what it holds for graphs on a device, and counts the difference.
pub(crate) fn refresh(driver: &Driver, device: u32) {
    let Some(place) = RESERVED.get(device as usize) else {
        return;
    };
    if !SEEN.load(Ordering::Relaxed) {
        return;
    }
    let Ok(now) = driver.graph_memory(device) else {
        return;
    };
    let before = place.swap(now, Ordering::AcqRel);
    if now > before {
        ceiling::take_unconverted(device, now - before);
        held::came(now - before);
    } else if before > now {
        held::gone(device, before - now);
    }
}

/// Whether that much more unconverted memory is within the ceiling.
fn fits(driver: &Driver, device: u32, bytes: u64) -> bool {
    let Some(settings) = state::settings() else {
        return true;
    };
    let fits = ceiling::ask_unconverted(driver, settings, device, bytes);
    if fits {
        // Counted when the driver takes it.
        ceiling::give_back_unconverted(device, bytes);
    }
    fits
}

/// A request in stream order on a stream that is captured: a node.
pub(super) fn captured(
    driver: &Driver,
    bytes: u64,
    from: usize,
    answer: *mut u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let device = driver.ctx_device().unwrap_or(0);
    if !fits(driver, device, bytes) {
        return OUT_OF_MEMORY;
    }
    let result = real_call();
    if result == SUCCESS {
        // SAFETY: the driver accepted the pointer and filled it in.
        seen(device, unsafe { *answer }, bytes, callers::who(from));
    }
    result
}

unsafe extern "C" fn add_node(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    params: *mut NodeParams,
    from: usize,
) -> u32 {
    type Real =
        unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *mut NodeParams) -> u32;
    let Some(real) = real!(Hook::cuGraphAddMemAllocNode, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(node, graph, after, count, params) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's parameters.
        let Some(wanted) = (unsafe { params.as_ref() }).copied() else {
            return real_call();
        };
        let device = u32::try_from(wanted.location_id).unwrap_or(0);
        if !fits(driver, device, wanted.bytes as u64) {
            return OUT_OF_MEMORY;
        }
        let result = real_call();
        if result == SUCCESS {
            // SAFETY: as above, with the address filled in.
            let address = unsafe { (*params).address };
            seen(device, address, wanted.bytes as u64, callers::who(from));
        }
        result
    })
}

unsafe extern "C" fn trim(device: c_int) -> u32 {
    let Some(real) = real!(
        Hook::cuDeviceGraphMemTrim,
        unsafe extern "C" fn(c_int) -> u32
    ) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(device) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        refresh(driver, u32::try_from(device).unwrap_or(u32::MAX));
        result
    })
}
