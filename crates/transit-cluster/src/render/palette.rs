//! Colours that people with any of the common colour-vision deficiencies can tell apart (Okabe and
//! Ito's set, <https://jfly.uni-koeln.de/color/>).

use plotters::style::RGBColor;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Secondary text.
pub const SOFT_INK: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);

/// How many series have a colour of their own.
pub const COLOURS: usize = 7;

const SERIES: [RGBColor; COLOURS] = [
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x56, 0xB4, 0xE9),
];

/// The colour of the n-th series; they repeat after [`COLOURS`].
#[must_use]
pub fn series(index: usize) -> RGBColor {
    SERIES.get(index % SERIES.len()).copied().unwrap_or(INK)
}
