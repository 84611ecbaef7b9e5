//! The cells of the heatmap: which colour each has, and how they come into the picture.

use transit_format::ids::AllocId;
use transit_format::trace::model::Direction;

use super::address::AddressMap;
use super::view::View;
use crate::render::palette::{self, Colour};
use crate::render::raster::{Cell, Grid, Layer, Patch, patches};
use crate::render::scene::{Area, Scene};

/// Share of a cell's memory that moved, from which each stronger shade begins.
pub const SHADE_FROM: [f64; 3] = [0.02, 0.10, 0.50];
/// How strong the shades are.
pub const SHADES: [f64; 4] = [0.30, 0.52, 0.76, 1.0];
/// Most boxes drawn into an SVG: above it the cells get coarser.
const MAX_PATCHES: usize = 24_000;

/// What the shown part moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes host to device.
    pub htod_bytes: u64,
    /// Bytes device to host.
    pub dtoh_bytes: u64,
    /// Migrations host to device.
    pub htod: u64,
    /// Migrations device to host.
    pub dtoh: u64,
    /// Bytes mapped remotely.
    pub remote_bytes: u64,
    /// Migrations between devices, which are not drawn.
    pub dtod: u64,
}

/// Bins everything shown into cells of `cell_px` pixels.
#[must_use]
pub fn bin(view: &View<'_>, map: &AddressMap, plot: Area, cell_px: i32) -> Grid {
    // Cells are wider than high: a transfer is short in time and must still be seen.
    let cells = |length: i32, px: i32| usize::try_from(length / px.max(1)).unwrap_or(1);
    let mut grid = Grid::new(
        cells(plot.width(), cell_px + 2),
        cells(plot.height(), cell_px),
    );
    let to_column = grid.columns() as f64 / (view.max - view.min);
    let to_row = grid.rows() as f64 / map.total_bytes().max(1) as f64;
    let columns =
        |(from, to): (f64, f64)| ((from - view.min) * to_column, (to - view.min) * to_column);
    let rows = |from: u64, bytes: u64| (from as f64 * to_row, (from + bytes) as f64 * to_row);
    for (index, life) in lives(view).into_iter().enumerate() {
        let id = AllocId(u32::try_from(index).unwrap_or(u32::MAX));
        let bytes = view.trace.allocs.get(index).map_or(0, |alloc| alloc.bytes);
        if let (Some(span), Some(low)) = (life, map.height(id, 0)) {
            grid.allocate(columns(span), rows(low, bytes));
        }
    }
    for fault in view.remote_maps() {
        let place = (view.of_fault(fault), map.height(fault.alloc, fault.offset));
        if let (Some(span), Some(low)) = place {
            grid.add(
                columns(span),
                rows(low, fault.value),
                fault.value as f64,
                Layer::Remote,
            );
        }
    }
    for (place, one) in view.trace.migrations.iter().enumerate() {
        let layer = match one.direction {
            Direction::HtoD => Layer::HtoD,
            Direction::DtoH => Layer::DtoH,
            Direction::DtoD => continue,
        };
        let place = (
            view.of_migration(place, one),
            map.height(one.alloc, one.offset),
        );
        if let (Some(span), Some(low)) = place {
            grid.add(columns(span), rows(low, one.bytes), one.bytes as f64, layer);
        }
    }
    grid
}

/// The life of each allocation along the axis.
fn lives(view: &View<'_>) -> Vec<Option<(f64, f64)>> {
    let mut ends = vec![(u64::MAX, u64::MAX); view.trace.allocs.len()];
    for free in &view.trace.frees {
        if let Some(end) = ends.get_mut(free.alloc.index()) {
            *end = (free.at_op.0, free.at_ns.0);
        }
    }
    let begins = view
        .trace
        .allocs
        .iter()
        .map(|alloc| (alloc.at_op.0, alloc.at_ns.0));
    begins
        .zip(ends)
        .map(|(from, to)| view.of_life(from, to))
        .collect()
}

/// Counts what the shown part moved.
#[must_use]
pub fn moved(view: &View<'_>) -> Moved {
    let mut sum = Moved::default();
    for (place, one) in view.trace.migrations.iter().enumerate() {
        if view.of_migration(place, one).is_none() {
            continue;
        }
        match one.direction {
            Direction::HtoD => {
                sum.htod += 1;
                sum.htod_bytes += one.bytes;
            }
            Direction::DtoH => {
                sum.dtoh += 1;
                sum.dtoh_bytes += one.bytes;
            }
            Direction::DtoD => sum.dtod += 1,
        }
    }
    let shown = view
        .remote_maps()
        .filter(|fault| view.of_fault(fault).is_some());
    sum.remote_bytes = shown.map(|fault| fault.value).sum();
    sum
}

/// A cell's class: 0 empty, 1 allocated, then four shades each of HtoD, DtoH, both, remote.
fn class(cell: &Cell, cell_bytes: f64) -> u8 {
    let (htod, dtoh) = (cell.htod_bytes, cell.dtoh_bytes);
    let moved = htod + dtoh;
    let shade = |bytes: f64| {
        let share = bytes / cell_bytes;
        SHADE_FROM.iter().filter(|from| share >= **from).count() as u8
    };
    if moved > 0.0 {
        let group = match htod / moved {
            share if share > 0.8 => 0,
            share if share < 0.2 => 1,
            _ => 2,
        };
        return 2 + group * 4 + shade(moved);
    }
    if cell.remote_bytes > 0.0 {
        return 14 + shade(cell.remote_bytes);
    }
    u8::from(cell.allocated)
}

/// The colour of a class.
fn colour(class: u8) -> Colour {
    let base = match class {
        0 => return palette::WHITE,
        1 => return palette::ALLOCATED,
        2..=5 => palette::HTOD,
        6..=9 => palette::DTOH,
        10..=13 => palette::BOTH,
        _ => palette::REMOTE,
    };
    base.tint(
        SHADES
            .get(usize::from((class - 2) % 4))
            .copied()
            .unwrap_or(1.0),
    )
}

/// Draws the cells; coarser ones until an SVG stays small.
pub fn draw(scene: &mut Scene, view: &View<'_>, map: &AddressMap, plot: Area, bounded: bool) {
    let mut cell_px = if bounded { 3 } else { 2 };
    loop {
        let grid = bin(view, map, plot, cell_px);
        let cell_bytes = map.total_bytes().max(1) as f64 / grid.rows() as f64;
        let found = patches(&grid, |cell| class(cell, cell_bytes));
        if bounded && found.len() > MAX_PATCHES && cell_px < 24 {
            cell_px += 1;
            continue;
        }
        for patch in found {
            scene.fill(pixels(plot, &grid, &patch), colour(patch.class));
        }
        return;
    }
}

fn pixels(plot: Area, grid: &Grid, patch: &Patch) -> Area {
    let x = |column: usize| {
        let share = column as f64 / grid.columns() as f64;
        plot.left + (share * f64::from(plot.width())).round() as i32
    };
    let y = |row: usize| {
        let share = row as f64 / grid.rows() as f64;
        plot.bottom - (share * f64::from(plot.height())).round() as i32
    };
    Area {
        left: x(patch.left),
        right: x(patch.right),
        top: y(patch.high),
        bottom: y(patch.low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_follow_the_share_that_moved() {
        let cell = |htod_bytes, dtoh_bytes| Cell {
            htod_bytes,
            dtoh_bytes,
            ..Cell::default()
        };
        assert_eq!(class(&Cell::default(), 100.0), 0);
        assert_eq!(
            class(
                &Cell {
                    allocated: true,
                    ..Cell::default()
                },
                100.0
            ),
            1
        );
        assert_eq!(class(&cell(1.0, 0.0), 100.0), 2);
        assert_eq!(class(&cell(60.0, 0.0), 100.0), 5);
        assert_eq!(class(&cell(0.0, 12.0), 100.0), 8);
        assert_eq!(class(&cell(50.0, 50.0), 100.0), 13);
        assert_eq!(colour(13), palette::BOTH);
    }
}
