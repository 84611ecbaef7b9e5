//! The strip above the heatmap that says what the device was doing: the optimizer, and the kernels
//! that took the most time.

use transit_format::trace::Trace;

use super::view::View;
use crate::render::names;
use crate::render::palette::{self, Colour};
use crate::render::scene::{Area, Scene};

/// Number of kernels named besides the optimizer.
const NAMED: usize = 3;

/// A kind of op on the strip.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its legend.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
}

/// The kinds, and which one each function is.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// In the legend's order; the last is everything else.
    pub list: Vec<Phase>,
    of_function: Vec<usize>,
    /// Whether the first kind is the optimizer.
    marks_optimizer: bool,
}

impl Phases {
    /// Finds the optimizer by its kernels' names, and the kernels with the most device time (the
    /// most launches where no times were recorded).
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let weights = weights(trace);
        let all: u64 = weights.iter().sum::<u64>().max(1);
        let optimizer: Vec<bool> = trace
            .functions
            .iter()
            .map(|one| names::is_optimizer(&one.name))
            .collect();
        let share = |weight: u64| format!("{:.0} %", 100.0 * weight as f64 / all as f64);
        let mut list = Vec::new();
        let mut of_function = vec![usize::MAX; weights.len()];
        if optimizer.contains(&true) {
            let sum = weights
                .iter()
                .zip(&optimizer)
                .filter(|one| *one.1)
                .map(|one| one.0)
                .sum();
            let label = format!("optimizer, {}", share(sum));
            list.push(Phase {
                label,
                colour: palette::OPTIMIZER,
            });
        }
        let mut order: Vec<(u64, usize)> = weights.iter().copied().zip(0..).collect();
        order.sort_by_key(|(weight, place)| (std::cmp::Reverse(*weight), *place));
        let kernels = order.iter().filter(|(weight, place)| {
            *weight > 0 && !optimizer.get(*place).copied().unwrap_or(true)
        });
        let colours = [
            palette::SERIES[4],
            palette::SERIES[0],
            Colour(0x33, 0x33, 0x33),
        ];
        for ((weight, place), colour) in kernels.take(NAMED).zip(colours) {
            let name = trace
                .functions
                .get(*place)
                .map_or("?", |one| one.name.as_str());
            let label = format!("{}, {}", names::telling(name, 30), share(*weight));
            if let Some(slot) = of_function.get_mut(*place) {
                *slot = list.len();
            }
            list.push(Phase { label, colour });
        }
        list.push(Phase {
            label: "other ops".to_owned(),
            colour: palette::GRID,
        });
        for (slot, optimizer) in of_function.iter_mut().zip(&optimizer) {
            if *optimizer {
                *slot = 0;
            } else if *slot == usize::MAX {
                *slot = list.len() - 1;
            }
        }
        let marks_optimizer = optimizer.contains(&true);
        Self {
            list,
            of_function,
            marks_optimizer,
        }
    }

    /// Draws the strip: each pixel column has the colour of what took most of it.
    pub fn draw(&self, scene: &mut Scene, view: &View<'_>, strip: Area) {
        let columns = usize::try_from(strip.width()).unwrap_or(0);
        let kinds = self.list.len();
        let mut weights = vec![0.0_f64; columns * kinds];
        let to_px = columns as f64 / (view.max - view.min);
        for (place, op) in view.trace.ops.iter().enumerate() {
            let kind = self
                .of_function
                .get(op.function.index())
                .copied()
                .unwrap_or(kinds - 1);
            let Some((from, to)) = view.of_op(place, op) else {
                continue;
            };
            let (from, mut to) = ((from - view.min) * to_px, (to - view.min) * to_px);
            let mut strength = 1.0;
            if self.marks_optimizer && kind == 0 {
                // It is what people look for, and it is often one short op.
                to = to.max(from + 3.0);
                strength = 8.0;
            }
            for column in from as usize..=(to as usize).min(columns.saturating_sub(1)) {
                let part = to.min(column as f64 + 1.0) - from.max(column as f64);
                if let Some(weight) = weights.get_mut(column * kinds + kind) {
                    *weight += part.max(1e-6) * strength;
                }
            }
        }
        let winner = |column: usize| {
            let row = weights
                .get(column * kinds..(column + 1) * kinds)
                .unwrap_or(&[]);
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.filter(|(_, weight)| **weight > 0.0)
                .map(|(kind, _)| kind)
        };
        let mut column = 0;
        while column < columns {
            let kind = winner(column);
            let start = column;
            while column < columns && winner(column) == kind {
                column += 1;
            }
            if let Some(phase) = kind.and_then(|kind| self.list.get(kind)) {
                let px = |column: usize| strip.left + i32::try_from(column).unwrap_or(0);
                let area = Area {
                    left: px(start),
                    right: px(column),
                    ..strip
                };
                scene.fill(area, phase.colour);
            }
        }
    }
}

/// Device time of each function, or its launches where no times were recorded.
fn weights(trace: &Trace) -> Vec<u64> {
    let mut weights = vec![0_u64; trace.functions.len()];
    let timed = trace.ops.iter().any(|op| op.end_ns.0 > 0);
    for op in &trace.ops {
        if let Some(weight) = weights.get_mut(op.function.index()) {
            *weight += if timed {
                op.end_ns.0.saturating_sub(op.start_ns.0)
            } else {
                1
            };
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn the_optimizer_and_the_three_longest_kernels_are_named() {
        let phases = Phases::new(&Synthetic::default().trace());
        let labels: Vec<&str> = phases.list.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels.len(), 5);
        assert!(labels[0].starts_with("optimizer, "), "{labels:?}");
        assert!(labels[1].starts_with("matmul, "), "{labels:?}");
        assert_eq!(labels[4], "other ops");
    }
}
