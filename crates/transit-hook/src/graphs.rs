//! Executable graphs: what their nodes point at, found by walking the graph when it is
//! instantiated, so that launching one is one op with the union of its pointers.

use core::ffi::c_void;
use core::ptr;

use crate::driver::{Driver, Handle};
use crate::handles::HandleMap;
use crate::ledger::Ledger;
use crate::observer::DeviceRecords;
use crate::wrappers::graph_memory::{self, NodeParams};
use crate::{callers, functions, scan};

pub(crate) const NODE_KERNEL: i32 = 0;
pub(crate) const NODE_MEMCPY: i32 = 1;
pub(crate) const NODE_MEMSET: i32 = 2;
pub(crate) const NODE_CHILD: i32 = 4;
const NODE_ALLOC: i32 = 10;
const NODE_CONDITIONAL: i32 = 13;
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`.
const DEVICE_UPDATABLE: i32 = 13;
/// Graphs inside graphs followed down to this depth.
const MOST_DEPTH: u32 = 8;
/// Nodes walked at most.
const MOST_NODES: usize = 1 << 20;

/// What a launch of the graph touches and causes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exec {
    /// Addresses found in managed memory, in order, each once. Looked up again at each launch.
    pub(crate) addresses: Vec<u64>,
    /// Kernel, memset and memcpy nodes, those of child graphs included. Nodes of other kinds cause
    /// no record: host functions, events, semaphores, memory of the graph's own.
    pub(crate) records: DeviceRecords,
    /// All nodes.
    pub(crate) nodes: u32,
    /// Some nodes are for memory.
    pub(crate) allocates: bool,
}

/// `CUDA_KERNEL_NODE_PARAMS`, second form (the first ends with `extra`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelParams {
    function: Handle,
    shape: [u32; 7],
    params: *const *const c_void,
    extra: *const *const c_void,
    kernel: Handle,
    context: Handle,
}

/// `CUDA_KERNEL_NODE_PARAMS`, first form.
#[repr(C)]
#[derive(Clone, Copy)]
struct FirstKernelParams {
    function: Handle,
    shape: [u32; 7],
    params: *const *const c_void,
    extra: *const *const c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS`, first form.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemsetParams {
    dst: u64,
    pitch: usize,
    value: u32,
    element_bytes: u32,
    width: usize,
    height: usize,
}

const _: () = assert!(size_of::<CopyWords>() == 200);

static KNOWN: HandleMap<Exec, { 1 << 12 }> = HandleMap::new();

/// What is known of an executable graph.
#[inline]
pub(crate) fn of(exec: Handle) -> Option<&'static Exec> {
    KNOWN.get(exec)
}

/// A graph was instantiated as `exec`, or `exec` was updated to it.
pub(crate) fn instantiated(driver: &Driver, ledger: &Ledger, exec: Handle, graph: Handle) {
    let mut found = Exec::default();
    walk(driver, ledger, graph, 0, &mut found);
    let allocates = found.allocates;
    let _ = KNOWN.insert(exec, found);
    if allocates {
        graph_memory::refresh(driver, driver.ctx_device().unwrap_or(0));
    }
}

/// Whether a launch of `exec` may take device memory for its nodes.
#[inline]
pub(crate) fn allocates(exec: Handle) -> bool {
    of(exec).is_some_and(|known| known.allocates)
}

/// An executable graph is about to be destroyed.
pub(crate) fn destroyed(exec: Handle) {
    KNOWN.remove(exec);
}

/// What an executable graph's node was given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Other arguments, and whether the struct has the fields of the second form.
    Kernel(*const KernelParams, bool),
    /// Another destination.
    Memset(*const MemsetParams),
    /// Another source or destination.
    Memcpy(*const CopyWords),
    /// Another graph in place of a child.
    Child(Handle),
    /// A node switched on or off: what a launch runs is not known any more.
    Switched,
}

/// `CUDA_MEMCPY3D`, as words: its addresses are found like those among a kernel's arguments.
pub(crate) type CopyWords = [u64; 25];

/// A node of `exec` was changed: what it points at now joins the union. What the node pointed at
/// before stays, since nothing says which addresses were its own.
///
/// # Safety
/// Pointers in `change` are null or what the job passes as the node's parameters.
pub(crate) unsafe fn node_changed(driver: &Driver, ledger: &Ledger, exec: Handle, change: Change) {
    let Some(mut found) = of(exec).cloned() else {
        return;
    };
    match change {
        // SAFETY: passed on.
        Change::Kernel(params, second) => unsafe {
            kernel_changed(driver, ledger, params, second, &mut found);
        },
        Change::Memset(params) => {
            // SAFETY: null, or the caller's parameters.
            if let Some(params) = unsafe { params.as_ref() } {
                note_managed(ledger, params.dst, &mut found);
            }
        }
        Change::Memcpy(words) => {
            // SAFETY: null, or the caller's parameters.
            for word in unsafe { words.as_ref() }.into_iter().flatten() {
                note_managed(ledger, *word, &mut found);
            }
        }
        // The new child has the shape of the old one, or the driver would have refused it.
        Change::Child(graph) => {
            let mut child = Exec::default();
            walk(driver, ledger, graph, 0, &mut child);
            child
                .addresses
                .iter()
                .for_each(|address| note(&mut found, *address));
        }
        Change::Switched => found.records.open = true,
    }
    let _ = KNOWN.insert(exec, found);
}

unsafe fn kernel_changed(
    driver: &Driver,
    ledger: &Ledger,
    params: *const KernelParams,
    second: bool,
    into: &mut Exec,
) {
    if params.is_null() {
        return;
    }
    // SAFETY: both forms of the struct begin with these fields.
    let known = unsafe { *params.cast::<FirstKernelParams>() };
    let handle = if known.function == 0 && second {
        // SAFETY: the second form has all fields.
        unsafe { *params }.kernel
    } else {
        known.function
    };
    kernel_node(driver, ledger, handle, known.params, known.extra, into);
}

fn walk(driver: &Driver, ledger: &Ledger, graph: Handle, depth: u32, into: &mut Exec) {
    let (Some(get_nodes), Some(get_type)) = (driver.graph_get_nodes, driver.graph_node_get_type)
    else {
        return;
    };
    let mut count = 0_usize;
    // SAFETY: a null array asks for the count; `count` is a live local.
    let counted = unsafe { get_nodes(graph, ptr::null_mut(), &raw mut count) };
    if counted != 0 || count == 0 || count > MOST_NODES || depth > MOST_DEPTH {
        return;
    }
    let mut nodes: Vec<Handle> = vec![0; count];
    // SAFETY: the array has room for `count` nodes.
    if unsafe { get_nodes(graph, nodes.as_mut_ptr(), &raw mut count) } != 0 {
        return;
    }
    nodes.truncate(count);
    into.nodes = into
        .nodes
        .saturating_add(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    for node in nodes {
        let mut kind = -1_i32;
        // SAFETY: a node of the graph; `kind` is a live local.
        if unsafe { get_type(node, &raw mut kind) } != 0 {
            continue;
        }
        match kind {
            NODE_KERNEL => walk_kernel(driver, ledger, node, into),
            NODE_MEMSET => walk_memset(driver, ledger, node, into),
            NODE_MEMCPY => walk_memcpy(driver, ledger, node, into),
            NODE_CHILD => walk_child(driver, ledger, node, depth, into),
            NODE_ALLOC => walk_alloc(driver, node, into),
            // What lies in its branches is not the graph's, and the device decides what runs.
            NODE_CONDITIONAL => into.records.open = true,
            _ => {}
        }
    }
}

fn walk_kernel(driver: &Driver, ledger: &Ledger, node: Handle, into: &mut Exec) {
    into.records.kernels = into.records.kernels.saturating_add(1);
    into.records.open |= device_updatable(driver, node);
    let Some(get) = driver.graph_kernel_params else {
        return;
    };
    let mut params = KernelParams {
        function: 0,
        shape: [0; 7],
        params: ptr::null(),
        extra: ptr::null(),
        kernel: 0,
        context: 0,
    };
    // SAFETY: a kernel node; the struct has the layout of the second form.
    if unsafe { get(node, (&raw mut params).cast()) } == 0 {
        let handle = if params.function == 0 {
            params.kernel
        } else {
            params.function
        };
        kernel_node(driver, ledger, handle, params.params, params.extra, into);
    }
}

/// Whether the device may change the node, or switch it off.
fn device_updatable(driver: &Driver, node: Handle) -> bool {
    let Some(get) = driver.graph_kernel_attribute else {
        return false;
    };
    // `CUlaunchAttributeValue` is 64 bytes; this attribute's begins with the answer.
    let mut value = [0_i32; 16];
    // SAFETY: a kernel node; the value has room for every attribute.
    let asked = unsafe { get(node, DEVICE_UPDATABLE, value.as_mut_ptr().cast()) };
    asked == 0 && value[0] != 0
}

fn kernel_node(
    driver: &Driver,
    ledger: &Ledger,
    handle: Handle,
    params: *const *const c_void,
    extra: *const *const c_void,
    into: &mut Exec,
) {
    let Some(function) = functions::of(driver, handle) else {
        return;
    };
    // SAFETY: the arguments of a kernel node are encoded as those of a launch.
    unsafe {
        scan::launch(ledger, function, params, extra, &mut |word, _, _| {
            note(into, word)
        })
    };
}

fn note(into: &mut Exec, address: u64) {
    if into.addresses.len() < scan::MOST_POINTERS && !into.addresses.contains(&address) {
        into.addresses.push(address);
    }
}

fn note_managed(ledger: &Ledger, address: u64, into: &mut Exec) {
    if ledger.find(address).is_some() {
        note(into, address);
    }
}

fn walk_memset(driver: &Driver, ledger: &Ledger, node: Handle, into: &mut Exec) {
    into.records.memsets = into.records.memsets.saturating_add(1);
    let Some(get) = driver.graph_memset_params else {
        return;
    };
    let mut params = MemsetParams::default();
    // SAFETY: a memset node; the struct has the layout of the first form.
    if unsafe { get(node, (&raw mut params).cast()) } == 0 {
        note_managed(ledger, params.dst, into);
    }
}

fn walk_memcpy(driver: &Driver, ledger: &Ledger, node: Handle, into: &mut Exec) {
    into.records.memcpys = into.records.memcpys.saturating_add(1);
    let Some(get) = driver.graph_memcpy_params else {
        return;
    };
    let mut words: CopyWords = [0; 25];
    // SAFETY: a memcpy node; the buffer has the size of the struct.
    if unsafe { get(node, words.as_mut_ptr().cast()) } == 0 {
        for word in words {
            note_managed(ledger, word, into);
        }
    }
}

/// A node that was neither added nor captured before our eyes is known from here on.
fn walk_alloc(driver: &Driver, node: Handle, into: &mut Exec) {
    into.allocates = true;
    let Some(get) = driver.graph_alloc_params else {
        return;
    };
    let mut params = NodeParams::default();
    // SAFETY: a node for memory; the struct has the layout asked for.
    if unsafe { get(node, (&raw mut params).cast()) } == 0 {
        let device = driver.ctx_device().unwrap_or(0);
        let bytes = params.bytes as u64;
        graph_memory::seen(device, params.address, bytes, callers::UNKNOWN);
    }
}

fn walk_child(driver: &Driver, ledger: &Ledger, node: Handle, depth: u32, into: &mut Exec) {
    let Some(get) = driver.graph_child else {
        return;
    };
    let mut child = 0;
    // SAFETY: a child graph node; `child` is a live local.
    if unsafe { get(node, &raw mut child) } == 0 {
        walk(driver, ledger, child, depth + 1, into);
    }
}
