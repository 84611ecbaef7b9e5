//! Changes one section of a good plan, makes its checksums right again, and says how it is
//! refused.

use crate::error::Error;
use crate::ids::{Ordinal, StreamId};
use crate::plan::layout::Kind;
use crate::plan::model::{Action, Placement, Plan, PlanAlloc, PlanOp, PlanStream, Range, Step};
use crate::plan::view::View;
use crate::plan::{name_hash, toc, write};
use crate::trace::model::{Stream, StreamKind};

/// Two streams of three ops; the first op has a pointer and two steps.
pub(super) fn plan() -> Plan {
    let names = vec!["_Z4scalePf".to_owned(), "_Z4addPfS_".to_owned()];
    let alloc = |ordinal| PlanAlloc {
        ordinal,
        turn: 0,
        bytes: 4 << 20,
        device: 0,
    };
    let range = Range {
        alloc: 1,
        offset: 2 << 20,
        bytes: 64 << 10,
    };
    let op = |name: u32| PlanOp {
        name_hash: name_hash(names[name as usize].as_bytes()),
        name,
        pointers: vec![(0, 512), (1, 4 << 20)],
        ..PlanOp::default()
    };
    let stream = |turn| PlanStream {
        stream: Stream {
            kind: StreamKind::Created,
            device: 0,
            turn,
        },
        ops: vec![op(0), op(1), op(0)],
    };
    let step = |ordinal, action| Step {
        stream: StreamId(0),
        ordinal: Ordinal(ordinal),
        action,
        ranges: vec![range, range],
    };
    let steps = vec![
        step(0, Action::EvictToHost),
        step(0, Action::PrefetchToDevice),
        step(2, Action::AdviseReadMostly),
    ];
    Plan {
        allocs: vec![alloc(0), alloc(3)],
        streams: vec![stream(0), stream(1)],
        steps,
        placements: vec![Placement {
            action: Action::AdvisePreferHost,
            range,
        }],
        start_resident: vec![range],
        names,
        ..Plan::default()
    }
}

/// Overwrites 4 bytes.
pub(super) fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// `damaged SECTION` or `newer SECTION`: how a plan with this change is refused.
pub(super) fn refused(kind: Kind, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut sections = write::sections(&plan()).unwrap();
    assert!(View::from_bytes(toc::encode(&sections), "good").is_ok());
    change(&mut sections[kind as usize - 1]);
    match View::from_bytes(toc::encode(&sections), "bad.plan") {
        Ok(_) => "accepted".to_owned(),
        Err(Error::Damaged { file, section, .. }) if file == "bad.plan" => {
            format!("damaged {section}")
        }
        Err(Error::Newer { file, section, .. }) if file == "bad.plan" => format!("newer {section}"),
        Err(error) => error.to_string(),
    }
}
