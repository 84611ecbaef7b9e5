//! Allocation and free of device memory: conversion to managed memory, and the ledger.

use super::stub;
use crate::callers::{self, Caller};
use crate::ceiling::{self, Verdict};
use crate::driver::{Driver, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS};
use crate::held::{self, Kind};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::observer::Allocation;
use crate::ops::hooked;
use crate::settings::Settings;
use crate::{birth, coverage, exclusions, state, twins};

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;

stub!(cuMemAlloc_v2, 2, alloc);
stub!(cuMemAllocPitch_v2, 5, alloc_pitch);
stub!(cuMemAllocManaged, 3, alloc_managed);
stub!(cuMemFree_v2, none, free);

/// Something that asked for device memory, and what we know of it.
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) device: u32,
    pub(super) caller: Caller,
    /// The job's pool that it was asked of; 0: none.
    pub(super) pool: Handle,
    pub(super) context: Handle,
}

pub(super) enum Made {
    /// Managed memory at this address.
    Converted(u64),
    /// Refused by the ceiling.
    Refused(u32),
    /// Not for us: the real call decides.
    Plain,
}

unsafe extern "C" fn alloc(answer: *mut u64, bytes: usize, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize) -> u32;
    let Some(real) = real!(Hook::cuMemAlloc_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes) };
    hooked(plain, |driver, ledger, real_call| {
        if answer.is_null() {
            return real_call();
        }
        let request = request(driver, bytes as u64, from);
        match convert(driver, &request, &|address, bytes| {
            managed(driver, address, bytes)
        }) {
            Made::Converted(address) => {
                // SAFETY: non-null and the caller's to write to.
                unsafe { *answer = address };
                enter(ledger, &request, address, true, true);
                birth::populate(driver, request.device, address, request.bytes);
                SUCCESS
            }
            Made::Refused(error) => error,
            Made::Plain => unconverted(driver, ledger, &request, answer, real_call),
        }
    })
}

pub(super) fn request(driver: &Driver, bytes: u64, from: usize) -> Request {
    Request {
        bytes,
        device: driver.ctx_device().unwrap_or(0),
        caller: callers::who(from),
        pool: 0,
        context: driver.ctx_current().unwrap_or(0),
    }
}

/// Whether a request is one that conversion is for, by its size and who asks.
pub(super) fn wanted(request: &Request) -> Option<&'static Settings> {
    let settings = state::settings()?;
    let wanted = request.bytes != 0
        && request.bytes >= settings.min_bytes
        && !request.caller.excluded
        && !exclusions::covers(request.caller.name, request.bytes);
    wanted.then_some(settings)
}

/// Makes managed memory of a request that is ours to convert: `make` asks the driver for it.
pub(super) fn convert(
    driver: &Driver,
    request: &Request,
    make: &dyn Fn(&mut u64, usize) -> u32,
) -> Made {
    let (Some(settings), Ok(bytes)) = (wanted(request), usize::try_from(request.bytes)) else {
        return Made::Plain;
    };
    let ask = || ceiling::ask(driver, settings, request.device, request.bytes);
    // What our pools keep for later counts as taken, and can be given back.
    let verdict = match ask() {
        Verdict::OutOfMemory if twins::trim_all(driver) => ask(),
        verdict => verdict,
    };
    match verdict {
        Verdict::LeaveAlone | Verdict::Taken => return Made::Plain,
        Verdict::OutOfMemory => return Made::Refused(OUT_OF_MEMORY),
        Verdict::Convert => {}
    }
    let mut address = 0_u64;
    match make(&mut address, bytes) {
        SUCCESS => {
            keep_from_children(address, bytes);
            Made::Converted(address)
        }
        // No managed memory to be had: the job gets what it asked for, or the driver's refusal.
        _ => {
            ceiling::give_back(request.device, request.bytes);
            Made::Plain
        }
    }
}

/// Managed memory of no pool.
fn managed(driver: &Driver, address: &mut u64, bytes: usize) -> u32 {
    match driver.mem_alloc_managed {
        // SAFETY: the driver's own function; `address` is a live local of the caller's.
        Some(make) => unsafe { make(address, bytes, ATTACH_GLOBAL) },
        None => NOT_FOUND,
    }
}

/// A child of a fork cannot use the memory; mapping it there makes the parent's faults slow.
fn keep_from_children(address: u64, bytes: usize) {
    // 64 KiB on some aarch64 systems; an address between pages would be refused.
    // SAFETY: asks for a constant of the system.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (start, length) = whole_pages(address, bytes as u64, page.max(1));
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return;
    };
    // SAFETY: whole pages of an allocation just made; the advice changes what `fork` copies and
    // nothing in this process. A refusal costs speed after a fork only.
    let _ = unsafe {
        libc::madvise(
            core::ptr::with_exposed_provenance_mut(start),
            length,
            libc::MADV_DONTFORK,
        )
    };
}

/// The pages that lie within a range altogether: where they begin, and their bytes.
fn whole_pages(address: u64, bytes: u64, page: u64) -> (u64, u64) {
    let start = address.next_multiple_of(page);
    let end = address.saturating_add(bytes) / page * page;
    (start, end.saturating_sub(start))
}

/// Enters an allocation and tells the observer.
pub(super) fn enter(
    ledger: &Ledger,
    request: &Request,
    address: u64,
    converted: bool,
    managed: bool,
) {
    let allocation = Allocation {
        id: Default::default(),
        address,
        bytes: request.bytes,
        device: request.device,
        context: request.context,
        converted,
        managed,
        pool: request.pool,
        caller: request.caller.name,
    };
    coverage::report_once();
    tell(ledger, allocation);
}

/// Gives an allocation a number and tells the observer. What lay there before is a leftover of a
/// free that we did not see.
fn tell(ledger: &Ledger, allocation: Allocation) {
    let (allocation, stale) = ledger.insert(allocation);
    let observer = state::observer();
    for stale in stale {
        ceiling::freed(&stale);
        if let Some(observer) = observer {
            observer.freeing(&stale);
        }
    }
    if let Some(observer) = observer {
        observer.allocated(&allocation);
    }
}

/// A request that stays device memory: counted, refused only where the ceiling demands it.
fn unconverted(
    driver: &Driver,
    ledger: &Ledger,
    request: &Request,
    answer: *mut u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let Some(settings) = state::settings() else {
        return real_call();
    };
    if !ceiling::ask_unconverted(driver, settings, request.device, request.bytes) {
        return OUT_OF_MEMORY;
    }
    let result = real_call();
    if result == SUCCESS {
        // SAFETY: the driver accepted the pointer and filled it in.
        let address = unsafe { *answer };
        enter(ledger, request, address, false, false);
    } else {
        ceiling::give_back_unconverted(request.device, request.bytes);
    }
    result
}

unsafe extern "C" fn alloc_pitch(
    answer: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, *mut usize, usize, usize, u32) -> u32;
    let Some(real) = real!(Hook::cuMemAllocPitch_v2, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, pitch, width, height, element) };
    hooked(plain, |driver, ledger, real_call| {
        if answer.is_null() || pitch.is_null() {
            return real_call();
        }
        // The driver's own rule for the pitch, learnt from one row.
        let one_row = |row: &mut u64, rule: &mut usize| {
            // SAFETY: the driver's own function, with live locals for answers.
            unsafe { real(row, rule, width, 1, element) }
        };
        let rule = pitch_rule(driver, one_row);
        let bytes = rule.unwrap_or(width).saturating_mul(height) as u64;
        let request = request(driver, bytes, from);
        let made = if rule.is_some() {
            convert(driver, &request, &|address, bytes| {
                managed(driver, address, bytes)
            })
        } else {
            Made::Plain
        };
        match made {
            Made::Converted(address) => {
                // SAFETY: non-null and the caller's to write to.
                unsafe { *answer = address };
                // SAFETY: as above.
                unsafe { *pitch = rule.unwrap_or(width) };
                enter(ledger, &request, address, true, true);
                birth::populate(driver, request.device, address, request.bytes);
                SUCCESS
            }
            Made::Refused(error) => error,
            Made::Plain => unconverted(driver, ledger, &request, answer, real_call),
        }
    })
}

fn pitch_rule(driver: &Driver, one_row: impl Fn(&mut u64, &mut usize) -> u32) -> Option<usize> {
    let (mut row, mut rule) = (0_u64, 0_usize);
    if one_row(&mut row, &mut rule) != SUCCESS {
        return None;
    }
    if let Some(free) = driver.mem_free {
        // SAFETY: the row was allocated just now and is used by nobody.
        let _ = unsafe { free(row) };
    }
    Some(rule)
}

unsafe extern "C" fn alloc_managed(answer: *mut u64, bytes: usize, flags: u32, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, u32) -> u32;
    let Some(real) = real!(Hook::cuMemAllocManaged, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, flags) };
    hooked(plain, |driver, ledger, real_call| {
        let request = request(driver, bytes as u64, from);
        job_managed(driver, ledger, &request, answer, real_call)
    })
}

/// The job's own managed memory: tracked as it is. Only `TRANSIT_NO_OVERSUBSCRIBE` limits it.
pub(super) fn job_managed(
    driver: &Driver,
    ledger: &Ledger,
    request: &Request,
    answer: *mut u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let strict = state::settings().filter(|settings| settings.no_oversubscribe);
    let verdict =
        strict.map(|settings| ceiling::ask(driver, settings, request.device, request.bytes));
    match verdict {
        // Another process converts on this GPU: managed memory could oversubscribe it.
        Some(Verdict::OutOfMemory | Verdict::Taken) => return OUT_OF_MEMORY,
        Some(Verdict::Convert) => {}
        Some(Verdict::LeaveAlone) | None => ceiling::take(request.device, request.bytes),
    }
    let result = real_call();
    if result == SUCCESS && !answer.is_null() {
        // SAFETY: the driver accepted the pointer and filled it in.
        enter(ledger, request, unsafe { *answer }, false, true);
    } else {
        ceiling::give_back(request.device, request.bytes);
    }
    result
}

unsafe extern "C" fn free(address: u64) -> u32 {
    let Some(real) = real!(Hook::cuMemFree_v2, unsafe extern "C" fn(u64) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(address) };
    hooked(plain, |_, ledger, real_call| {
        if address == 0 {
            return real_call();
        }
        free_known(ledger, address, real_call)
    })
}

/// Frees what may be in the ledger. It is taken out first: once the driver has it back, another
/// thread may get the same address. If the driver refuses, it is entered again as a new
/// allocation, for whoever was told that it goes.
pub(super) fn free_known(ledger: &Ledger, address: u64, real_call: &dyn Fn() -> u32) -> u32 {
    if let (Some(allocation), Some(observer)) = (ledger.at_base(address), state::observer()) {
        observer.freeing(&allocation);
    }
    let Some(allocation) = ledger.remove(address) else {
        return free_other(ledger, address, real_call);
    };
    let result = real_call();
    if result == SUCCESS {
        ceiling::freed(&allocation);
    } else {
        tell(ledger, allocation);
    }
    result
}

/// Frees what is not in the ledger: stream-ordered memory that was passed, a graph's, or unknown.
fn free_other(ledger: &Ledger, address: u64, real_call: &dyn Fn() -> u32) -> u32 {
    if !held::known(Kind::Pool, address) && !held::known(Kind::Graph, address) {
        ledger.unknown_free();
    }
    held::released(Kind::Pool, address, real_call)
}

#[cfg(test)]
mod tests {
    use super::whole_pages;

    #[test]
    fn only_whole_pages_of_any_size_are_kept_from_children() {
        assert_eq!(
            whole_pages(0x20_0000, 0x20_0000, 0x1000),
            (0x20_0000, 0x20_0000)
        );
        assert_eq!(
            whole_pages(0x20_0000, 0x20_0fff, 0x1000),
            (0x20_0000, 0x20_0000)
        );
        assert_eq!(
            whole_pages(0x20_1000, 0x20_0000, 0x1_0000),
            (0x21_0000, 0x1f_0000)
        );
        assert_eq!(whole_pages(0x1000, 0x1000, 0x1_0000).1, 0);
    }
}
