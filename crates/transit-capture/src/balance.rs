//! The check of hooks against the device: which expected records came, and which came that nobody
//! expected. Kept by kind, since as many lost as unseen would look like agreement.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};

use transit_format::ids::Nanos;
use transit_format::trace::check::{Check, Counted, MOST_UNSEEN};
use transit_format::trace::model::OpKind;
use transit_hook::DeviceRecords;

use crate::matcher::{CLOCK_ERROR_NS, Group, Waiting};

/// Kernels, memsets, copies.
pub(crate) const KIND_COUNT: usize = 3;
/// Distinct names of unseen kernels counted; more share one entry without a name.
const MOST_NAMES: usize = 1 << 10;

type PerKind = [u64; KIND_COUNT];

/// A record's place in a [`PerKind`].
pub(crate) fn kind_index(kind: OpKind) -> usize {
    match kind {
        OpKind::Kernel | OpKind::Graph => 0,
        OpKind::Memset => 1,
        OpKind::Memcpy => 2,
    }
}

/// What an op should cause.
pub(crate) fn per_kind(records: &DeviceRecords) -> PerKind {
    [records.kernels, records.memsets, records.memcpys].map(u64::from)
}

/// A kernel that no hook saw.
#[derive(Clone, Copy, Debug, Default)]
struct Unseen {
    records: u64,
    /// Address of its name.
    name: u64,
}

/// Both sides, as far as they are matched.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// When the first and the last op were issued: what ran outside is not the window's.
    first_issued: Option<Nanos>,
    last_issued: Nanos,
    hooked: PerKind,
    confirmed: PerKind,
    unseen: PerKind,
    /// Memsets and copies outside graphs without an op: of memory that is not managed, as a rule.
    other: PerKind,
    /// Expected somewhere: ops on streams that CUPTI has not numbered, further devices of a launch.
    owed: PerKind,
    /// Of ops issued while CUPTI was being turned on or off: they may come or not.
    doubtful: PerKind,
    open_launches: u64,
    names: HashMap<u64, Unseen>,
    /// Any record came at all.
    heard: bool,
    /// Nothing is launched any more that is not the window's.
    process_ends: bool,
}

impl Balance {
    /// The window ends with the process.
    pub(crate) fn process_ends(&mut self) {
        self.process_ends = true;
    }

    /// An op was issued.
    pub(crate) fn issued(&mut self, op: &Waiting) {
        self.first_issued.get_or_insert(op.issued);
        self.last_issued = self.last_issued.max(op.issued);
        if op.records.open {
            self.open_launches += u64::from(op.kind == OpKind::Graph);
        } else {
            add(&mut self.hooked, &per_kind(&op.records));
        }
    }

    /// Where an op's records will show is not known.
    pub(crate) fn placeless(&mut self, op: &Waiting) {
        if !op.records.open {
            add(&mut self.owed, &per_kind(&op.records));
        }
    }

    /// An op was issued of which nobody knows whether its records will come. Those of an open graph
    /// cannot be told in number, so after one nothing counts as unseen.
    pub(crate) fn doubtful(&mut self, records: &DeviceRecords) {
        if records.open {
            self.doubtful = [u64::MAX; KIND_COUNT];
        }
        let expected = per_kind(records);
        for (place, count) in self.doubtful.iter_mut().zip(expected) {
            *place = place.saturating_add(count);
        }
    }

    /// An op and its records.
    pub(crate) fn matched(&mut self, op: &Waiting, group: &Group) {
        self.heard = true;
        if op.records.open {
            add(&mut self.hooked, &group.records);
            add(&mut self.confirmed, &group.records);
            return;
        }
        let expected = per_kind(&op.records);
        let rows = expected.iter().zip(&group.records);
        let came: Vec<(u64, u64)> = rows.map(|(expected, came)| (*expected, *came)).collect();
        for (kind, (expected, came)) in came.into_iter().enumerate() {
            bump(&mut self.confirmed, kind, came.min(expected));
            bump(&mut self.unseen, kind, came.saturating_sub(expected));
            if op.kind == OpKind::Kernel {
                bump(&mut self.owed, kind, expected.saturating_sub(came));
            }
        }
    }

    /// Records that were called before those of a later op.
    pub(crate) fn beside(&mut self, group: &Group, graph: bool) {
        self.heard = true;
        let first = self.first_issued.unwrap_or(Nanos(u64::MAX));
        // Called before the window.
        if group.ran.start.0.saturating_add(CLOCK_ERROR_NS) < first.0 {
            return;
        }
        if group.ran.kind != OpKind::Kernel && !graph {
            add(&mut self.other, &group.records);
            return;
        }
        add(&mut self.unseen, &group.records);
        if group.ran.kind == OpKind::Kernel {
            let full = self.names.len() >= MOST_NAMES;
            let known = self.names.contains_key(&group.ran.name_hash);
            let key = if full && !known {
                0
            } else {
                group.ran.name_hash
            };
            let entry = self.names.entry(key).or_default();
            entry.records += group.records.first().copied().unwrap_or(0);
            entry.name = if key == 0 { 0 } else { group.ran.name };
        }
    }

    /// Records behind the last op of their stream: the window's only if they ran within it.
    pub(crate) fn behind(&mut self, group: &Group, graph: bool) {
        self.heard = true;
        if self.process_ends || group.ran.start <= self.last_issued {
            self.beside(group, graph);
        }
    }

    /// Records that the ops so far should cause.
    pub(crate) fn hooked(&self) -> u64 {
        self.hooked.iter().sum()
    }

    /// The check as it stands. `passed`: memsets and copies that the hooks let pass in the window,
    /// since they touch no managed memory. `None` if no record came, though some should have.
    pub(crate) fn check(&self, passed: u64) -> Option<Check> {
        if !self.heard && self.hooked.iter().any(|count| *count > 0) {
            return None;
        }
        let mut allowed = passed;
        let mut counted = [Counted::default(); KIND_COUNT];
        for (kind, counted) in counted.iter_mut().enumerate() {
            let of = |list: &PerKind| list.get(kind).copied().unwrap_or(0);
            let other = of(&self.other);
            let let_pass = other.min(allowed);
            allowed -= let_pass;
            let unseen = of(&self.unseen) + other - let_pass;
            // What is owed comes for certain, of what is doubtful perhaps nothing.
            let paid = unseen.min(of(&self.owed));
            let unseen = (unseen - paid).saturating_sub(of(&self.doubtful));
            let hooked = of(&self.hooked);
            let confirmed = of(&self.confirmed) + paid;
            *counted = Counted {
                hooked,
                confirmed,
                unseen,
            };
        }
        let [kernels, memsets, memcpys] = counted;
        Some(Check {
            kernels,
            memsets,
            memcpys,
            open_launches: self.open_launches,
            unseen_kernels: if kernels.unseen > 0 {
                self.most_unseen()
            } else {
                Vec::new()
            },
        })
    }

    fn most_unseen(&self) -> Vec<(String, u64)> {
        let mut names: Vec<(String, u64)> = self
            .names
            .values()
            .map(|unseen| (text_at(unseen.name), unseen.records))
            .collect();
        names.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        names.truncate(MOST_UNSEEN);
        names
    }
}

fn bump(list: &mut PerKind, kind: usize, count: u64) {
    if let Some(place) = list.get_mut(kind) {
        *place += count;
    }
}

fn add(list: &mut PerKind, more: &PerKind) {
    for (place, count) in list.iter_mut().zip(more) {
        *place += count;
    }
}

/// A kernel's name as CUPTI keeps it.
fn text_at(address: u64) -> String {
    let Some(address) = usize::try_from(address)
        .ok()
        .filter(|address| *address != 0)
    else {
        return "(no name)".to_owned();
    };
    // SAFETY: CUPTI keeps a kernel's name as a NUL-terminated string for the process' life.
    let name = unsafe { CStr::from_ptr(address as *const c_char) };
    name.to_string_lossy().into_owned()
}
