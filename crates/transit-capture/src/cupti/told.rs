//! A subscription to driver calls, for a process into which we were not preloaded: CUPTI tells of
//! each call, and the hooks make of it what they make of a call of their own. It takes the one
//! place that CUPTI has for a subscriber.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use transit_hook::injected::{self, Site};

use super::Failure;
use super::library::Library;
use super::share::subscribe;

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER_DOMAIN: u32 = 1;

static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Whether the process' subscription is ours.
pub(super) fn subscribed() -> bool {
    SUBSCRIBED.load(Ordering::Acquire)
}

/// `CUpti_CallbackData`, as far as it is read.
#[repr(C)]
struct CallbackData {
    site: u32,
    name: *const c_char,
    params: *const c_void,
    answer: *const u32,
}

/// Has every driver call told to the hooks from here on.
///
/// # Errors
/// Why CUPTI will not.
pub fn follow_calls() -> Result<(), String> {
    follow().map_err(|failure| failure.to_string())
}

fn follow() -> Result<(), Failure> {
    let (library, _) = Library::find(&[])?;
    let subscriber = subscribe(&library, on_call)?;
    let name = "cuptiEnableDomain";
    let enable = library.enable_domain.ok_or(Failure::Missing(name))?;
    // SAFETY: CUPTI's own entry point, with the handle it has just given.
    match unsafe { enable(1, subscriber, DRIVER_DOMAIN) } {
        0 => SUBSCRIBED.store(true, Ordering::Release),
        result => return Err(Failure::Refused("asking for driver calls", result)),
    }
    Ok(())
}

unsafe extern "C" fn on_call(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if domain != DRIVER_DOMAIN || data.is_null() {
        return;
    }
    // SAFETY: in this domain CUPTI passes a `CUpti_CallbackData`, of which this is the beginning.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if data.name.is_null() {
        return;
    }
    let site = if data.site == 0 {
        Site::Enter
    } else {
        Site::Exit
    };
    let result = if site == Site::Enter || data.answer.is_null() {
        0
    } else {
        // SAFETY: after the call CUPTI points to its result.
        unsafe { *data.answer }
    };
    // SAFETY: CUPTI's names are NUL-terminated and static.
    let name = unsafe { CStr::from_ptr(data.name) };
    // SAFETY: `params` is the call's own structure, valid during the call.
    unsafe { injected::call(site, id, name, data.params, result) };
}
