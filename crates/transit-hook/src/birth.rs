//! Memory that we convert behaves at its first use as the device memory that was asked for: where all
//! fits, it is populated on its device when it is made. Otherwise its first use faults: on an H200
//! (driver 580, 2026-12-01) a copy of 512 MiB from pinned memory into untouched managed memory took
//! 33 to 58 ms and a kernel 40 to 57, against 10 on `cuMemAlloc`'s memory; populated first, they take
//! what they take there.
//!
//! One prefetch populates, on the legacy stream as long as no other stream of the job's waits for that,
//! else on a stream of ours: in a process with managed memory every further stream costs each small
//! kernel 120 ns (300 of 2.3 us in a graph: 691 us with one stream, 727 with two, used or not; same
//! GPU and day), so none is made without need. The call does the work: 4.6 us a MiB and 12 more (20 us
//! for an allocation of 2 MiB in all, where `cuMemAlloc` takes 47; 2,300 for 512 MiB, 170). A free
//! right behind it is the driver's to order.
//!
//! Nothing is populated
//! * unless all managed memory lies on the devices, the reserve kept free, by our account and by the
//!   driver's: memory that may lie elsewhere is brought by its first use, or by a plan;
//! * on an emulated card, and under a plan that keeps memory on the host, where the replayer prepares
//!   copies instead ([`crate::Observer::populates`]);
//! * by a recorder that records faults: what shows in no record was never touched, the planner
//!   concludes;
//! * that the job asked for as managed memory: it may want its first touch on the host;
//! * that comes from a pool: it is in order on the job's stream only, and a pool hands the same memory
//!   out again and again, populated since its first use, so the call would be made in vain each time.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Driver, Handle};
use crate::own_streams::OwnStreams;
use crate::{ceiling, state, streams};

static STREAMS: OwnStreams = OwnStreams::new();
static POPULATED_BYTES: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Populates converted memory just made on the current context's device, if that is for us to do. A
/// refusal is counted and changes nothing.
pub(crate) fn populate(driver: &Driver, device: u32, address: u64, bytes: u64) {
    let wanted = state::settings().is_some_and(|settings| settings.populate)
        && state::observer().is_some_and(|observer| observer.populates());
    if !wanted || !ceiling::fits_on_device(driver, bytes) {
        return;
    }
    let prefetch = |stream| driver.mem_prefetch_to_device(address, bytes, device, stream);
    let done = driver.relaxed(|| {
        let done = streams::beside_none(|| prefetch(streams::LEGACY).ok());
        done.unwrap_or_else(|| prefetch(STREAMS.current(driver)?).ok())
    });
    match done.flatten() {
        Some(()) => POPULATED_BYTES.fetch_add(bytes, Ordering::Relaxed),
        None => REFUSED.fetch_add(1, Ordering::Relaxed),
    };
}

/// A context is gone, and our stream with it.
pub(crate) fn context_gone(context: Handle) {
    STREAMS.forget(context);
}

/// Bytes populated when they were made.
#[must_use]
pub fn populated_bytes() -> u64 {
    POPULATED_BYTES.load(Ordering::Relaxed)
}

/// Allocations that were to be populated and that the driver did not populate.
#[must_use]
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}
