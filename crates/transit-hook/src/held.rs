//! Device memory that is counted but stays as it is, by what holds it: an address of a pool or a
//! graph, an array's handle. What a release gives back is known from here, so counts never drift.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, OUT_OF_MEMORY, SUCCESS};
use crate::{ceiling, ledger, state};

/// What holds memory; kinds apart, so that equal numbers do not meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An address of stream-ordered memory.
    Pool,
    /// An address of a graph's memory node. Its bytes are the graph pool's, counted there.
    Graph,
    /// An array or mipmapped array.
    Array,
}

/// Device and bytes by what holds them.
type Held = HashMap<(Kind, u64), (u32, u64)>;

fn held() -> MutexGuard<'static, Option<Held>> {
    static HELD: Mutex<Option<Held>> = Mutex::new(None);
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a holder.
pub(crate) fn hold(kind: Kind, key: u64, device: u32, bytes: u64) {
    held()
        .get_or_insert_default()
        .insert((kind, key), (device, bytes));
}

/// Whether a holder is known.
pub(crate) fn known(kind: Kind, key: u64) -> bool {
    held()
        .as_ref()
        .is_some_and(|held| held.contains_key(&(kind, key)))
}

/// Bytes that came to be; undone with [`gone`].
pub(crate) fn came(bytes: u64) {
    if let Some(ledger) = ledger::get() {
        ledger.other_device_bytes().add(bytes);
    }
}

/// Bytes that are gone.
pub(crate) fn gone(device: u32, bytes: u64) {
    if let Some(ledger) = ledger::get() {
        ledger.other_device_bytes().sub(bytes);
    }
    ceiling::give_back_unconverted(device, bytes);
}

/// Runs a release. What was held is taken out first: once the driver has it back, another thread
/// may be given the same handle.
pub(crate) fn released(kind: Kind, key: u64, real_call: &dyn Fn() -> u32) -> u32 {
    let taken = held().get_or_insert_default().remove(&(kind, key));
    let result = real_call();
    match taken {
        Some((device, bytes)) if result == SUCCESS => gone(device, bytes),
        Some((device, bytes)) => hold(kind, key, device, bytes),
        None => {}
    }
    result
}

/// Runs an allocation that stays as it is; its bytes are counted if it succeeds, and it fails as
/// out of memory where the ceiling demands it.
pub(crate) fn counted(
    driver: &Driver,
    device: u32,
    bytes: u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let Some(settings) = state::settings() else {
        return real_call();
    };
    if !ceiling::ask_unconverted(driver, settings, device, bytes) {
        return OUT_OF_MEMORY;
    }
    let result = real_call();
    if result == SUCCESS {
        came(bytes);
    } else {
        ceiling::give_back_unconverted(device, bytes);
    }
    result
}
