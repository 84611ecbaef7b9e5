//! Graphs: instantiated, updated, launched, destroyed.

use core::ffi::c_void;
use std::sync::OnceLock;

use transit_format::ids::FunctionId;
use transit_format::trace::model::OpKind;

use super::{graph_memory, stub};
use crate::driver::{Handle, NOT_FOUND, SUCCESS};
use crate::graphs::{self, Change, CopyWords, KernelParams, MemsetParams};
use crate::hooks::{Hook, real};
use crate::observer::DeviceRecords;
use crate::ops::{self, Described, Site, hooked};
use crate::{functions, state};

stub!(cuGraphLaunch, 2, launch::<false>);
stub!(cuGraphLaunch_ptsz, 2, launch::<true>);
stub!(cuGraphInstantiate, none, instantiate_old::<false>);
stub!(cuGraphInstantiate_v2, none, instantiate_old::<true>);
stub!(cuGraphInstantiateWithFlags, none, instantiate_flags);
stub!(
    cuGraphInstantiateWithParams,
    none,
    instantiate_params::<false>
);
stub!(
    cuGraphInstantiateWithParams_ptsz,
    none,
    instantiate_params::<true>
);
stub!(cuGraphExecDestroy, none, destroy);
stub!(cuGraphExecUpdate, none, update::<false>);
stub!(cuGraphExecUpdate_v2, none, update::<true>);
stub!(cuGraphExecKernelNodeSetParams, none, set_params::<false>);
stub!(cuGraphExecKernelNodeSetParams_v2, none, set_params::<true>);
stub!(cuGraphExecMemsetNodeSetParams, none, set_memset);
stub!(cuGraphExecMemcpyNodeSetParams, none, set_memcpy);
stub!(cuGraphExecChildGraphNodeSetParams, none, set_child);
stub!(cuGraphExecNodeSetParams, none, set_any);
stub!(cuGraphNodeSetEnabled, none, set_enabled);

unsafe extern "C" fn launch<const PER_THREAD: bool>(
    exec: Handle,
    stream: Handle,
    from: usize,
) -> u32 {
    static NAME: OnceLock<(FunctionId, u64)> = OnceLock::new();
    type Real = unsafe extern "C" fn(Handle, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuGraphLaunch_ptsz
    } else {
        Hook::cuGraphLaunch
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    ops::run(
        Site {
            stream,
            per_thread: PER_THREAD,
            caller: from,
        },
        |_, ledger, pointers| {
            let known = graphs::of(exec);
            for address in known.iter().flat_map(|known| &known.addresses) {
                pointers.look_at(ledger, *address, 0);
            }
            let (function, hash) = functions::of_pseudo("graph", &NAME);
            let nodes = known.map_or(0, |known| known.nodes);
            // A graph that came about in a way we do not see may run anything.
            let unknown = DeviceRecords {
                open: true,
                ..DeviceRecords::default()
            };
            let records = known.map_or(unknown, |known| known.records);
            let shape = [nodes, 0, 0, 0, 0, 0, 0];
            Some(Described {
                kind: OpKind::Graph,
                function,
                hash,
                shape,
                records,
                payload_bytes: 0,
            })
        },
        || {
            // SAFETY: the caller's arguments.
            let result = unsafe { real(exec, stream) };
            if graphs::allocates(exec)
                && let Some(driver) = state::driver()
            {
                // Only graphs with memory nodes, which may have taken it now.
                graph_memory::refresh(driver, driver.ctx_device().unwrap_or(0));
            }
            result
        },
    )
}

/// Runs an instantiation and walks the graph if it succeeded.
fn instantiated(exec: *mut Handle, graph: Handle, plain: impl Fn() -> u32) -> u32 {
    hooked(plain, |driver, ledger, real_call| {
        let result = real_call();
        if result == SUCCESS && !exec.is_null() {
            // SAFETY: the driver accepted the pointer and filled it in.
            graphs::instantiated(driver, ledger, unsafe { *exec }, graph);
        }
        result
    })
}

unsafe extern "C" fn instantiate_old<const SECOND: bool>(
    exec: *mut Handle,
    graph: Handle,
    error_node: *mut Handle,
    log: *mut u8,
    log_bytes: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, Handle, *mut Handle, *mut u8, usize) -> u32;
    let hook = if SECOND {
        Hook::cuGraphInstantiate_v2
    } else {
        Hook::cuGraphInstantiate
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    instantiated(exec, graph, || unsafe {
        real(exec, graph, error_node, log, log_bytes)
    })
}

unsafe extern "C" fn instantiate_flags(exec: *mut Handle, graph: Handle, flags: u64) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32;
    let Some(real) = real!(Hook::cuGraphInstantiateWithFlags, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    instantiated(exec, graph, || unsafe { real(exec, graph, flags) })
}

unsafe extern "C" fn instantiate_params<const PER_THREAD: bool>(
    exec: *mut Handle,
    graph: Handle,
    params: *mut c_void,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, Handle, *mut c_void) -> u32;
    let hook = if PER_THREAD {
        Hook::cuGraphInstantiateWithParams_ptsz
    } else {
        Hook::cuGraphInstantiateWithParams
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    instantiated(exec, graph, || unsafe { real(exec, graph, params) })
}

unsafe extern "C" fn destroy(exec: Handle) -> u32 {
    let Some(real) = real!(
        Hook::cuGraphExecDestroy,
        unsafe extern "C" fn(Handle) -> u32
    ) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(exec) };
    hooked(plain, |driver, _, real_call| {
        let allocates = graphs::allocates(exec);
        graphs::destroyed(exec);
        let result = real_call();
        if allocates {
            graph_memory::refresh(driver, driver.ctx_device().unwrap_or(0));
        }
        result
    })
}

/// Both forms take the graph second; what follows differs and is passed on.
unsafe extern "C" fn update<const SECOND: bool>(
    exec: Handle,
    graph: Handle,
    third: *mut c_void,
    fourth: *mut c_void,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, *mut c_void, *mut c_void) -> u32;
    let hook = if SECOND {
        Hook::cuGraphExecUpdate_v2
    } else {
        Hook::cuGraphExecUpdate
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments; the second form does not read the fourth.
    let plain = || unsafe { real(exec, graph, third, fourth) };
    hooked(plain, |driver, ledger, real_call| {
        let result = real_call();
        if result == SUCCESS {
            graphs::instantiated(driver, ledger, exec, graph);
        }
        result
    })
}

unsafe extern "C" fn set_params<const SECOND: bool>(
    exec: Handle,
    node: Handle,
    params: *const KernelParams,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, *const KernelParams) -> u32;
    let hook = if SECOND {
        Hook::cuGraphExecKernelNodeSetParams_v2
    } else {
        Hook::cuGraphExecKernelNodeSetParams
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    changed(exec, Change::Kernel(params, SECOND), || unsafe {
        real(exec, node, params)
    })
}

/// Runs a change of one node, and learns from it if it succeeded.
fn changed(exec: Handle, change: Change, plain: impl Fn() -> u32) -> u32 {
    hooked(plain, |driver, ledger, real_call| {
        let result = real_call();
        if result == SUCCESS {
            // SAFETY: the driver accepted the parameters; they are the caller's still.
            unsafe { graphs::node_changed(driver, ledger, exec, change) };
        }
        result
    })
}

unsafe extern "C" fn set_memset(
    exec: Handle,
    node: Handle,
    params: *const MemsetParams,
    context: Handle,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, *const MemsetParams, Handle) -> u32;
    let Some(real) = real!(Hook::cuGraphExecMemsetNodeSetParams, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    changed(exec, Change::Memset(params), || unsafe {
        real(exec, node, params, context)
    })
}

unsafe extern "C" fn set_memcpy(
    exec: Handle,
    node: Handle,
    params: *const CopyWords,
    context: Handle,
) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, *const CopyWords, Handle) -> u32;
    let Some(real) = real!(Hook::cuGraphExecMemcpyNodeSetParams, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    changed(exec, Change::Memcpy(params), || unsafe {
        real(exec, node, params, context)
    })
}

unsafe extern "C" fn set_child(exec: Handle, node: Handle, child: Handle) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, Handle) -> u32;
    let Some(real) = real!(Hook::cuGraphExecChildGraphNodeSetParams, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    changed(exec, Change::Child(child), || unsafe {
        real(exec, node, child)
    })
}

/// The head of `CUgraphNodeParams`: a node type, and then the parameters of that type.
#[repr(C)]
struct NodeParams {
    kind: i32,
    reserved: [i32; 3],
    params: [u64; 29],
}

/// Words before the copy itself in `CUDA_MEMCPY_NODE_PARAMS`: flags, and a context.
const BEFORE_COPY: usize = 2;

impl NodeParams {
    /// What the change says, for nodes that touch memory.
    fn change(&self) -> Option<Change> {
        match self.kind {
            graphs::NODE_KERNEL => Some(Change::Kernel(self.params.as_ptr().cast(), true)),
            graphs::NODE_MEMSET => Some(Change::Memset(self.params.as_ptr().cast())),
            graphs::NODE_MEMCPY => {
                let copy = self.params.get(BEFORE_COPY..)?.first_chunk()?;
                Some(Change::Memcpy(core::ptr::from_ref(copy)))
            }
            graphs::NODE_CHILD => {
                let child = usize::try_from(*self.params.first()?).ok()?;
                Some(Change::Child(child))
            }
            _ => None,
        }
    }
}

unsafe extern "C" fn set_any(exec: Handle, node: Handle, params: *const NodeParams) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, *const NodeParams) -> u32;
    let Some(real) = real!(Hook::cuGraphExecNodeSetParams, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(exec, node, params) };
    // SAFETY: null, or the caller's parameters.
    match unsafe { params.as_ref() }.and_then(NodeParams::change) {
        Some(change) => changed(exec, change, plain),
        None => plain(),
    }
}

unsafe extern "C" fn set_enabled(exec: Handle, node: Handle, enabled: u32) -> u32 {
    type Real = unsafe extern "C" fn(Handle, Handle, u32) -> u32;
    let Some(real) = real!(Hook::cuGraphNodeSetEnabled, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    changed(exec, Change::Switched, || unsafe {
        real(exec, node, enabled)
    })
}
