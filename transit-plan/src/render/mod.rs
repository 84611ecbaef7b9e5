//! Output only: how facts become text (units, tables, names) and pictures (a scene of rectangles,
//! lines and texts that one function plays onto PNG or SVG).
//!
//! A picture is first built as a plain [`scene::Scene`], so that tests can ask whether two labels
//! overlap without reading pixels.

pub mod axes;
pub mod backend;
pub mod font;
pub mod names;
pub mod palette;
pub mod raster;
pub mod scene;
pub mod table;
pub mod units;
