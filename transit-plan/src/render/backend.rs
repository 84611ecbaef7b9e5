//! Plays a [`Scene`] onto a file: PNG or SVG by the name's end.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoTextStyle, RGBColor, ShapeStyle};

use super::font;
use super::palette::{Colour, WHITE};
use super::scene::{Align, Item, Scene, Text};
use crate::error::Next;
use crate::output;

/// What kind of file a name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Pixels.
    Png,
    /// Vectors.
    Svg,
}

/// The kind of picture a file name asks for.
///
/// # Errors
/// If the name ends in neither `.png` nor `.svg`.
pub fn kind_of(path: &Path) -> anyhow::Result<Picture> {
    let extension = path
        .extension()
        .map(|end| end.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("png") => Ok(Picture::Png),
        Some("svg") => Ok(Picture::Svg),
        _ => Err(anyhow!("{} is no picture TRANSIT can draw", path.display()))
            .next("give -o a name that ends in .png or .svg"),
    }
}

/// Draws a scene into a file.
///
/// # Errors
/// If the name asks for no known kind, or the file cannot be written.
pub fn save(scene: &Scene, path: &Path) -> anyhow::Result<()> {
    let bytes = match kind_of(path)? {
        Picture::Png => png(scene),
        Picture::Svg => svg(scene),
    };
    let bytes = bytes.with_context(|| format!("cannot draw {}", path.display()))?;
    output::save(path, &bytes)
}

fn svg(scene: &Scene) -> anyhow::Result<Vec<u8>> {
    let size = (pixels(scene.width), pixels(scene.height));
    let mut text = String::new();
    play(
        scene,
        &SVGBackend::with_string(&mut text, size).into_drawing_area(),
        false,
    )
    .map_err(anyhow::Error::msg)?;
    Ok(text.into_bytes())
}

fn png(scene: &Scene) -> anyhow::Result<Vec<u8>> {
    let (width, height) = (pixels(scene.width), pixels(scene.height));
    let mut rgb = vec![0_u8; width as usize * height as usize * 3];
    let area = BitMapBackend::with_buffer(&mut rgb, (width, height)).into_drawing_area();
    play(scene, &area, true).map_err(anyhow::Error::msg)?;
    drop(area);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&rgb)?;
    Ok(file)
}

fn pixels(length: i32) -> u32 {
    u32::try_from(length).unwrap_or(1).max(1)
}

fn rgb(colour: Colour) -> RGBColor {
    RGBColor(colour.0, colour.1, colour.2)
}

fn play<B: DrawingBackend>(
    scene: &Scene,
    area: &DrawingArea<B, Shift>,
    bitmap: bool,
) -> Result<(), String> {
    area.fill(&rgb(WHITE)).map_err(|error| error.to_string())?;
    for item in &scene.items {
        let drawn = match item {
            Item::Fill(fill, colour) => {
                let corners = [(fill.left, fill.top), (fill.right, fill.bottom)];
                area.draw(&Rectangle::new(corners, rgb(*colour).filled()))
            }
            Item::Line {
                points,
                colour,
                width,
            } => {
                let style = ShapeStyle {
                    color: rgb(*colour).to_rgba(),
                    filled: false,
                    stroke_width: *width,
                };
                area.draw(&PathElement::new(points.clone(), style))
            }
            Item::Polygon(points, colour) => {
                area.draw(&Polygon::new(points.clone(), rgb(*colour).filled()))
            }
            Item::Dot(centre, radius, colour) => {
                area.draw(&Circle::new(*centre, *radius, rgb(*colour).filled()))
            }
            Item::Text(text) => write(area, text, bitmap),
        };
        drawn.map_err(|error| error.to_string())?;
    }
    area.present().map_err(|error| error.to_string())
}

fn write<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    text: &Text,
    bitmap: bool,
) -> Result<(), plotters::drawing::DrawingAreaErrorKind<B::ErrorType>> {
    let h_pos = match (text.upright, text.align) {
        (true, _) | (_, Align::Centre) => HPos::Center,
        (_, Align::Left) => HPos::Left,
        (_, Align::Right) => HPos::Right,
    };
    let colour = rgb(text.colour);
    let mut style = (font::family(), text.size)
        .into_text_style(area)
        .color(&colour)
        .pos(Pos::new(h_pos, VPos::Center));
    // The rasteriser sets the baseline higher than the box it reports.
    let lower = if bitmap { text.size / 8 } else { 0 };
    let mut at = (text.x, text.y + lower);
    if text.upright {
        style = style.transform(FontTransform::Rotate270);
        at = (text.x + lower, text.y);
    }
    area.draw_text(&text.text, &style, at)
}

#[cfg(test)]
mod tests {
    use super::super::palette::{HTOD, INK};
    use super::super::scene::Area;
    use super::*;

    fn picture() -> Scene {
        let mut scene = Scene::new(160, 80);
        scene.fill(
            Area {
                left: 10,
                top: 10,
                right: 60,
                bottom: 40,
            },
            HTOD,
        );
        scene.text((80, 60), "GiB & µs", 16, INK, Align::Centre);
        scene
    }

    #[test]
    fn png_and_svg_come_from_the_same_scene() {
        let folder = tempfile::tempdir().unwrap();
        let (png, svg) = (folder.path().join("a.png"), folder.path().join("a.SVG"));
        save(&picture(), &png).unwrap();
        save(&picture(), &svg).unwrap();
        assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(
            text.contains("GiB &amp; µs") && text.contains("#0072B2"),
            "{text}"
        );
    }

    #[test]
    fn another_kind_of_file_is_refused_with_advice() {
        let error = save(&picture(), Path::new("a.pdf")).unwrap_err();
        assert!(crate::error::text(&error).contains(".png or .svg"));
    }
}
