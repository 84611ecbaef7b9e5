//! Pictures: panels of lines or bars in a grid, drawn as PNG or SVG. A picture is first a plain
//! [`Figure`], so that what is shown can be tested without reading pixels.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::font;
use super::palette::{COLOURS, GRID, INK, SOFT_INK, series};
use super::units::tick;

/// What a panel shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Lines through points, by series.
    Lines {
        /// Whether x is logarithmic; its smallest value is 1 then.
        log_x: bool,
        /// Points by series, x rising.
        series: Vec<Vec<(f64, f64)>>,
    },
    /// Bars side by side: for each group its name and one value per series; `None` has no bar.
    Bars(Vec<(String, Vec<Option<f64>>)>),
}

/// One pair of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// Along.
    pub x: String,
    /// Up.
    pub y: String,
    /// The data.
    pub content: Content,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Over all panels.
    pub title: String,
    /// Names of the series, the same in all panels; a single one needs no legend.
    pub names: Vec<String>,
    /// From left to right, then down.
    pub panels: Vec<Panel>,
    /// Panels of a row.
    pub columns: usize,
}

type Drawn = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

const PANEL_PIXELS: (usize, usize) = (640, 420);
const TITLE_PIXELS: u32 = 44;
const LEGEND_ROW_PIXELS: u32 = 26;

impl Figure {
    /// Width and height in pixels.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        let width = (columns * PANEL_PIXELS.0).max(900) as u32;
        (
            width,
            (rows * PANEL_PIXELS.1) as u32 + TITLE_PIXELS + self.legend_pixels(width),
        )
    }

    fn legend_pixels(&self, width: u32) -> u32 {
        let rows = self
            .legend(width as i32)
            .last()
            .map_or(0, |last| last.1 as u32 + 1);
        rows * LEGEND_ROW_PIXELS
    }

    /// Left edge and row of each name.
    fn legend(&self, width: i32) -> Vec<(i32, i32)> {
        if self.names.len() < 2 {
            return Vec::new();
        }
        let (mut x, mut row) = (20, 0);
        let mut places = Vec::new();
        for name in &self.names {
            let wide = 40 + text_width(name, 15);
            if x + wide > width - 10 && x > 20 {
                (x, row) = (20, row + 1);
            }
            places.push((x, row));
            x += wide + 16;
        }
        places
    }

    /// The picture as PNG.
    ///
    /// # Errors
    /// If it cannot be drawn or encoded.
    pub fn png(&self) -> Result<Vec<u8>, String> {
        let (width, height) = self.size();
        let mut pixels = vec![0_u8; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.draw(&area)?;
        drop(area);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().map_err(text)?;
        writer.write_image_data(&pixels).map_err(text)?;
        drop(writer);
        Ok(file)
    }

    /// The picture as SVG.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn svg(&self) -> Result<Vec<u8>, String> {
        let mut picture = String::new();
        self.draw(&SVGBackend::with_string(&mut picture, self.size()).into_drawing_area())?;
        Ok(picture.into_bytes())
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        area.fill(&WHITE).map_err(text)?;
        let (width, _) = self.size();
        write(area, &self.title, (20, 24), 20, HPos::Left)?;
        for (at, ((x, row), name)) in self
            .legend(width as i32)
            .iter()
            .zip(&self.names)
            .enumerate()
        {
            let y = TITLE_PIXELS as i32 + row * LEGEND_ROW_PIXELS as i32 + 8;
            let pieces: &[(i32, i32)] = if dashed(at) {
                &[(0, 6), (9, 15), (18, 24)]
            } else {
                &[(0, 24)]
            };
            for (from, to) in pieces {
                let corners = [(x + from, y - 5), (x + to, y + 5)];
                let swatch = Rectangle::new(corners, series(at).filled());
                area.draw(&swatch).map_err(text)?;
            }
            write(area, name, (x + 30, y), 15, HPos::Left)?;
        }
        let top = TITLE_PIXELS + self.legend_pixels(width);
        let (_, below) = area.split_vertically(top as i32);
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        for (panel, area) in self.panels.iter().zip(below.split_evenly((rows, columns))) {
            panel.draw(&area)?;
        }
        area.present().map_err(text)
    }
}

fn text_width(words: &str, size: i32) -> i32 {
    let font = (font::family(), size).into_font();
    font.box_size(words).map_or(0, |(width, _)| width as i32)
}

fn write<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    words: &str,
    at: (i32, i32),
    size: i32,
    from: HPos,
) -> Drawn {
    let style = (font::family(), size).into_text_style(area).color(&INK);
    let style = style.pos(Pos::new(from, VPos::Center));
    area.draw_text(words, &style, at).map_err(text)
}

/// Whether a series is dashed: those whose colour an earlier one has.
fn dashed(at: usize) -> bool {
    at >= COLOURS
}

/// A range that holds all values and 0, with some air.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((0.0_f64, 0.0_f64), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    if low == high {
        return 0.0..1.0;
    }
    let air = (high - low) * 0.06;
    (if low < 0.0 { low - air } else { 0.0 })..(if high > 0.0 {
        high + air
    } else {
        0.0_f64.max(low + air)
    })
}

impl Panel {
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        match &self.content {
            Content::Lines { log_x, series } => self.lines(area, *log_x, series),
            Content::Bars(groups) => self.bars(area, groups),
        }
    }

    fn lines<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        log_x: bool,
        lines: &[Vec<(f64, f64)>],
    ) -> Drawn {
        let points = || lines.iter().flatten();
        let y = range(points().map(|point| point.1));
        let last = points().map(|point| point.0).fold(0.0, f64::max);
        let mut chart = self.frame(area);
        if log_x {
            let chart = chart.build_cartesian_2d((1.0..last.max(10.0) * 1.05).log_scale(), y);
            draw_lines(&mut chart.map_err(text)?, self, lines)
        } else {
            let chart = chart.build_cartesian_2d(0.0..last.max(1e-3) * 1.01, y);
            draw_lines(&mut chart.map_err(text)?, self, lines)
        }
    }

    fn frame<'a, 'b, B: DrawingBackend>(
        &self,
        area: &'a DrawingArea<B, Shift>,
    ) -> ChartBuilder<'a, 'b, B> {
        let mut chart = ChartBuilder::on(area);
        let title = (font::family(), 16).into_text_style(area).color(&INK);
        chart
            .caption(&self.title, title)
            .margin(12)
            .margin_right(24);
        chart.x_label_area_size(44).y_label_area_size(78);
        chart
    }

    fn bars<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        groups: &[(String, Vec<Option<f64>>)],
    ) -> Drawn {
        let values = groups
            .iter()
            .flat_map(|group| group.1.iter().copied().flatten());
        let y = range(values);
        let mut chart = self.frame(area);
        let chart = chart.build_cartesian_2d(0.0..groups.len() as f64, y);
        let mut chart = chart.map_err(text)?;
        let names = |x: &f64| {
            let group = groups
                .get(*x as usize)
                .filter(|_| (x.fract() - 0.5).abs() < 0.01);
            group.map_or_else(String::new, |(name, _)| name.clone())
        };
        let label = (font::family(), 13).into_text_style(area).color(&SOFT_INK);
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(SOFT_INK);
        mesh.x_labels(groups.len() * 2 + 1)
            .x_label_formatter(&names)
            .y_label_formatter(&|v| tick(*v));
        mesh.label_style(label)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .draw()
            .map_err(text)?;
        for (group, (_, values)) in groups.iter().enumerate() {
            let width = 0.8 / values.len().max(1) as f64;
            for (at, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let left = group as f64 + 0.1 + at as f64 * width;
                let bar = Rectangle::new(
                    [(left, 0.0), (left + width * 0.92, *value)],
                    series(at).filled(),
                );
                chart.draw_series([bar]).map_err(text)?;
            }
        }
        Ok(())
    }
}

fn draw_lines<B, X>(
    chart: &mut ChartContext<'_, B, Cartesian2d<X, plotters::coord::types::RangedCoordf64>>,
    panel: &Panel,
    lines: &[Vec<(f64, f64)>],
) -> Drawn
where
    B: DrawingBackend,
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let label = (font::family(), 13)
        .into_font()
        .transform(FontTransform::None);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(SOFT_INK)
        .x_labels(8);
    mesh.x_label_formatter(&|v| tick(*v))
        .y_label_formatter(&|v| tick(*v));
    mesh.label_style(label.color(&SOFT_INK))
        .x_desc(&panel.x)
        .y_desc(&panel.y);
    mesh.draw().map_err(text)?;
    for (at, points) in lines.iter().enumerate() {
        if dashed(at) {
            let line =
                DashedPathElement::new(points.iter().copied(), 7, 5, series(at).stroke_width(2));
            chart.draw_series([line]).map_err(text)?;
            continue;
        }
        // Piece by piece: where a thick line turns back, its joint would stick far out.
        let style = series(at).stroke_width(2);
        let pieces = points
            .windows(2)
            .map(|pair| PathElement::new(pair.to_vec(), style));
        chart.draw_series(pieces).map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let panel = |content| Panel {
            title: "t".to_owned(),
            x: "days".to_owned(),
            y: "GPUs".to_owned(),
            content,
        };
        Figure {
            title: "Two & three".to_owned(),
            names: vec!["first".to_owned(), "second".to_owned()],
            panels: vec![
                panel(Content::Lines {
                    log_x: true,
                    series: vec![vec![(1.0, 0.0), (100.0, 1.0)], Vec::new()],
                }),
                panel(Content::Bars(vec![(
                    "25 %".to_owned(),
                    vec![Some(-3.0), None],
                )])),
            ],
            columns: 2,
        }
    }

    #[test]
    fn both_kinds_of_file_come_from_one_figure() {
        assert!(figure().png().unwrap().starts_with(b"\x89PNG"));
        let svg = String::from_utf8(figure().svg().unwrap()).unwrap();
        assert!(
            svg.contains("Two &amp; three") && svg.contains("second"),
            "{svg}"
        );
    }

    #[test]
    fn series_of_one_colour_are_told_apart_by_dashes() {
        let repeats = |at: usize| (0..at).any(|other| series(other) == series(at));
        for at in 0..2 * COLOURS {
            assert_eq!(dashed(at), repeats(at), "{at}");
        }
        assert_eq!(range([0.0, 0.0].into_iter()), 0.0..1.0);
    }

    #[test]
    fn empty_and_odd_data_draw() {
        let mut odd = figure();
        odd.panels[0].content = Content::Lines {
            log_x: false,
            series: vec![vec![(0.0, f64::NAN)]],
        };
        odd.panels[1].content = Content::Bars(Vec::new());
        assert!(odd.png().is_ok());
        odd.panels[0].content = Content::Lines {
            log_x: true,
            series: vec![vec![(1.0, 0.0)]; 2 * COLOURS],
        };
        assert!(odd.png().is_ok());
        odd.panels.clear();
        assert!(odd.png().is_ok());
    }
}
