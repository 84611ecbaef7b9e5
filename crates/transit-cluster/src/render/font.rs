//! The bundled font: pictures must carry text on a machine that has no fonts at all.

use std::sync::Once;

use plotters::style::{FontFamily, FontStyle, register_font};

/// DejaVu Sans, reduced to the characters figures use; its licence lies beside it.
static DEJAVU_SANS: &[u8] = include_bytes!("../../../../transit-plan/assets/DejaVuSans-subset.ttf");

const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// The family, registered on first use.
#[must_use]
pub fn family() -> FontFamily<'static> {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // Should the font not parse (it is compiled in), drawing reports the missing font.
        let _ = register_font(FAMILY, FontStyle::Normal, DEJAVU_SANS);
    });
    FontFamily::Name(FAMILY)
}
