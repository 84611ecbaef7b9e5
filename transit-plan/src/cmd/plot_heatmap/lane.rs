//! The lane below the heatmap: how much moved each way, over the same axis.

use transit_format::trace::model::Direction;

use super::view::{Along, View};
use crate::render::axes::{self, Scale, TICK_SIZE};
use crate::render::palette::{DTOH, GRID, HTOD, INK};
use crate::render::scene::{Align, Area, Scene};

/// Width of a bar in pixels.
const BAR_PX: i32 = 3;

/// Draws HtoD upwards and DtoH downwards: GB/s along time, bytes per op along ops.
pub fn draw(scene: &mut Scene, view: &View<'_>, lane: Area) {
    let bars = usize::try_from(lane.width() / BAR_PX).unwrap_or(1).max(1);
    let width = (view.max - view.min) / bars as f64;
    let (htod, dtoh) = (
        spread(view, bars, Direction::HtoD),
        spread(view, bars, Direction::DtoH),
    );
    let peak = htod.iter().chain(&dtoh).copied().fold(0.0, f64::max);
    let (unit, divisor) = match view.along {
        // Bytes per nanosecond are GB/s.
        Along::Time => ("GB/s".to_owned(), width),
        Along::Op => ("MiB per op".to_owned(), width * f64::from(1 << 20)),
    };
    let top = nice_top(peak / divisor);
    let middle = i32::midpoint(lane.top, lane.bottom);
    let px = |value: f64| {
        (value / divisor / top * f64::from(lane.height() / 2 - 2))
            .ceil()
            .max(0.0) as i32
    };
    for (bar, (up, down)) in htod.iter().zip(&dtoh).enumerate() {
        let at = |bar: usize| {
            lane.left + (bar as f64 / bars as f64 * f64::from(lane.width())).round() as i32
        };
        let (left, right) = (at(bar), at(bar + 1));
        scene.fill(
            Area {
                left,
                right,
                top: middle - px(*up),
                bottom: middle,
            },
            HTOD,
        );
        scene.fill(
            Area {
                left,
                right,
                top: middle,
                bottom: middle + px(*down),
            },
            DTOH,
        );
    }
    scene.line((lane.left, middle), (lane.right, middle), INK, 1);
    scene.frame(lane, GRID);
    let scale = Scale {
        min: -top,
        max: top,
        start_px: lane.bottom,
        end_px: lane.top,
    };
    for value in [top * 0.8, 0.0, -top * 0.8] {
        let label = label(value.abs());
        scene.line(
            (lane.left - 5, scale.px(value)),
            (lane.left, scale.px(value)),
            INK,
            1,
        );
        let at = (lane.left - 9, scale.px(value));
        scene.text(at, label, TICK_SIZE - 2, INK, Align::Right);
    }
    scene.upright((lane.left - 82, middle), unit, axes::TITLE_SIZE - 2, INK);
}

fn label(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// The top of the scale: 80 % of it is a round number at or above what is needed.
fn nice_top(peak: f64) -> f64 {
    if peak <= 0.0 {
        1.0
    } else {
        axes::decimal_step(peak / 1.2, 1) / 0.8
    }
}

/// Bytes of each bar.
fn spread(view: &View<'_>, bars: usize, direction: Direction) -> Vec<f64> {
    let mut sums = vec![0.0; bars];
    let to_bar = bars as f64 / (view.max - view.min);
    for (place, one) in view.trace.migrations.iter().enumerate() {
        if one.direction != direction {
            continue;
        }
        let Some((from, to)) = view.of_migration(place, one) else {
            continue;
        };
        let (from, to) = ((from - view.min) * to_bar, (to - view.min) * to_bar);
        let first = (from as usize).min(bars - 1);
        let last = ((to - 1e-9).max(from) as usize).min(bars - 1);
        let length = (to - from).max(f64::MIN_POSITIVE);
        for bar in first..=last {
            let part = to.min(bar as f64 + 1.0) - from.max(bar as f64);
            let share = if first == last { 1.0 } else { part / length };
            if let Some(sum) = sums.get_mut(bar) {
                *sum += one.bytes as f64 * share;
            }
        }
    }
    sums
}
