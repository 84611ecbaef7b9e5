//! What became of a table's rows: read, bad, left out, kept. Nothing is dropped silently.

use std::collections::BTreeMap;

use serde::Serialize;

use super::row::Parsed;
use crate::generate::Cluster;
use crate::units::Millis;

/// Rows with one kind of fault.
#[derive(Clone, Debug, Serialize)]
pub struct BadRows {
    /// How many.
    pub rows: u64,
    /// The first of them: line, column, what is wrong.
    pub first: String,
}

/// The account of one table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// What kind of table it is.
    pub table: String,
    /// The cluster it comes from, or is like, if that is one of AcmeTrace's.
    pub cluster: Option<Cluster>,
    /// Rows besides the heading.
    pub rows: u64,
    /// Rows that are wrong, by kind of fault.
    pub bad: BTreeMap<&'static str, BadRows>,
    /// Rows that are left out, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Jobs kept.
    pub kept: u64,
    /// Rows whose `duration` is run time plus queue (AcmeTrace's Kalos); start and end were used.
    pub duration_with_queue: u64,
    /// Jobs that started before they were submitted, by the table; kept, for only the submission counts.
    pub started_early: u64,
    /// Kept rows whose id an earlier row has.
    pub repeated_ids: u64,
    /// The first submission, in the table's time.
    #[serde(skip)]
    pub first_submit: Millis,
}

impl Report {
    /// Nothing read yet.
    #[must_use]
    pub fn new(table: impl Into<String>, cluster: Option<Cluster>) -> Self {
        Self {
            table: table.into(),
            cluster,
            ..Self::default()
        }
    }

    /// Counts what is odd about a good row.
    pub fn notes(&mut self, row: &Parsed<'_>) {
        self.duration_with_queue += u64::from(row.duration_with_queue);
        self.started_early += u64::from(row.early);
    }

    /// Counts a row that is left out.
    pub fn filtered(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Counts a bad row.
    pub fn bad(&mut self, why: &'static str, line: u64, column: &str, what: &str) {
        let entry = self.bad.entry(why).or_insert_with(|| BadRows {
            rows: 0,
            first: format!("line {line}, column {column}: {what}"),
        });
        entry.rows += 1;
    }

    /// Bad rows of all kinds.
    #[must_use]
    pub fn bad_rows(&self) -> u64 {
        self.bad.values().map(|bad| bad.rows).sum()
    }
}
