//! The comparison of pointers that the launch path makes against the one that counts.

use transit_format::ids::AllocId;
use transit_format::plan::model::{Plan, PlanOp, PlanStream};
use transit_format::trace::model::OpKind;
use transit_hook::observer::PointerArg;

use super::programs::{Issued, call};
use crate::follow::bind::Bindings;
use crate::follow::matching::{Agreement, COMPARED, agreement, plain};
use crate::follow::script::Script;

fn script_of(pointers: Vec<(u32, u64)>) -> Script {
    let op = PlanOp {
        pointers,
        ..PlanOp::default()
    };
    let stream = PlanStream {
        ops: vec![op],
        ..PlanStream::default()
    };
    Script::new(&Plan {
        streams: vec![stream],
        ..Plan::default()
    })
}

fn args(pointers: &[(u32, u64)]) -> Vec<PointerArg> {
    let arg = |&(alloc, offset): &(u32, u64)| PointerArg {
        alloc: AllocId(alloc),
        offset,
        bytes: 0,
    };
    pointers.iter().map(arg).collect()
}

/// Every way one pointer can compare, behind none, some and as many as are compared that fit, and
/// where the op has fewer pointers than the plan's.
#[test]
fn plain_is_what_the_count_says() {
    let bindings = Bindings::new(3);
    bindings.set(0, 10, 1 << 30, 1 << 20);
    bindings.set(1, 11, 2 << 30, 1 << 20);
    let issued = Issued {
        stream: 0,
        name: 0,
        kind: OpKind::Kernel,
        pointers: Vec::new(),
        truth: None,
        noise: false,
    };
    let mut seen = [0; 2];
    for ahead in 0..=COMPARED {
        for planned in [(0, 64), (1, 64), (2, 64)] {
            for given in [(10, 64), (10, 65), (11, 64), (12, 64)] {
                let script = script_of([vec![(0, 0); ahead], vec![planned]].concat());
                let record = script.op(0, 0).unwrap();
                let given = args(&[vec![(10, 0); ahead], vec![given]].concat());
                for count in [given.len(), ahead] {
                    let call = call(&issued, &given[..count], 0);
                    let counted = agreement(&script, &bindings, record, &call);
                    let found = plain(&script, &bindings, record, &call);
                    let same = counted.plain().then_some(counted.same);
                    let context = format!("{ahead} {planned:?} {given:?} {count}");
                    assert_eq!(found.map(|found| found.same), same, "{context}");
                    assert!(found.is_none_or(Agreement::plain), "{context}");
                    seen[usize::from(found.is_some())] += 1;
                }
            }
        }
    }
    assert!(
        seen.iter().all(|&times| times > 0),
        "both answers: {seen:?}"
    );
}
