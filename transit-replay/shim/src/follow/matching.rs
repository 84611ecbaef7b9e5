//! When is a live op the plan's op? By its name first; failing that by its role, which is its
//! kind and the very pointers it is given, so that another autotuned tile is no divergence.

use transit_format::plan::model::PlanAlloc;
use transit_hook::observer::OpCall;

use super::bind::{Bindings, UNBOUND};
use super::lane::Seen;
use super::script::{OpRecord, Script};

/// Pointers compared per op: enough to tell ops apart, few enough for multi-tensor kernels.
pub(crate) const COMPARED: usize = u8::BITS as usize;

/// How the pointers of a live op compare with those of a plan op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Same allocation and offset: a bit for each pointer.
    pub(crate) same: u8,
    /// Same allocation, another offset.
    pub(crate) moved: u8,
    /// Another allocation.
    pub(crate) differ: u8,
    /// The plan's allocation is not bound.
    pub(crate) unknown: u8,
}

impl Agreement {
    /// All that were compared are the plan's own, and there is at least one.
    pub(crate) fn strong(self) -> bool {
        self.same != 0 && self.moved == 0 && self.differ == 0 && self.unknown == 0
    }

    /// Nothing says this is another op's data.
    pub(crate) fn plain(self) -> bool {
        self.moved == 0 && self.differ == 0
    }
}

/// Same kind and name.
pub(crate) fn same_name(record: &OpRecord, call: &OpCall<'_>) -> bool {
    record.name_hash == call.name_hash && record.kind == call.kind
}

/// Same kind and name, for a remembered op.
pub(crate) fn same_seen(record: &OpRecord, seen: Seen) -> bool {
    record.name_hash == seen.name_hash && record.kind == seen.kind
}

/// Same kind and number of pointers.
pub(crate) fn same_role(record: &OpRecord, seen: Seen) -> bool {
    record.kind == seen.kind && record.pointers == seen.pointers
}

/// Compares the pointers of `call` with those of `record`, position by position.
pub(crate) fn agreement(
    script: &Script,
    bindings: &Bindings,
    record: &OpRecord,
    call: &OpCall<'_>,
) -> Agreement {
    let mut result = Agreement::default();
    let planned = script.pointers_of(record);
    if planned.len() != call.pointers.len() {
        return result;
    }
    for (slot, (plan, live)) in planned.iter().zip(call.pointers).take(COMPARED).enumerate() {
        let bound = bindings.live(plan.alloc);
        if bound == UNBOUND {
            result.unknown += 1;
        } else if bound != live.alloc.0 {
            result.differ += 1;
        } else if plan.offset != live.offset {
            result.moved += 1;
        } else {
            result.same |= 1 << slot;
        }
    }
    result
}

/// [`agreement`] where it is [plain](Agreement::plain), without a count of the unknown: what the launch
/// path needs, at its price.
#[inline(always)]
pub(crate) fn plain(
    script: &Script,
    bindings: &Bindings,
    record: &OpRecord,
    call: &OpCall<'_>,
) -> Option<Agreement> {
    let mut same = 0_u8;
    let planned = script.pointers_of(record);
    if planned.len() == call.pointers.len() {
        let mut bit = 1;
        for (plan, live) in planned.iter().zip(call.pointers) {
            let bound = bindings.live(plan.alloc);
            if bound == live.alloc.0 && plan.offset == live.offset {
                same |= bit;
            } else if bound != UNBOUND {
                return None;
            }
            bit <<= 1;
            if bit == 0 {
                // `COMPARED` of them.
                break;
            }
        }
    }
    Some(Agreement {
        same,
        ..Agreement::default()
    })
}

/// Whether the pointers of `call` that are compared are all the plan's own, and no more or fewer.
#[inline(always)]
pub(crate) fn same_data(
    script: &Script,
    bindings: &Bindings,
    record: &OpRecord,
    call: &OpCall<'_>,
) -> bool {
    let planned = script.pointers_of(record);
    if planned.len() != call.pointers.len() {
        return false;
    }
    let mut left = COMPARED;
    for (plan, live) in planned.iter().zip(call.pointers) {
        if plan.offset != live.offset || bindings.live(plan.alloc) != live.alloc.0 {
            return false;
        }
        left -= 1;
        if left == 0 {
            break;
        }
    }
    true
}

/// Whether `device` of a live allocation can be `plan`'s. A plan of one device fits any (a rank
/// sees its own GPU under another number).
pub(crate) fn device_fits(one_device: bool, plan: &PlanAlloc, device: u32) -> bool {
    one_device || plan.device == device
}
