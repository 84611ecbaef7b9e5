//! The long lists of `inspect`: every op and every allocation of a trace.

use std::io::{self, Write};

use transit_format::trace::Trace;

use crate::render::names;
use crate::render::table::{Rows, Style};
use crate::render::units;

/// One line per op, columns apart by tabs: the list may hold millions.
///
/// # Errors
/// If the sink fails.
pub fn ops(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "op\tstream\tkind\tissued_ns\tstart_ns\tend_ns\tpointers\tname"
    )?;
    let short: Vec<String> = trace
        .functions
        .iter()
        .map(|one| names::short(&one.name, 80))
        .collect();
    for (seq, op) in trace.ops.iter().enumerate() {
        let pointers: Vec<String> = trace
            .pointers_of(op)
            .iter()
            .map(|pointer| format!("{}+{}", pointer.alloc, pointer.offset))
            .collect();
        writeln!(
            out,
            "{seq}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            op.stream,
            format!("{:?}", op.kind).to_lowercase(),
            op.issued_ns,
            op.start_ns,
            op.end_ns,
            if pointers.is_empty() {
                "-".to_owned()
            } else {
                pointers.join(",")
            },
            short.get(op.function.index()).map_or("?", String::as_str),
        )?;
    }
    Ok(())
}

/// One row per allocation.
#[must_use]
pub fn allocs(trace: &Trace) -> String {
    let mut freed = vec![None; trace.allocs.len()];
    for free in &trace.frees {
        if let Some(slot) = freed.get_mut(free.alloc.index()) {
            *slot = Some(free.at_op);
        }
    }
    let mut rows = Rows::new([
        "alloc",
        "address",
        "size",
        "kind",
        "before op",
        "freed before op",
        "caller",
    ])
    .text_columns([3, 6]);
    for (id, (alloc, freed)) in trace.allocs.iter().zip(freed).enumerate() {
        let kind = match (alloc.converted, alloc.managed) {
            (true, _) => "converted",
            (false, true) => "managed by the job",
            (false, false) => "not converted",
        };
        rows.push([
            id.to_string(),
            format!("{:#x}", alloc.address),
            units::bytes(alloc.bytes),
            kind.to_owned(),
            alloc.at_op.to_string(),
            freed.map_or_else(|| "-".to_owned(), |op| op.to_string()),
            alloc.caller.clone(),
        ]);
    }
    rows.render(Style::Plain)
}
