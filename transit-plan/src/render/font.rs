//! The one bundled font: pictures must carry text on a machine that has no fonts at all.

use std::sync::Once;

use plotters::style::{FontFamily, FontStyle, IntoFont, register_font};

/// DejaVu Sans, reduced to the characters figures use (see `assets/DejaVuSans-LICENCE.txt`).
static DEJAVU_SANS: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// The name the font is registered under. In an SVG it is the `font-family` list, so a viewer
/// without DejaVu Sans falls back to a font of nearly the same widths.
pub const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// The family, registered on first use. Should the font not parse (it is compiled in, a test
/// checks it), drawing reports the missing font.
#[must_use]
pub fn family() -> FontFamily<'static> {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        let _ = register_font(FAMILY, FontStyle::Normal, DEJAVU_SANS);
    });
    FontFamily::Name(FAMILY)
}

/// Width of a text in pixels at a font size in pixels.
#[must_use]
pub fn width(text: &str, size: i32) -> i32 {
    let font = (family(), size).into_font();
    font.box_size(text)
        .map_or(0, |(width, _)| i32::try_from(width).unwrap_or(i32::MAX))
}

/// The text, shortened with an ellipsis in its middle until it fits: the ends of a command line
/// (the program, the last arguments) say more than its middle.
#[must_use]
pub fn fit(text: &str, size: i32, max_width: i32) -> String {
    if width(text, size) <= max_width {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let (mut low, mut high) = (0, chars.len());
    let shortened = |keep: usize| -> String {
        let head = keep.div_ceil(2);
        let tail = keep - head;
        let front: String = chars.iter().take(head).collect();
        let back: String = chars.iter().skip(chars.len() - tail).collect();
        format!("{front}…{back}")
    };
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if width(&shortened(middle), size) <= max_width {
            low = middle;
        } else {
            high = middle;
        }
    }
    shortened(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_font_measures_text() {
        let one = width("0", 16);
        assert!(one > 4, "a digit at 16 px is {one} px wide");
        assert!(width("00000000", 16) > 7 * one);
    }

    #[test]
    fn a_long_command_keeps_both_ends() {
        let text = "python train.py --data /a/very/long/path/to/some/data/set --steps 100";
        let short = fit(text, 16, 300);
        assert!(width(&short, 16) <= 300);
        assert!(
            short.starts_with("python") && short.ends_with("100"),
            "{short}"
        );
        assert_eq!(fit("short", 16, 300), "short");
    }
}
