//! Job tables: AcmeTrace's CSV (Seren, Kalos), Slurm's `sacct --parsable2`, and a plain CSV. They differ
//! in their headings and in how a time or a number of GPUs is written, so one reader finds the columns
//! by name. Rows are read one at a time; only jobs that are simulated are kept.

pub mod columns;
pub mod filter;
pub mod guard;
pub mod repeats;
pub mod report;
pub mod row;
pub mod sniff;
pub mod time;

use std::io::Read;
use std::rc::Rc;

use jiff::tz::TimeZone;

use crate::trace::{Job, Trace};
use crate::units::Millis;
use columns::{Columns, Dialect, Role};
pub use filter::Filter;
use guard::{Guard, Ledger};
pub use report::Report;

/// How to read.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where times stand that do not say it.
    pub zone: TimeZone,
    /// The column that holds a job's type, if not the usual one.
    pub type_column: Option<String>,
    /// Whether the first bad row is an error.
    pub strict: bool,
    /// Which jobs are kept.
    pub filter: Filter,
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file itself.
    #[error("reading stopped at line {line}")]
    Io {
        /// Where reading stopped.
        line: u64,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something else than a table.
    #[error("{}", .0.what)]
    NotText(sniff::Refusal),
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// The heading lacks something.
    #[error("line {line}: {what}")]
    Heading {
        /// Where the heading stands.
        line: u64,
        /// What it lacks.
        what: String,
        /// What to do about it.
        next: &'static str,
    },
    /// A bad row, where none is allowed.
    #[error("line {line}, column {column}: {what}")]
    Row {
        /// The row's first line.
        line: u64,
        /// Name of the column.
        column: String,
        /// What is wrong there.
        what: String,
    },
}

impl InputError {
    /// What to do about it.
    #[must_use]
    pub fn next(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check that the file is whole and a table",
            Self::Empty => "give a table with a heading line and rows",
            Self::NotText(refusal) => refusal.next,
            Self::Heading { next, .. } => next,
            Self::Row { .. } => "mend the row, or leave out --strict to have bad rows counted",
        }
    }
}

/// A table at its first row.
struct Opened<R> {
    reader: csv::Reader<Guard<R>>,
    ledger: Rc<Ledger>,
    columns: Columns,
}

fn open<R: Read>(source: R, options: &Options) -> Result<Opened<R>, InputError> {
    let ledger = Rc::new(Ledger::default());
    let mut guarded = Guard::new(source, ledger.clone());
    let io = |source: std::io::Error| InputError::Io { line: 1, source };
    let first = guarded.first_line().map_err(io)?;
    if first.iter().all(u8::is_ascii_whitespace) {
        return Err(InputError::Empty);
    }
    if let Some(refusal) = sniff::not_text(&first) {
        return Err(InputError::NotText(refusal));
    }
    let dialect = Dialect::of(&first);
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(dialect.delimiter)
        .quoting(dialect.quoting)
        .flexible(true)
        .has_headers(true)
        .from_reader(guarded);
    let header = reader
        .byte_headers()
        .map_err(|error| unreadable(error, 1))?;
    let found = Columns::find(header, options.type_column.as_deref());
    let columns = found.map_err(|what| InputError::Heading {
        line: header.position().map_or(1, |start| ledger.line(start)),
        what,
        next: sniff::advice(header),
    })?;
    Ok(Opened {
        reader,
        ledger,
        columns,
    })
}

/// Reads a table to its end. `ticked` hears of every 65,536 rows.
///
/// # Errors
/// If it cannot be read, its heading lacks a column, or, with `strict`, a row is bad.
pub fn read(
    source: impl Read,
    options: &Options,
    mut ticked: impl FnMut(u64),
) -> Result<(Trace, Report), InputError> {
    let Opened {
        mut reader,
        ledger,
        columns,
    } = open(source, options)?;
    let mut report = Report::new(columns.kind_of_table(), columns.cluster());
    let mut trace = Trace::default();
    let (named, mut ids) = (columns.place(Role::Name).is_some(), repeats::Ids::default());
    let mut record = csv::ByteRecord::new();
    let mut rows = row::Rows::new(&columns, &options.zone);
    loop {
        ledger.row_done();
        let line = ledger.line(reader.position());
        let more = reader
            .read_byte_record(&mut record)
            .map_err(|error| unreadable(error, line))?;
        if !more {
            break;
        }
        let line = record.position().map_or(line, |start| ledger.line(start));
        report.rows += 1;
        if report.rows.is_multiple_of(65_536) {
            ticked(65_536);
        }
        match rows.parse(&record) {
            Ok(parsed) => {
                report.notes(&parsed);
                if let Some(why) = options.filter.refuses(&parsed) {
                    report.filtered(why);
                } else {
                    keep(&mut trace, &parsed);
                    if named {
                        ids.push(&parsed.name);
                    }
                }
            }
            Err(row::Bad::Skip(why)) => report.filtered(why),
            Err(row::Bad::Wrong { column, why, what }) => {
                let column = columns.name(column);
                if options.strict {
                    return Err(InputError::Row { line, column, what });
                }
                report.bad(why, line, &column, &what);
            }
        }
    }
    report.kept = trace.jobs.len() as u64;
    report.repeated_ids = ids.repeated();
    report.first_submit = trace.settle();
    Ok((trace, report))
}

fn unreadable(error: csv::Error, line: u64) -> InputError {
    let source = match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => std::io::Error::other(format!("{other:?}")),
    };
    InputError::Io { line, source }
}

fn keep(trace: &mut Trace, parsed: &row::Parsed<'_>) {
    let kind = trace.kinds.place(&parsed.kind);
    trace.names.push(&parsed.name);
    trace.jobs.push(Job {
        submit: Millis(parsed.submit_ms),
        run: Millis(parsed.run_ms),
        gpus: parsed.gpus,
        nodes: parsed.nodes,
        state: parsed.state,
        kind,
    });
}
