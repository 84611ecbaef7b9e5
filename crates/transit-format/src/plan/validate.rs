//! Cross-references of a plan, checked once when it is opened, so that no reader checks again:
//! stretches of one table in another, indices, ranges within their allocation, known codes, name
//! hashes.

use super::layout::{
    AllocRecord, Kind, NameRecord, OpRecord, PlacementRecord, PointerRecord, RangeRecord,
    ShapeRecord, StepRecord, StreamRecord,
};
use super::name_hash;
use super::view::{View, slice_of};
use crate::error::Error;

/// Why a record is refused.
enum Fault {
    Wrong(String),
    Unknown(String),
}

fn wrong<T>(what: String) -> Result<T, Fault> {
    Err(Fault::Wrong(what))
}

fn newer<T>(what: &str, code: u32) -> Result<T, Fault> {
    Err(Fault::Unknown(format!(
        "{what} {code} is unknown to this build"
    )))
}

struct Checker<'a> {
    view: &'a View,
    name: &'a str,
}

/// Checks everything the section table does not.
pub(super) fn check(view: &View, name: &str) -> Result<(), Error> {
    let checker = Checker { view, name };
    checker.check_text()?;
    checker.check_names()?;
    checker.check_shape()?;
    checker.check_streams_and_ops()?;
    checker.check_pointers()?;
    checker.check_steps()?;
    checker.check_ranges(Kind::StepRanges)?;
    checker.check_placements()?;
    checker.check_ranges(Kind::StartResident)
}

impl Checker<'_> {
    /// Checks each record of a section.
    fn each<T>(
        &self,
        kind: Kind,
        check: impl FnMut(usize, &T) -> Result<(), Fault>,
    ) -> Result<(), Error>
    where
        T: zerocopy::FromBytes + zerocopy::Immutable + zerocopy::KnownLayout,
    {
        let mut check = check;
        for (index, record) in self.view.records::<T>(kind).iter().enumerate() {
            if let Err(fault) = check(index, record) {
                return Err(self.error(kind, index, fault));
            }
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

    fn check_text(&self) -> Result<(), Error> {
        for kind in [Kind::Meta, Kind::NameBytes] {
            if let Err(error) = std::str::from_utf8(self.view.section(kind)) {
                return Err(self.error(
                    kind,
                    error.valid_up_to(),
                    Fault::Wrong("not UTF-8".into()),
                ));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), Error> {
        let bytes = self.view.section(Kind::NameBytes);
        let mut due = 0;
        self.each(Kind::Names, |_, record: &NameRecord| {
            let (first, count) = record.span();
            let name = slice_of(bytes, (first, count));
            if first != due || name.len() != count {
                return wrong(format!("bytes {first} + {count} of {}", bytes.len()));
            }
            due += count;
            if std::str::from_utf8(name).is_err() {
                return wrong("splits a character".to_owned());
            }
            if name_hash(name) != record.hash() {
                return wrong("its hash does not match".to_owned());
            }
            Ok(())
        })?;
        self.all_used(Kind::NameBytes, due, bytes.len())
    }

    /// Stretches follow each other; here that they reach the end of the table they divide.
    fn all_used(&self, kind: Kind, used: usize, have: usize) -> Result<(), Error> {
        if used == have {
            return Ok(());
        }
        Err(self.error(
            kind,
            used,
            Fault::Wrong(format!("{used} of {have} entries belong to any")),
        ))
    }

    fn check_shape(&self) -> Result<(), Error> {
        let records: &[ShapeRecord] = self.view.records(Kind::Shape);
        let [record] = records else {
            let what = format!("{} records, not 1", records.len());
            return Err(self.error(Kind::Shape, 0, Fault::Wrong(what)));
        };
        let fault = if record.flags.get() > 1 {
            newer("flag set", record.flags.get())
        } else {
            self.check_main_stream(record)
        };
        fault.map_err(|fault| self.error(Kind::Shape, 0, fault))
    }

    fn check_main_stream(&self, record: &ShapeRecord) -> Result<(), Fault> {
        let shape = record.get();
        let streams = self.view.streams();
        if streams.is_empty() {
            return Ok(());
        }
        let Some(main) = streams.get(shape.main_stream.index()) else {
            return wrong(format!(
                "main stream {} of {}",
                shape.main_stream,
                streams.len()
            ));
        };
        let ops = main.ops.get();
        if shape.anchor_ops > ops || shape.midpoint.0 > ops {
            return wrong(format!(
                "{} anchor ops and midpoint {} in an iteration of {ops}",
                shape.anchor_ops, shape.midpoint
            ));
        }
        Ok(())
    }

    fn check_streams_and_ops(&self) -> Result<(), Error> {
        let ops: &[OpRecord] = self.view.records(Kind::Ops);
        let names: &[NameRecord] = self.view.records(Kind::Names);
        let pointers = self.view.records::<PointerRecord>(Kind::Pointers).len();
        let steps = self.view.records::<StepRecord>(Kind::Steps).len();
        let mut due = 0;
        self.each(Kind::Streams, |_, record: &StreamRecord| {
            let (first, count) = record.span();
            if !record.kind_is_known() {
                return newer("stream kind", record.kind.get());
            }
            if first != due || slice_of(ops, (first, count)).len() != count {
                return wrong(format!("ops {first} + {count} of {}", ops.len()));
            }
            due += count;
            Ok(())
        })?;
        self.all_used(Kind::Ops, due, ops.len())?;
        let (mut due_pointer, mut due_step) = (0, 0);
        self.each(Kind::Ops, |_, op: &OpRecord| {
            if !op.kind_is_known() {
                return newer("op kind", op.kind.get());
            }
            if names.get(op.name() as usize).map(NameRecord::hash) != Some(op.name_hash()) {
                return wrong(format!(
                    "name {} of {} has another hash",
                    op.name(),
                    names.len()
                ));
            }
            let (first, count) = op.pointer_span();
            if first != due_pointer || count > pointers - due_pointer {
                return wrong(format!("pointers {first} + {count} of {pointers}"));
            }
            due_pointer += count;
            let (first, count) = op.step_span();
            if first != due_step || count > steps - due_step {
                return wrong(format!("steps {first} + {count} of {steps}"));
            }
            due_step += count;
            Ok(())
        })?;
        self.all_used(Kind::Pointers, due_pointer, pointers)?;
        self.all_used(Kind::Steps, due_step, steps)
    }

    fn check_pointers(&self) -> Result<(), Error> {
        let allocs = self.view.allocs();
        self.each(Kind::Pointers, |_, pointer: &PointerRecord| {
            let alloc = allocs.get(pointer.alloc() as usize).map(AllocRecord::bytes);
            match alloc {
                // One past the end is a pointer a kernel may be given.
                Some(bytes) if pointer.offset() <= bytes => Ok(()),
                _ => wrong(format!(
                    "offset {} of allocation {}",
                    pointer.offset(),
                    pointer.alloc
                )),
            }
        })
    }

    /// Steps know the op they belong to, and divide the step ranges among them.
    fn check_steps(&self) -> Result<(), Error> {
        let ranges = self.view.records::<RangeRecord>(Kind::StepRanges).len();
        let mut due = 0;
        self.each(Kind::Steps, |_, step: &StepRecord| {
            if !step.action_is_known() {
                return newer("action", step.action.get());
            }
            let (first, count) = step.range_span();
            if first != due || count > ranges - due {
                return wrong(format!("ranges {first} + {count} of {ranges}"));
            }
            due += count;
            Ok(())
        })?;
        self.all_used(Kind::StepRanges, due, ranges)?;
        for (stream, record) in (0_u32..).zip(self.view.streams()) {
            let ops = slice_of(self.view.records::<OpRecord>(Kind::Ops), record.span());
            for (ordinal, op) in (0_u32..).zip(ops) {
                let wrong_op = |step: &StepRecord| {
                    (step.stream.get(), step.ordinal.get()) != (stream, ordinal)
                };
                if let Some(at) = self.view.steps(op).iter().position(wrong_op) {
                    let what = format!("belongs to op {ordinal} of stream {stream}, says another");
                    return Err(self.error(Kind::Steps, op.step_span().0 + at, Fault::Wrong(what)));
                }
            }
        }
        Ok(())
    }

    fn check_ranges(&self, kind: Kind) -> Result<(), Error> {
        self.each(kind, |_, range: &RangeRecord| self.check_range(range))
    }

    fn check_range(&self, range: &RangeRecord) -> Result<(), Fault> {
        let alloc = self
            .view
            .allocs()
            .get(range.alloc() as usize)
            .map(AllocRecord::bytes);
        let end = range.offset().checked_add(range.bytes());
        match (alloc, end) {
            (Some(bytes), Some(end)) if range.bytes() > 0 && end <= bytes => Ok(()),
            _ => wrong(format!(
                "bytes {} + {} of allocation {} ({} bytes)",
                range.offset(),
                range.bytes(),
                range.alloc(),
                alloc.unwrap_or_default()
            )),
        }
    }

    fn check_placements(&self) -> Result<(), Error> {
        self.each(Kind::Placements, |_, placement: &PlacementRecord| {
            if !placement.action_is_known() {
                return newer("action", placement.action.get());
            }
            self.check_range(placement.range())
        })
    }
}
