//! Managed pools beside the job's own (CUDA 13 and later). Stream-ordered memory that is to be
//! converted is taken from the twin of the pool that the job asked: a pool of managed memory with
//! the same attributes, made when it is first needed and gone with the job's. Only pools of plain
//! device memory that cannot be exported have one; the driver's default pools are among them.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, Handle, OUT_OF_MEMORY, SUCCESS};
use crate::streams;

/// First driver version with managed pools.
const SINCE: u32 = 13_000;
/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `_MANAGED`.
const PINNED: c_int = 1;
const MANAGED: c_int = 2;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_int = 1;
/// `CU_MEMPOOL_ATTR_*` that a twin takes over: the reuse policies (1 to 3, 32 bits each) and the
/// release threshold.
const FOLLOWED: core::ops::RangeInclusive<c_int> = 1..=4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_NOW: c_int = 5;

/// `CUmemPoolProps`: its largest size and usage follow, zero for no limit and no special use.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProps {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location_id: c_int,
    rest: [u64; 9],
}

/// What a pool of the job's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Plain memory of this device: convertible.
    Device(u32),
    /// The job's own managed memory, preferring this device.
    Managed(u32),
    /// Host memory, exportable or imported memory.
    Other,
}

#[derive(Clone, Copy)]
struct Pool {
    sort: Sort,
    /// 0: none yet.
    twin: Handle,
    /// The context that was current when the twin was made: a reset of the device ends both.
    context: Handle,
}

type Pools = BTreeMap<Handle, Pool>;

/// The driver refused a managed pool or memory from one; not asked again.
static REFUSED: AtomicBool = AtomicBool::new(false);

fn pools() -> MutexGuard<'static, Pools> {
    static POOLS: Mutex<Pools> = Mutex::new(BTreeMap::new());
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(pool: Handle, sort: Sort) {
    let (twin, context) = (0, 0);
    pools().insert(
        pool,
        Pool {
            sort,
            twin,
            context,
        },
    );
}

/// The job made a pool.
pub(crate) fn made(pool: Handle, props: &PoolProps) {
    let device = u32::try_from(props.location_id).ok();
    let sort = match (props.kind, props.location_kind, device) {
        (PINNED, DEVICE, Some(device)) if props.handle_types == 0 => Sort::Device(device),
        (MANAGED, _, device) => Sort::Managed(device.unwrap_or(0)),
        _ => Sort::Other,
    };
    note(pool, sort);
}

/// The job destroyed a pool: its twin goes too, as soon as nothing lives in it.
pub(crate) fn destroyed(driver: &Driver, pool: Handle) {
    let known = pools().remove(&pool);
    if let Some(known) = known.filter(|known| known.twin != 0) {
        let _ = driver.pool_destroy(known.twin);
    }
}

/// What a pool holds. One that the job did not make is a device's default pool, or is not ours to
/// judge (imported).
pub(crate) fn sort_of(driver: &Driver, pool: Handle) -> Sort {
    if let Some(known) = pools().get(&pool) {
        return known.sort;
    }
    let devices = driver.device_count().unwrap_or(0);
    let device = (0..devices).find(|device| driver.default_pool(*device) == Ok(pool));
    let sort = device.map_or(Sort::Other, Sort::Device);
    note(pool, sort);
    sort
}

/// The twin of a pool, if it has one.
pub(crate) fn existing(pool: Handle) -> Option<Handle> {
    let known = pools().get(&pool).map(|known| known.twin);
    known.filter(|twin| *twin != 0)
}

/// The twin of a pool of `device`, made now if need be. `None`: the driver has no managed pools,
/// or a capture is under way that making one could ruin.
pub(crate) fn of(driver: &Driver, pool: Handle, device: u32) -> Option<Handle> {
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    if let Some(twin) = existing(pool) {
        return Some(twin);
    }
    if streams::any_capture() {
        return None;
    }
    let Some(twin) = make(driver, pool, device) else {
        REFUSED.store(true, Ordering::Relaxed);
        return None;
    };
    let context = driver.ctx_current().unwrap_or(0);
    let mut pools = pools();
    let known = pools.get_mut(&pool)?;
    if known.twin == 0 {
        (known.twin, known.context) = (twin, context);
        return Some(twin);
    }
    // Another thread was faster.
    let first = known.twin;
    drop(pools);
    let _ = driver.pool_destroy(twin);
    Some(first)
}

fn make(driver: &Driver, pool: Handle, device: u32) -> Option<Handle> {
    if driver.version().unwrap_or(0) < SINCE {
        return None;
    }
    let props = PoolProps {
        kind: MANAGED,
        handle_types: 0,
        location_kind: DEVICE,
        location_id: device.cast_signed(),
        rest: [0; 9],
    };
    let twin = driver.pool_create((&raw const props).cast()).ok()?;
    for attribute in FOLLOWED {
        let mut value = 0_u64;
        let place: *mut c_void = (&raw mut value).cast();
        if driver.pool_get(pool, attribute, place).is_ok() {
            let _ = driver.pool_set(twin, attribute, place);
        }
    }
    Some(twin)
}

/// A twin refused what the job's own pool then gave. Out of memory is an answer; anything else
/// means that twins do not work here.
pub(crate) fn refused(error: u32) {
    if error != SUCCESS && error != OUT_OF_MEMORY && !streams::any_capture() {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// The job set an attribute of its pool.
pub(crate) fn follow(driver: &Driver, pool: Handle, attribute: c_int, value: *mut c_void) {
    // The high-water marks (6 and 8) are only ever reset.
    if let Some(twin) = existing(pool)
        && (FOLLOWED.contains(&attribute) || matches!(attribute, 6 | 8))
    {
        let _ = driver.pool_set(twin, attribute, value);
    }
}

/// What the twin adds to an answer about its pool (reserved and used bytes, now and at most).
pub(crate) fn share(driver: &Driver, pool: Handle, attribute: c_int) -> u64 {
    let mut value = 0_u64;
    let asked = match existing(pool) {
        Some(twin) if (RESERVED_NOW..=8).contains(&attribute) => {
            driver.pool_get(twin, attribute, (&raw mut value).cast())
        }
        _ => return 0,
    };
    if asked.is_ok() { value } else { 0 }
}

/// The job gave back what its pool holds beyond `keep` bytes: the twin keeps what the pool left.
pub(crate) fn trim(driver: &Driver, pool: Handle, keep: usize) {
    let Some(twin) = existing(pool) else {
        return;
    };
    let mut reserved = 0_u64;
    let place = (&raw mut reserved).cast();
    let _ = driver.pool_get(pool, RESERVED_NOW, place);
    let reserved = usize::try_from(reserved).unwrap_or(usize::MAX);
    let _ = driver.pool_trim(twin, keep.saturating_sub(reserved));
}

/// Gives back all that twins hold and nobody uses; whether there was a twin to ask. Not while
/// anything is captured.
pub(crate) fn trim_all(driver: &Driver) -> bool {
    if streams::any_capture() {
        return false;
    }
    let twins: Vec<Handle> = pools().values().map(|pool| pool.twin).collect();
    let mut any = false;
    for twin in twins.into_iter().filter(|twin| *twin != 0) {
        any |= driver.pool_trim(twin, 0).is_ok();
    }
    any
}

/// A context is gone, and with a device's primary one perhaps its pools: twins are made anew.
pub(crate) fn context_gone(context: Handle) {
    for pool in pools().values_mut() {
        if pool.twin != 0 && pool.context == context {
            pool.twin = 0;
        }
    }
}
