//! Output only: how numbers become text, tables and pictures.

pub mod chart;
pub mod font;
pub mod palette;
pub mod summary;
pub mod table;
pub mod units;
