//! What ends with a context: its memory, its streams, and what we made in it. The job frees none of
//! these itself, and the driver gives the same addresses and handles out again.

use crate::driver::Handle;
use crate::ledger::Ledger;
use crate::{birth, ceiling, functions, state, streams, twins};

/// A context may be about to end: files are brought up to date while its records can be had.
pub(crate) fn may_end() {
    // Its modules go with it, and the handles of their functions come again.
    functions::unloaded();
    if let Some(observer) = state::observer() {
        observer.context_ends();
    }
}

/// A context is gone.
pub(crate) fn gone(ledger: &Ledger, context: Handle) {
    for allocation in ledger.remove_of(context) {
        if let Some(observer) = state::observer() {
            observer.freeing(&allocation);
        }
        ceiling::freed(&allocation);
    }
    let captures = streams::context_gone(context);
    twins::context_gone(context);
    birth::context_gone(context);
    if let Some(observer) = state::observer() {
        for _ in 0..captures {
            observer.capturing(false);
        }
        observer.context_gone(context);
    }
}
