//! Exports of memory to other processes and devices. Managed memory cannot be exported: the job
//! gets the driver's answer, and the exclusion file a rule, so that the next run leaves such memory
//! as it is. (Pools that can be exported are never converted, so `cuMemPoolExport*` work as bare.)

use core::ffi::{c_int, c_void};

use super::stub;
use crate::driver::{NOT_FOUND, SUCCESS};
use crate::exclusions::{self, Learnt};
use crate::hooks::{Hook, real};
use crate::ledger::Ledger;
use crate::ops::hooked;
use crate::{callers, log, state};

stub!(cuIpcGetMemHandle, 2, ipc_handle);
stub!(cuMemGetHandleForAddressRange, 5, range_handle);

unsafe extern "C" fn ipc_handle(handle: *mut c_void, address: u64, from: usize) -> u32 {
    type Real = unsafe extern "C" fn(*mut c_void, u64) -> u32;
    let Some(real) = real!(Hook::cuIpcGetMemHandle, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, address) };
    hooked(plain, |_, ledger, real_call| {
        exported(ledger, address, "cuIpcGetMemHandle", from, real_call)
    })
}

unsafe extern "C" fn range_handle(
    handle: *mut c_void,
    address: u64,
    bytes: usize,
    kind: c_int,
    flags: u64,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut c_void, u64, usize, c_int, u64) -> u32;
    let Some(real) = real!(Hook::cuMemGetHandleForAddressRange, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, address, bytes, kind, flags) };
    hooked(plain, |_, ledger, real_call| {
        let call = "cuMemGetHandleForAddressRange";
        exported(ledger, address, call, from, real_call)
    })
}

/// Runs an export; one that failed because we converted the memory is named once and learnt.
fn exported(
    ledger: &Ledger,
    address: u64,
    call: &str,
    from: usize,
    real_call: &dyn Fn() -> u32,
) -> u32 {
    let result = real_call();
    if result == SUCCESS {
        return result;
    }
    let found = ledger.find(address).filter(|found| found.converted);
    let known = found.and_then(|found| ledger.at_base(found.base));
    let (Some(allocation), Some(settings)) = (known, state::settings()) else {
        return result;
    };
    let (owner, bytes) = (allocation.caller, allocation.bytes);
    let learnt = exclusions::learn(settings, owner, bytes, call);
    let path = settings.exclude_file.as_deref();
    let advice = match (learnt, path) {
        (Learnt::Known, _) => return result,
        (Learnt::Written, Some(path)) => {
            format!("{path} now has a rule, and the next run leaves such memory as it is")
        }
        (_, Some(path)) => format!(
            "{path} cannot be added to or is no exclusion file: use TRANSIT_EXCLUDE={owner} or a \
             larger TRANSIT_MIN_BYTES"
        ),
        (_, None) => format!(
            "keep such memory as it is with TRANSIT_EXCLUDE_FILE, TRANSIT_EXCLUDE={owner} or a \
             larger TRANSIT_MIN_BYTES"
        ),
    };
    let who = callers::who(from).name;
    log::complain(format_args!(
        "{call}, called by {who}: allocation {} ({bytes} bytes, asked for by {owner}) is managed \
         memory now, which cannot be shared; {advice}",
        allocation.id
    ));
    result
}
