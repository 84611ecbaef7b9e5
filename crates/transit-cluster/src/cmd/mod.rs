//! The verbs, one file each.

pub mod check;
pub mod compare;
pub mod generate;
pub mod paper;
pub mod plot;
pub mod run;
pub mod source;
pub mod sweep;
