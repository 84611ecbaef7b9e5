//! Stream-ordered memory: taken from the managed twin of the job's pool ([`crate::twins`]) where
//! the driver has managed pools, otherwise passed and counted. To the job there is one pool.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use super::memory::{self, Made, Request};
use super::{graph_memory, stub};
use crate::coverage::{self, Bypass};
use crate::driver::{Driver, Handle, NOT_FOUND, SUCCESS};
use crate::held::{self, Kind};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::ops::hooked;
use crate::streams;
use crate::twins::{self, PoolProps, Sort};

stub!(cuMemAllocAsync, 3, alloc_async::<false>);
stub!(cuMemAllocAsync_ptsz, 3, alloc_async::<true>);
stub!(cuMemAllocFromPoolAsync, 4, alloc_from_pool::<false>);
stub!(cuMemAllocFromPoolAsync_ptsz, 4, alloc_from_pool::<true>);
stub!(cuMemFreeAsync, none, free_async::<false>);
stub!(cuMemFreeAsync_ptsz, none, free_async::<true>);
stub!(cuMemPoolCreate, none, pool_create);
stub!(cuMemPoolDestroy, none, pool_destroy);
stub!(cuMemPoolTrimTo, none, pool_trim);
stub!(cuMemPoolSetAttribute, none, pool_set);
stub!(cuMemPoolGetAttribute, none, pool_get);

/// What a job asked for in stream order.
struct Ask {
    answer: *mut u64,
    bytes: u64,
    /// `None`: the device's current pool.
    pool: Option<Handle>,
    /// As calls without the per-thread suffix know it.
    stream: Handle,
    from: usize,
}

fn allocate(driver: &Driver, ledger: &Ledger, ask: &Ask, real_call: &dyn Fn() -> u32) -> u32 {
    if ask.answer.is_null() {
        return real_call();
    }
    if streams::captured(driver, ask.stream) {
        return graph_memory::captured(driver, ask.bytes, ask.from, ask.answer, real_call);
    }
    let mut request = memory::request(driver, ask.bytes, ask.from);
    let here = request.device;
    request.pool = ask
        .pool
        .or_else(|| driver.current_pool(here).ok())
        .unwrap_or(0);
    match twins::sort_of(driver, request.pool) {
        Sort::Managed(device) => {
            request.device = device;
            memory::job_managed(driver, ledger, &request, ask.answer, real_call)
        }
        Sort::Device(device) => {
            request.device = device;
            let error = Cell::new(SUCCESS);
            match convert(driver, &request, ask.stream, here, &error) {
                Made::Converted(address) => {
                    // SAFETY: non-null and the caller's to write to.
                    unsafe { *ask.answer = address };
                    memory::enter(ledger, &request, address, true, true);
                    SUCCESS
                }
                Made::Refused(error) => error,
                Made::Plain => {
                    let result = unconverted(driver, &request, ask.answer, real_call);
                    if result == SUCCESS {
                        twins::refused(error.get());
                    }
                    result
                }
            }
        }
        Sort::Other => unconverted(driver, &request, ask.answer, real_call),
    }
}

/// Takes memory from the twin of the pool, if the request is ours to convert. The ceiling is that
/// of the current context's device: memory of another stays as it is. `error` is the twin's answer.
fn convert(
    driver: &Driver,
    request: &Request,
    stream: Handle,
    here: u32,
    error: &Cell<u32>,
) -> Made {
    let wanted = memory::wanted(request).is_some_and(|settings| settings.pools);
    // Without a current context the driver cannot be asked what is free, and the request would be
    // refused for it.
    if !wanted || here != request.device || request.context == 0 {
        return Made::Plain;
    }
    let Some(twin) = twins::of(driver, request.pool, request.device) else {
        return Made::Plain;
    };
    memory::convert(driver, request, &|address, bytes| {
        let result = driver.pool_alloc(address, bytes, twin, stream);
        error.set(result);
        result
    })
}

/// Stream-ordered memory that stays as it is.
fn unconverted(
    driver: &Driver,
    request: &Request,
    answer: *mut u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let result = held::counted(driver, request.device, request.bytes, real_call);
    if result == SUCCESS {
        // SAFETY: the driver accepted the pointer and filled it in.
        let address = unsafe { *answer };
        held::hold(Kind::Pool, address, request.device, request.bytes);
        if memory::wanted(request).is_some() {
            coverage::bypassed(Bypass::Pool, request.caller, request.bytes);
        }
    }
    result
}

unsafe extern "C" fn alloc_async<const PER_THREAD: bool>(
    answer: *mut u64,
    bytes: usize,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemAllocAsync_ptsz
    } else {
        Hook::cuMemAllocAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    let ask = Ask {
        answer,
        bytes: bytes as u64,
        pool: None,
        stream: streams::canonical(stream, PER_THREAD),
        from,
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, stream) };
    hooked(plain, |driver, ledger, real_call| {
        allocate(driver, ledger, &ask, real_call)
    })
}

unsafe extern "C" fn alloc_from_pool<const PER_THREAD: bool>(
    answer: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, Handle, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemAllocFromPoolAsync_ptsz
    } else {
        Hook::cuMemAllocFromPoolAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    let ask = Ask {
        answer,
        bytes: bytes as u64,
        pool: Some(pool),
        stream: streams::canonical(stream, PER_THREAD),
        from,
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, pool, stream) };
    hooked(plain, |driver, ledger, real_call| {
        allocate(driver, ledger, &ask, real_call)
    })
}

/// Frees pool memory, or memory of `cuMemAlloc`, which `cuMemFreeAsync` accepts as well.
unsafe extern "C" fn free_async<const PER_THREAD: bool>(address: u64, stream: Handle) -> u32 {
    type Real = unsafe extern "C" fn(u64, Handle) -> u32;
    let hook = if PER_THREAD {
        Hook::cuMemFreeAsync_ptsz
    } else {
        Hook::cuMemFreeAsync
    };
    let Some(real) = real!(hook, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(address, stream) };
    hooked(plain, |driver, ledger, real_call| {
        let stream = streams::canonical(stream, PER_THREAD);
        if streams::captured(driver, stream) {
            // A node of a graph: nothing is freed now, and waiting would ruin the capture.
            return real_call();
        }
        match ledger.at_base(address) {
            // A twin's memory is freed in stream order. It may come back at once for the next
            // request on this stream, so it leaves the ledger before the call.
            Some(known) if known.converted && known.pool == 0 => {
                free_converted(driver, ledger, address, stream)
            }
            _ => memory::free_known(ledger, address, real_call),
        }
    })
}

/// Managed memory of no pool cannot be freed in stream order: wait for the stream, then free it.
fn free_converted(driver: &Driver, ledger: &Ledger, address: u64, stream: Handle) -> u32 {
    if let Err(error) = driver.stream_synchronize(stream) {
        return error;
    }
    let Some(free) = driver.mem_free else {
        return NOT_FOUND;
    };
    memory::free_known(ledger, address, &|| {
        // SAFETY: memory of ours that the job gives back.
        unsafe { free(address) }
    })
}

unsafe extern "C" fn pool_create(pool: *mut Handle, props: *const c_void) -> u32 {
    type Real = unsafe extern "C" fn(*mut Handle, *const c_void) -> u32;
    let Some(real) = real!(Hook::cuMemPoolCreate, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(pool, props) };
    hooked(plain, |_, _, real_call| {
        let result = real_call();
        // SAFETY: null, or the caller's properties.
        if let (SUCCESS, Some(props)) = (result, unsafe { props.cast::<PoolProps>().as_ref() }) {
            // SAFETY: the driver accepted the pointer and filled it in.
            twins::made(unsafe { *pool }, props);
        }
        result
    })
}

unsafe extern "C" fn pool_destroy(pool: Handle) -> u32 {
    let Some(real) = real!(Hook::cuMemPoolDestroy, unsafe extern "C" fn(Handle) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(pool) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        if result == SUCCESS {
            twins::destroyed(driver, pool);
        }
        result
    })
}

unsafe extern "C" fn pool_trim(pool: Handle, keep: usize) -> u32 {
    type Real = unsafe extern "C" fn(Handle, usize) -> u32;
    let Some(real) = real!(Hook::cuMemPoolTrimTo, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(pool, keep) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        if result == SUCCESS {
            twins::trim(driver, pool, keep);
        }
        result
    })
}

unsafe extern "C" fn pool_set(pool: Handle, attribute: c_int, value: *mut c_void) -> u32 {
    type Real = unsafe extern "C" fn(Handle, c_int, *mut c_void) -> u32;
    let Some(real) = real!(Hook::cuMemPoolSetAttribute, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(pool, attribute, value) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        if result == SUCCESS {
            twins::follow(driver, pool, attribute, value);
        }
        result
    })
}

unsafe extern "C" fn pool_get(pool: Handle, attribute: c_int, value: *mut c_void) -> u32 {
    type Real = unsafe extern "C" fn(Handle, c_int, *mut c_void) -> u32;
    let Some(real) = real!(Hook::cuMemPoolGetAttribute, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(pool, attribute, value) };
    hooked(plain, |driver, _, real_call| {
        let result = real_call();
        if result == SUCCESS && !value.is_null() {
            let more = twins::share(driver, pool, attribute);
            if more != 0 {
                // SAFETY: the attributes that twins share in are 64-bit and were filled in.
                let own = unsafe { value.cast::<u64>().read() };
                // SAFETY: as above, the caller's to write to.
                unsafe { value.cast::<u64>().write(own.saturating_add(more)) };
            }
        }
        result
    })
}
