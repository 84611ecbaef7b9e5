//! CUPTI is one to a process: whoever registers buffers last gets all records, and up to 13.1 one
//! tool may subscribe. So ours is not started where another tool is at work, and gives way the
//! moment one begins: the job's own profiler must not come out empty because of us.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use transit_hook::{log, neighbours};

use super::library::{Library, OnCall, SubscriberParams};
use super::{Failure, Session, told};

/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: what versions before 11 call a second subscriber.
const LIMIT_REACHED: u32 = 12;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const MULTIPLE_SUBSCRIBERS: u32 = 39;

static RUNNING: OnceLock<Session> = OnceLock::new();
static HANDED_OVER: AtomicBool = AtomicBool::new(false);
/// Held by whoever turns records on or off: what is off must stay off once another has CUPTI.
static TURNING: Mutex<()> = Mutex::new(());

/// Whether another tool has CUPTI now.
pub(crate) fn handed_over() -> bool {
    HANDED_OVER.load(Ordering::Acquire)
}

/// Fails if another tool has registered buffers or subscribed. A subscription of ours lasts no
/// longer than the question, so that one who comes later is not refused.
pub(super) fn alone(library: &Library) -> Result<(), Failure> {
    if let Some(who) = neighbours::profiler() {
        return Err(Failure::Taken(who.to_owned()));
    }
    if told::subscribed() {
        return Ok(());
    }
    match subscribe(library, on_call) {
        Err(Failure::Taken(who)) => Err(Failure::Taken(who)),
        Ok(subscriber) => {
            if let Some(unsubscribe) = library.unsubscribe {
                // SAFETY: the handle that CUPTI has just given.
                let _ = unsafe { unsubscribe(subscriber) };
            }
            Ok(())
        }
        // Anything else is no word about others.
        Err(_) => Ok(()),
    }
}

/// Takes the subscriber's place, or says who has it.
pub(super) fn subscribe(library: &Library, callback: OnCall) -> Result<*mut c_void, Failure> {
    let mut old_name = [0 as c_char; 128];
    let mut subscriber = std::ptr::null_mut();
    match subscribe_as(library, callback, &mut subscriber, &mut old_name) {
        None => Err(Failure::Missing("cuptiSubscribe")),
        Some(0) => Ok(subscriber),
        Some(MULTIPLE_SUBSCRIBERS | LIMIT_REACHED) => {
            // SAFETY: CUPTI writes within the room it was given, and the last byte stays 0.
            let named = unsafe { CStr::from_ptr(old_name.as_ptr()) }.to_string_lossy();
            let named = Some(named.into_owned()).filter(|name| !name.is_empty());
            let mapped = || neighbours::mapped().into_iter().next();
            let who = named.or_else(mapped);
            Err(Failure::Taken(
                who.unwrap_or_else(|| "another tool".to_owned()),
            ))
        }
        Some(result) => Err(Failure::Refused("subscribing", result)),
    }
}

fn subscribe_as(
    library: &Library,
    callback: OnCall,
    subscriber: &mut *mut c_void,
    old_name: &mut [c_char; 128],
) -> Option<u32> {
    if let Some(subscribe) = library.subscribe_v2 {
        let mut params = SubscriberParams {
            bytes: size_of::<SubscriberParams>(),
            name: c"transit".as_ptr(),
            old_name: old_name.as_mut_ptr(),
            old_name_bytes: old_name.len() - 1,
        };
        let nothing = std::ptr::null_mut();
        // SAFETY: CUPTI's own entry point; all pointers are to live locals or statics.
        let result = unsafe { subscribe(subscriber, callback, nothing, &raw mut params) };
        if result == 0 || result == MULTIPLE_SUBSCRIBERS {
            return Some(result);
        }
    }
    let subscribe = library.subscribe?;
    // SAFETY: as above.
    Some(unsafe { subscribe(subscriber, callback, std::ptr::null_mut()) })
}

/// Never called: no callback is enabled.
unsafe extern "C" fn on_call(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

/// Ours records from here on, until somebody else registers.
pub(super) fn started(session: Session) {
    let _ = RUNNING.set(session);
    neighbours::before_another_registers(give_way);
}

/// Does `turn`, some microseconds' work, unless another tool has CUPTI.
pub(super) fn unless_handed_over(turn: impl FnOnce()) {
    let _held = TURNING.lock().unwrap_or_else(PoisonError::into_inner);
    if !handed_over() {
        turn();
    }
}

/// Takes what CUPTI has for us and ends our part. The other's registration is passed on after.
fn give_way(who: &str) {
    let Some(session) = RUNNING.get() else { return };
    {
        let _held = TURNING.lock().unwrap_or_else(PoisonError::into_inner);
        if HANDED_OVER.swap(true, Ordering::AcqRel) {
            return;
        }
    }
    session.hand_over_buffers(false);
    session.disable_all();
    log::say(format_args!(
        "{who} uses CUPTI from here on, so the recording has no kernel times and no migrations \
         any more; record without it to have them"
    ));
}
