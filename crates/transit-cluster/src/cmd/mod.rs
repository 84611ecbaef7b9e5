//! The verbs, one file each, and what they share: where jobs come from (`source`) and what is drawn of
//! them (`plot`).

pub mod check;
pub mod compare;
pub mod generate;
pub mod paper;
pub mod plot;
pub mod run;
pub mod source;
pub mod sweep;
