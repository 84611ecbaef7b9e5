//! Allocation and free of device memory: conversion to managed memory, and the ledger.

use core::ffi::c_void;

use super::{pools, stub};
use crate::callers::{self, Caller};
use crate::ceiling::{self, Verdict};
use crate::driver::{Driver, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::observer::Allocation;
use crate::ops::hooked;
use crate::settings::Settings;
use crate::{coverage, log, state};

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;

stub!(cuMemAlloc_v2, 2, alloc);
stub!(cuMemAllocPitch_v2, 5, alloc_pitch);
stub!(cuMemAllocManaged, 3, alloc_managed);
stub!(cuMemFree_v2, none, free);
stub!(cuIpcGetMemHandle, none, ipc_handle);

/// Something that asked for device memory, and what we know of it.
struct Request {
    bytes: u64,
    device: u32,
    context: Handle,
    caller: Caller,
}

enum Made {
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
        match convert(driver, &request) {
            Made::Converted(address) => {
                // SAFETY: non-null and the caller's to write to.
                unsafe { *answer = address };
                enter(ledger, &request, address, true, true);
                SUCCESS
            }
            Made::Refused(error) => error,
            Made::Plain => unconverted(driver, ledger, &request, answer, real_call),
        }
    })
}

fn request(driver: &Driver, bytes: u64, from: usize) -> Request {
    Request {
        bytes,
        device: driver.ctx_device().unwrap_or(0),
        context: driver.ctx_current().unwrap_or(0),
        caller: callers::who(from),
    }
}

/// Makes managed memory of a request that is ours to convert.
fn convert(driver: &Driver, request: &Request) -> Made {
    let Some(settings) = state::settings() else {
        return Made::Plain;
    };
    if request.bytes == 0 || request.bytes < settings.min_bytes || request.caller.excluded {
        return Made::Plain;
    }
    let Some(make) = driver.mem_alloc_managed else {
        return Made::Plain;
    };
    match ceiling::ask(driver, settings, request.device, request.bytes) {
        Verdict::LeaveAlone | Verdict::Taken => return Made::Plain,
        Verdict::OutOfMemory => return Made::Refused(OUT_OF_MEMORY),
        Verdict::Convert => {}
    }
    let Ok(bytes) = usize::try_from(request.bytes) else {
        return Made::Plain;
    };
    let mut address = 0_u64;
    // SAFETY: the driver's own function; `address` is a live local.
    let result = unsafe { make(&raw mut address, bytes, ATTACH_GLOBAL) };
    match result {
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

/// A child of a fork cannot use the memory; mapping it there makes the parent's faults slow.
fn keep_from_children(address: u64, bytes: usize) {
    const PAGE: u64 = 4096;
    let start = address.next_multiple_of(PAGE);
    let end = (address + bytes as u64) & !(PAGE - 1);
    let Ok(length) = usize::try_from(end.saturating_sub(start)) else {
        return;
    };
    let Ok(start) = usize::try_from(start) else {
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

/// Enters an allocation and tells the observer.
fn enter(ledger: &Ledger, request: &Request, address: u64, converted: bool, managed: bool) {
    let (allocation, stale) = ledger.insert(Allocation {
        id: Default::default(),
        address,
        bytes: request.bytes,
        device: request.device,
        context: request.context,
        converted,
        managed,
        caller: request.caller.name,
    });
    if let Some(stale) = stale {
        ceiling::freed(&stale);
    }
    coverage::report_once();
    if let Some(observer) = state::observer() {
        observer.allocated(&allocation);
    }
}

fn limits() -> Option<&'static Settings> {
    state::settings()
}

/// A request that stays device memory: counted, refused only where the ceiling demands it.
fn unconverted(
    driver: &Driver,
    ledger: &Ledger,
    request: &Request,
    answer: *mut u64,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let Some(settings) = limits() else {
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
            convert(driver, &request)
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

/// The job's own managed memory: tracked as it is. Only `TRANSIT_NO_OVERSUBSCRIBE` limits it.
unsafe extern "C" fn alloc_managed(answer: *mut u64, bytes: usize, flags: u32, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, u32) -> u32;
    let Some(real) = real!(Hook::cuMemAllocManaged, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(answer, bytes, flags) };
    hooked(plain, |driver, ledger, real_call| {
        let request = request(driver, bytes as u64, from);
        let strict = limits().filter(|settings| settings.no_oversubscribe);
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
            enter(ledger, &request, unsafe { *answer }, false, true);
        } else {
            ceiling::give_back(request.device, request.bytes);
        }
        result
    })
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
/// thread may get the same address.
pub(super) fn free_known(ledger: &Ledger, address: u64, real_call: &dyn Fn() -> u32) -> u32 {
    if let (Some(allocation), Some(observer)) = (ledger.at_base(address), state::observer()) {
        observer.freeing(&allocation);
    }
    let Some(allocation) = ledger.remove(address) else {
        return pools::free_other(ledger, address, real_call);
    };
    let result = real_call();
    if result != SUCCESS {
        ledger.restore(allocation);
        return result;
    }
    ceiling::freed(&allocation);
    result
}

/// The driver cannot share managed memory with another process. The job gets the driver's answer;
/// the line says how to keep that library's memory as it is.
unsafe extern "C" fn ipc_handle(handle: *mut c_void, address: u64) -> u32 {
    type Real = unsafe extern "C" fn(*mut c_void, u64) -> u32;
    let Some(real) = real!(Hook::cuIpcGetMemHandle, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, address) };
    hooked(plain, |_, ledger, real_call| {
        let result = real_call();
        if result != SUCCESS
            && let Some(found) = ledger.find(address).filter(|found| found.converted)
        {
            let caller = ledger.at_base(found.base).map_or("", |entry| entry.caller);
            log::complain(format_args!(
                "allocation {} ({} bytes, asked for by {caller}) is to be shared with another \
                 process, which managed memory cannot be; keep such memory as it is with \
                 TRANSIT_EXCLUDE={caller} or a larger TRANSIT_MIN_BYTES",
                found.alloc, found.bytes,
            ));
        }
        result
    })
}
