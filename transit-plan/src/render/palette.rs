//! Colours that people with any of the common colour-vision deficiencies can tell apart (Okabe and
//! Ito's set, <https://jfly.uni-koeln.de/color/>), and their paler shades for density.

/// An opaque colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// This colour mixed with white: `strength` 1 is the colour itself, 0 is white.
    #[must_use]
    pub fn tint(self, strength: f64) -> Self {
        let mix = |channel: u8| {
            let value = 255.0 + (f64::from(channel) - 255.0) * strength.clamp(0.0, 1.0);
            value.round() as u8
        };
        Self(mix(self.0), mix(self.1), mix(self.2))
    }

    /// This colour made darker: `strength` 1 is the colour itself, 0 is black.
    #[must_use]
    pub fn shade(self, strength: f64) -> Self {
        let mix = |channel: u8| (f64::from(channel) * strength.clamp(0.0, 1.0)).round() as u8;
        Self(mix(self.0), mix(self.1), mix(self.2))
    }
}

/// Host to device.
pub const HTOD: Colour = Colour(0x00, 0x72, 0xB2);
/// Device to host.
pub const DTOH: Colour = Colour(0xD5, 0x5E, 0x00);
/// Both ways within one cell.
pub const BOTH: Colour = Colour(0x8E, 0x44, 0x8A);
/// Remote maps (zero-copy).
pub const REMOTE: Colour = Colour(0x00, 0x9E, 0x73);
/// The optimizer's ops.
pub const OPTIMIZER: Colour = Colour(0xE6, 0x9F, 0x00);
/// Memory that is allocated but does not move.
pub const ALLOCATED: Colour = Colour(0xEF, 0xEF, 0xEC);
/// Text and axes.
pub const INK: Colour = Colour(0x22, 0x22, 0x22);
/// Secondary text.
pub const SOFT_INK: Colour = Colour(0x66, 0x66, 0x66);
/// Grid lines.
pub const GRID: Colour = Colour(0xDD, 0xDD, 0xDD);
/// Paper.
pub const WHITE: Colour = Colour(0xFF, 0xFF, 0xFF);

/// Colours for several traces side by side, in order.
pub const SERIES: [Colour; 6] = [
    Colour(0x56, 0xB4, 0xE9),
    Colour(0x00, 0x4D, 0x80),
    Colour(0xE6, 0x9F, 0x00),
    Colour(0x00, 0x9E, 0x73),
    Colour(0xCC, 0x79, 0xA7),
    Colour(0x55, 0x55, 0x55),
];

/// The colour of the n-th series (they repeat after six).
#[must_use]
pub fn series(index: usize) -> Colour {
    SERIES.get(index % SERIES.len()).copied().unwrap_or(INK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tints_run_from_white_to_the_colour() {
        assert_eq!(HTOD.tint(0.0), WHITE);
        assert_eq!(HTOD.tint(1.0), HTOD);
        assert_eq!(series(0), series(6));
    }
}
