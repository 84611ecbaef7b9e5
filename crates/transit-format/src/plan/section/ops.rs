//! Section 7: the ops of the iteration as a replayer recognises them.
//!
//! ```text
//!  0  8  FNV-1a hash of the function's mangled name, that of its name record
//!  8  4  hash of grid, block and shared memory
//! 12  4  name in section 3
//! 16  4  kind: 0 kernel, 1 graph, 2 memset, 3 memcpy
//! 20  4  pointers
//! 24  4  first pointer in section 8
//! 28  4  first step in section 9
//! 32  4  steps
//! 36  4  0
//! ```
//!
//! Ops divide pointers and steps among them in order.

use zerocopy::little_endian::{U32, U64};

use super::codes::Code;
use super::names::NameRecord;
use super::{Division, Fault, record, small, unknown, wrong};
use crate::error::Error;
use crate::plan::model::PlanOp;
use crate::trace::model::OpKind;

record! {
    /// An op.
    pub OpRecord, 40 {
        0 name_hash: U64,
        8 shape: U32,
        12 name: U32,
        16 kind: U32,
        20 pointers: U32,
        24 first_pointer: U32,
        28 first_step: U32,
        32 steps: U32,
        36 reserved: U32,
    }
}

impl OpRecord {
    /// What the op is.
    #[must_use]
    pub fn kind(&self) -> OpKind {
        OpKind::from_code(self.kind.get()).unwrap_or_default()
    }

    /// FNV-1a hash of the function's mangled name.
    #[must_use]
    pub fn name_hash(&self) -> u64 {
        self.name_hash.get()
    }

    /// Hash of grid, block and shared memory.
    #[must_use]
    pub fn shape(&self) -> u32 {
        self.shape.get()
    }

    /// Index of the name.
    #[must_use]
    pub fn name(&self) -> u32 {
        self.name.get()
    }

    /// Whether any step belongs to the op: one load on the launch path.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        self.steps.get() != 0
    }

    pub(in crate::plan) fn pointer_span(&self) -> (usize, usize) {
        (
            self.first_pointer.get() as usize,
            self.pointers.get() as usize,
        )
    }

    pub(in crate::plan) fn step_span(&self) -> (usize, usize) {
        (self.first_step.get() as usize, self.steps.get() as usize)
    }

    /// An op whose pointers and steps begin at these places.
    pub(in crate::plan) fn new(
        op: &PlanOp,
        first_pointer: usize,
        first_step: usize,
        steps: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            name_hash: op.name_hash.into(),
            shape: op.shape.into(),
            name: op.name.into(),
            kind: op.kind.code().into(),
            pointers: small("pointers", op.pointers.len())?.into(),
            first_pointer: small("pointers", first_pointer)?.into(),
            first_step: small("steps", first_step)?.into(),
            steps: small("steps", steps)?.into(),
            reserved: 0.into(),
        })
    }
}

/// Checks one record.
pub(in crate::plan) fn check(
    op: &OpRecord,
    names: &[NameRecord],
    pointers: &mut Division,
    steps: &mut Division,
) -> Result<(), Fault> {
    if OpKind::from_code(op.kind.get()).is_none() {
        return unknown("op kind", op.kind.get());
    }
    if names.get(op.name() as usize).map(NameRecord::hash) != Some(op.name_hash()) {
        let what = "is not there or has another hash";
        return wrong(format!("name {} of {} {what}", op.name(), names.len()));
    }
    pointers.take(op.pointer_span())?;
    steps.take(op.step_span())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, set};
    use crate::plan::layout::Kind;

    #[test]
    fn references_outside_their_tables_are_damage() {
        for (at, value) in [
            (0, 1),
            (12, 40),
            (12, 1),
            (20, 900),
            (24, 9),
            (28, 1),
            (32, u32::MAX),
        ] {
            let refusal = refused(Kind::Ops, |bytes| set(bytes, at, value));
            assert_eq!(refusal, "damaged ops", "field at {at}");
        }
    }

    #[test]
    fn an_unknown_kind_is_newer() {
        assert_eq!(refused(Kind::Ops, |bytes| set(bytes, 16, 4)), "newer ops");
    }
}
