//! Records as values: what each means, and the codes of their enums. Accessors here are what the
//! launch path reads; they neither allocate nor fail, because [`super::View::open`] has checked
//! every code.

use super::layout::{
    AllocRecord, NameRecord, OpRecord, PlacementRecord, PointerRecord, RangeRecord, ShapeRecord,
    StepRecord, StreamRecord,
};
use super::model::{Action, Placement, PlanAlloc, Range, Shape};
use crate::ids::{Ordinal, StreamId};
use crate::trace::model::{OpKind, Stream, StreamKind};

const OP_KINDS: [OpKind; 4] = [
    OpKind::Kernel,
    OpKind::Graph,
    OpKind::Memset,
    OpKind::Memcpy,
];
const STREAM_KINDS: [StreamKind; 3] = [
    StreamKind::Legacy,
    StreamKind::PerThread,
    StreamKind::Created,
];
const ACTIONS: [Action; 5] = [
    Action::PrefetchToDevice,
    Action::EvictToHost,
    Action::AdviseAccessedBy,
    Action::AdvisePreferHost,
    Action::AdviseReadMostly,
];

fn from_code<T: Copy>(list: &[T], code: u32) -> Option<T> {
    list.get(usize::try_from(code).ok()?).copied()
}

fn code_of<T: PartialEq>(list: &[T], value: &T) -> u32 {
    let code = list
        .iter()
        .position(|known| known == value)
        .unwrap_or_default();
    u32::try_from(code).unwrap_or_default()
}

pub(super) fn action_code(action: Action) -> u32 {
    code_of(&ACTIONS, &action)
}

pub(super) fn op_kind_code(kind: OpKind) -> u32 {
    code_of(&OP_KINDS, &kind)
}

pub(super) fn stream_kind_code(kind: StreamKind) -> u32 {
    code_of(&STREAM_KINDS, &kind)
}

impl ShapeRecord {
    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> Shape {
        Shape {
            capacity_bytes: self.capacity_bytes.get(),
            card_bytes: self.card_bytes.get(),
            main_stream: StreamId(self.main_stream.get()),
            anchor_ops: self.anchor_ops.get(),
            midpoint: Ordinal(self.midpoint.get()),
            advise_all_at_midpoint: self.flags.get() & 1 != 0,
            min_convert_bytes: self.min_convert_bytes.get(),
        }
    }
}

impl NameRecord {
    /// FNV-1a hash of the name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(super) fn span(&self) -> (usize, usize) {
        (self.first_byte.get() as usize, self.bytes.get() as usize)
    }
}

impl AllocRecord {
    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> PlanAlloc {
        PlanAlloc {
            ordinal: self.ordinal.get(),
            turn: self.turn.get(),
            bytes: self.bytes.get(),
            device: self.device.get(),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

impl StreamRecord {
    /// Which stream it is.
    #[must_use]
    pub fn get(&self) -> Stream {
        let kind = from_code(&STREAM_KINDS, self.kind.get()).unwrap_or_default();
        Stream {
            kind,
            device: self.device.get(),
            turn: self.turn.get(),
        }
    }

    pub(super) fn kind_is_known(&self) -> bool {
        from_code(&STREAM_KINDS, self.kind.get()).is_some()
    }

    pub(super) fn span(&self) -> (usize, usize) {
        (self.first_op.get() as usize, self.ops.get() as usize)
    }
}

impl OpRecord {
    /// What the op is.
    #[must_use]
    pub fn kind(&self) -> OpKind {
        from_code(&OP_KINDS, self.kind.get()).unwrap_or_default()
    }

    pub(super) fn kind_is_known(&self) -> bool {
        from_code(&OP_KINDS, self.kind.get()).is_some()
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

    pub(super) fn pointer_span(&self) -> (usize, usize) {
        (
            self.first_pointer.get() as usize,
            self.pointers.get() as usize,
        )
    }

    pub(super) fn step_span(&self) -> (usize, usize) {
        (self.first_step.get() as usize, self.steps.get() as usize)
    }
}

impl PointerRecord {
    /// Index of the allocation pointed into.
    #[must_use]
    pub fn alloc(&self) -> u32 {
        self.alloc.get()
    }

    /// Offset within it, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }
}

impl StepRecord {
    /// What to do.
    #[must_use]
    pub fn action(&self) -> Action {
        from_code(&ACTIONS, self.action.get()).unwrap_or_default()
    }

    pub(super) fn action_is_known(&self) -> bool {
        from_code(&ACTIONS, self.action.get()).is_some()
    }

    /// Stream of the op it belongs to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId(self.stream.get())
    }

    /// Ordinal of the op it belongs to.
    #[must_use]
    pub fn ordinal(&self) -> Ordinal {
        Ordinal(self.ordinal.get())
    }

    pub(super) fn range_span(&self) -> (usize, usize) {
        (self.first_range.get() as usize, self.ranges.get() as usize)
    }
}

impl RangeRecord {
    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> Range {
        Range {
            alloc: self.alloc(),
            offset: self.offset(),
            bytes: self.bytes(),
        }
    }

    /// Index of the allocation.
    #[must_use]
    pub fn alloc(&self) -> u32 {
        self.alloc.get()
    }

    /// Offset within it, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Length in bytes, at least 1; offset + bytes lies within the allocation.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn new(range: &Range) -> Self {
        Self {
            offset: range.offset.into(),
            bytes: range.bytes.into(),
            alloc: range.alloc.into(),
            reserved: 0.into(),
        }
    }
}

impl PlacementRecord {
    /// What to do once.
    #[must_use]
    pub fn action(&self) -> Action {
        from_code(&ACTIONS, self.action.get()).unwrap_or_default()
    }

    pub(super) fn action_is_known(&self) -> bool {
        from_code(&ACTIONS, self.action.get()).is_some()
    }

    /// On what.
    #[must_use]
    pub fn range(&self) -> &RangeRecord {
        &self.range
    }

    /// The record as a value.
    #[must_use]
    pub fn get(&self) -> Placement {
        Placement {
            action: self.action(),
            range: self.range.get(),
        }
    }
}
