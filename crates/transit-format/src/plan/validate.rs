//! Runs every section's checks when a plan is opened, so that no reader checks again: stretches
//! of one table in another, indices, ranges within their allocation, known codes, name hashes.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::layout::Kind;
use super::section::names::NameRecord;
use super::section::ops::OpRecord;
use super::section::ranges::RangeRecord;
use super::section::steps::StepRecord;
use super::section::{
    Division, Fault, names, ops, placements, pointers, ranges, shape, steps, streams,
};
use super::view::{View, slice_of};
use crate::error::Error;

/// Checks everything the section table does not.
pub(super) fn check(view: &View, name: &str) -> Result<(), Error> {
    let checker = Checker { view, name };
    checker.check_meta()?;
    checker.check_names()?;
    checker.check_streams()?;
    shape::check(view, view.records(Kind::Shape))
        .map_err(|fault| checker.error(Kind::Shape, 0, fault))?;
    checker.check_ops()?;
    let allocs = view.allocs();
    checker.each(Kind::Pointers, |pointer| pointers::check(pointer, allocs))?;
    checker.check_steps()?;
    checker.each(Kind::StepRanges, |range| ranges::check(range, allocs))?;
    checker.each(Kind::Placements, |placement| {
        placements::check(placement, allocs)
    })?;
    checker.each(Kind::StartResident, |range| ranges::check(range, allocs))
}

struct Checker<'a> {
    view: &'a View,
    name: &'a str,
}

impl Checker<'_> {
    /// Checks each record of a section.
    fn each<T>(
        &self,
        kind: Kind,
        mut check: impl FnMut(&T) -> Result<(), Fault>,
    ) -> Result<(), Error>
    where
        T: FromBytes + Immutable + KnownLayout,
    {
        for (index, record) in self.view.records::<T>(kind).iter().enumerate() {
            check(record).map_err(|fault| self.error(kind, index, fault))?;
        }
        Ok(())
    }

    fn error(&self, kind: Kind, index: usize, fault: Fault) -> Error {
        let file = self.name.to_owned();
        let section = kind.name();
        let offset = (self.view.span(kind).offset + index * kind.record_bytes()) as u64;
        match fault {
            Fault::Wrong(what) => Error::Damaged {
                file,
                section,
                offset,
                what,
            },
            Fault::Unknown(what) => Error::Newer {
                file,
                section,
                what,
            },
        }
    }

    /// Checks that a table was divided without a rest.
    fn finish(&self, kind: Kind, division: &Division) -> Result<(), Error> {
        division
            .finish()
            .map_err(|(index, fault)| self.error(kind, index, fault))
    }

    fn check_meta(&self) -> Result<(), Error> {
        std::str::from_utf8(self.view.section(Kind::Meta))
            .map(|_| ())
            .map_err(|error| {
                self.error(
                    Kind::Meta,
                    error.valid_up_to(),
                    Fault::Wrong("not UTF-8".to_owned()),
                )
            })
    }

    fn check_names(&self) -> Result<(), Error> {
        let bytes = self.view.section(Kind::NameBytes);
        let mut division = Division::of(bytes.len(), "name bytes");
        self.each(Kind::Names, |record| {
            names::check(record, bytes, &mut division)
        })?;
        self.finish(Kind::NameBytes, &division)
    }

    fn check_streams(&self) -> Result<(), Error> {
        let mut ops = Division::of(self.view.records::<OpRecord>(Kind::Ops).len(), "ops");
        self.each(Kind::Streams, |record| streams::check(record, &mut ops))?;
        self.finish(Kind::Ops, &ops)
    }

    fn check_ops(&self) -> Result<(), Error> {
        let names: &[NameRecord] = self.view.records(Kind::Names);
        let mut pointers = Division::of(self.view.all_pointers().len(), "pointers");
        let mut steps = Division::of(self.view.all_steps().len(), "steps");
        self.each(Kind::Ops, |op| {
            ops::check(op, names, &mut pointers, &mut steps)
        })?;
        self.finish(Kind::Pointers, &pointers)?;
        self.finish(Kind::Steps, &steps)
    }

    /// Steps know the op they belong to, and divide the step ranges among them.
    fn check_steps(&self) -> Result<(), Error> {
        let ranges = self.view.records::<RangeRecord>(Kind::StepRanges).len();
        let mut ranges = Division::of(ranges, "step ranges");
        self.each(Kind::Steps, |step| steps::check(step, &mut ranges))?;
        self.finish(Kind::StepRanges, &ranges)?;
        for (stream, record) in (0_u32..).zip(self.view.streams()) {
            let ops = slice_of(self.view.records::<OpRecord>(Kind::Ops), record.span());
            for (ordinal, op) in (0_u32..).zip(ops) {
                let is_other =
                    |step: &StepRecord| (step.stream().0, step.ordinal().0) != (stream, ordinal);
                if let Some(at) = self.view.steps(op).iter().position(is_other) {
                    let what = format!("a step of op {ordinal} of stream {stream} says another");
                    return Err(self.error(Kind::Steps, op.step_span().0 + at, Fault::Wrong(what)));
                }
            }
        }
        Ok(())
    }
}
