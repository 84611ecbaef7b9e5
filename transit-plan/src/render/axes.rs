//! Scales and their ticks: round numbers in the unit that fits, and never two labels on top of
//! each other.

use super::font;
use super::palette::{GRID, INK};
use super::scene::{Align, Area, Scene};
use super::units;

/// Font size of tick labels in pixels.
pub const TICK_SIZE: i32 = 18;
/// Font size of axis titles in pixels.
pub const TITLE_SIZE: i32 = 20;

/// A linear scale from values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The value at `start_px`.
    pub min: f64,
    /// The value at `end_px`.
    pub max: f64,
    /// Where the scale starts.
    pub start_px: i32,
    /// Where it ends (before `start_px` for an axis that runs upwards).
    pub end_px: i32,
}

impl Scale {
    /// The pixel of a value.
    #[must_use]
    pub fn px(&self, value: f64) -> i32 {
        let span = self.max - self.min;
        let share = if span > 0.0 {
            (value - self.min) / span
        } else {
            0.0
        };
        self.start_px + (share * f64::from(self.end_px - self.start_px)).round() as i32
    }
}

/// A tick: where, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its value.
    pub at: f64,
    /// Its label.
    pub label: String,
}

/// The smallest of 1, 2, 5 times a power of ten that cuts `span` into at most `parts`.
#[must_use]
pub fn decimal_step(span: f64, parts: u32) -> f64 {
    let least = span / f64::from(parts.max(1));
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power)
}

fn ticks(min: f64, max: f64, step: f64, label: impl Fn(f64) -> String) -> Vec<Tick> {
    let first = (min / step - 1e-9).ceil();
    let count = ((max / step + 1e-9).floor() - first).clamp(-1.0, 1_000.0) as i64;
    (0..=count)
        .map(|n| {
            let at = (first + n as f64) * step;
            Tick {
                at,
                label: label(at),
            }
        })
        .collect()
}

/// Ticks of plain numbers; whole numbers where `whole`.
#[must_use]
pub fn numbers(min: f64, max: f64, parts: u32, whole: bool) -> Vec<Tick> {
    let mut step = decimal_step(max - min, parts);
    if whole {
        step = step.max(1.0);
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    ticks(min, max, step, |at| {
        if at.fract() == 0.0 && at >= 0.0 && decimals == 0 {
            units::count(at as u64)
        } else {
            format!("{at:.decimals$}")
        }
    })
}

/// Ticks of bytes in one unit for the whole axis, and that unit's name.
#[must_use]
pub fn byte_ticks(max_bytes: f64, parts: u32) -> (Vec<Tick>, &'static str) {
    let (unit, name) = match max_bytes {
        b if b >= (1_u64 << 30) as f64 => ((1_u64 << 30) as f64, "GiB"),
        b if b >= (1_u64 << 20) as f64 => ((1_u64 << 20) as f64, "MiB"),
        _ => (1024.0, "KiB"),
    };
    let step = decimal_step(max_bytes / unit, parts);
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    (
        ticks(0.0, max_bytes, step * unit, |at| {
            format!("{:.decimals$}", at / unit)
        }),
        name,
    )
}

/// Ticks of nanoseconds in one unit for the whole axis, counted from `min`, and that unit's name.
#[must_use]
pub fn time_ticks(span_ns: f64, parts: u32) -> (Vec<Tick>, &'static str) {
    let (unit, name) = match span_ns {
        t if t >= 2e9 => (1e9, "s"),
        t if t >= 2e6 => (1e6, "ms"),
        t if t >= 2e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let step = decimal_step(span_ns / unit, parts);
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    (
        ticks(0.0, span_ns, step * unit, |at| {
            format!("{:.decimals$}", at / unit)
        }),
        name,
    )
}

/// Draws a horizontal axis below a plot: ticks, labels that do not touch, a title.
pub fn below(scene: &mut Scene, plot: Area, scale: &Scale, ticks: &[Tick], title: &str) {
    let mut free_from = i32::MIN;
    for tick in ticks {
        let x = scale.px(tick.at);
        if x < plot.left || x > plot.right {
            continue;
        }
        scene.line((x, plot.bottom), (x, plot.bottom + 5), INK, 1);
        let half = font::width(&tick.label, TICK_SIZE) / 2;
        if x - half >= free_from {
            let at = (x, plot.bottom + 8 + TICK_SIZE / 2);
            scene.text(at, tick.label.clone(), TICK_SIZE, INK, Align::Centre);
            free_from = x + half + 10;
        }
    }
    let middle = i32::midpoint(plot.left, plot.right);
    let y = plot.bottom + 16 + TICK_SIZE + TITLE_SIZE / 2;
    scene.text((middle, y), title, TITLE_SIZE, INK, Align::Centre);
}

/// Which side of a plot a vertical axis stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Left of it.
    Left,
    /// Left of it, with grid lines across the plot.
    LeftWithGrid,
    /// Right of it.
    Right,
}

/// Draws a vertical axis beside a plot.
pub fn beside(
    scene: &mut Scene,
    plot: Area,
    scale: &Scale,
    ticks: &[Tick],
    title: &str,
    side: Side,
) {
    let (edge, out, align) = match side {
        Side::Left | Side::LeftWithGrid => (plot.left, -1, Align::Right),
        Side::Right => (plot.right, 1, Align::Left),
    };
    let mut widest = 0;
    let mut free_below = i32::MAX;
    for tick in ticks {
        let y = scale.px(tick.at);
        if y < plot.top || y > plot.bottom {
            continue;
        }
        if side == Side::LeftWithGrid && y != plot.bottom {
            scene.line((plot.left, y), (plot.right, y), GRID, 1);
        }
        scene.line((edge, y), (edge + 5 * out, y), INK, 1);
        if y + TICK_SIZE / 2 <= free_below {
            scene.text(
                (edge + 9 * out, y),
                tick.label.clone(),
                TICK_SIZE,
                INK,
                align,
            );
            widest = widest.max(font::width(&tick.label, TICK_SIZE));
            free_below = y - TICK_SIZE / 2 - 2;
        }
    }
    let x = edge + out * (9 + widest + 12 + TITLE_SIZE / 2);
    let title = font::fit(title, TITLE_SIZE, plot.height());
    scene.upright(
        (x, i32::midpoint(plot.top, plot.bottom)),
        title,
        TITLE_SIZE,
        INK,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert!((decimal_step(9.7, 10) - 1.0).abs() < 1e-9);
        assert!((decimal_step(37.0, 8) - 5.0).abs() < 1e-9);
        assert!((decimal_step(0.0, 8) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_byte_axis_uses_one_unit() {
        let (ticks, unit) = byte_ticks(3.4 * 1024.0 * 1024.0 * 1024.0, 8);
        let labels: Vec<&str> = ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(unit, "GiB");
        assert_eq!(labels, ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]);
    }

    #[test]
    fn crowded_labels_are_thinned() {
        let plot = Area {
            left: 100,
            top: 40,
            right: 400,
            bottom: 200,
        };
        let mut scene = Scene::new(500, 300);
        let scale = Scale {
            min: 0.0,
            max: 1e6,
            start_px: plot.left,
            end_px: plot.right,
        };
        below(&mut scene, plot, &scale, &numbers(0.0, 1e6, 50, true), "op");
        let up = Scale {
            min: 0.0,
            max: 100.0,
            start_px: plot.bottom,
            end_px: plot.top,
        };
        beside(
            &mut scene,
            plot,
            &up,
            &numbers(0.0, 100.0, 100, true),
            "share (%)",
            Side::Left,
        );
        assert_eq!(scene.unreadable(), Vec::<String>::new());
        assert!(scene.texts().count() > 8);
    }
}
