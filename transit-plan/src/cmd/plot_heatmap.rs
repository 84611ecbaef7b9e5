//! `transit-plan plot heatmap`: the paper's Figure 4. Each cell is a stretch of memory during a
//! stretch of time (or ops); its colour says which way it moved, its shade how much of it.

pub mod address;
pub mod heat;
pub mod lane;
pub mod phases;
pub mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use transit_format::trace::Trace;
use transit_format::trace::model::Header;

use self::address::AddressMap;
use self::heat::Moved;
use self::phases::Phases;
use self::view::{Along, View};
use super::files;
use super::plot::Output;
use super::windows::{self, Windows};
use crate::error::{self, say};
use crate::ranks;
use crate::render::axes::{self, Scale, Side};
use crate::render::backend::{self, Picture};
use crate::render::font;
use crate::render::palette::{self, GRID, INK, SOFT_INK};
use crate::render::scene::{Align, Area, Scene};
use crate::render::units;

const EXAMPLES: &str = "\
Examples:
  transit-plan plot heatmap warmup.trace.zst -o heatmap.png
  transit-plan plot heatmap warmup.trace.zst --x op --iterations 1..3 -o heatmap.svg";

/// Arguments of `plot heatmap`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// The trace, or the name given to `transit-record -o`: one picture per rank is drawn.
    trace: PathBuf,
    /// What runs along the horizontal axis; left out, time where the device was busy enough for
    /// it to show something, else ops.
    #[arg(long, value_enum)]
    x: Option<Along>,
    /// Only iterations A up to but without B.
    #[arg(long, value_name = "A..B", value_parser = files::parse_range)]
    iterations: Option<(usize, usize)>,
    #[command(flatten)]
    output: Output,
}

/// Runs it.
///
/// # Errors
/// If the trace cannot be read or the picture cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let output = &args.output.output;
    let kind = backend::kind_of(output)?;
    let found = ranks::find(&args.trace)?;
    let several = found.len() > 1;
    let (mut drawn, mut failed) = (true, false);
    for file in &found {
        let rank = file.rank.filter(|_| several);
        match draw(args, &file.path, &files::with_rank(output, rank), kind) {
            Ok(done) => drawn &= done,
            // The other ranks are drawn all the same.
            Err(error) if several => {
                error::print(&error);
                failed = true;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(if failed {
        ExitCode::from(2)
    } else if drawn {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Draws one trace; `false` if there is nothing to draw.
fn draw(args: &Args, path: &Path, output: &Path, kind: Picture) -> anyhow::Result<bool> {
    let trace = files::open(path)?;
    if let Some(why) = nothing_to_draw(&trace) {
        say(&format!("{} shows no migration: {why}", path.display()));
        return Ok(false);
    }
    let windows = windows::of(&trace);
    if let Some((from, _)) = args.iterations {
        files::check_range(from, windows.list.len(), "iterations")?;
    }
    let along = args.x.unwrap_or_else(|| view::best(&trace));
    let ops = crate::assign::migrations_to_ops(&trace);
    let view = View::new(&trace, along, &windows, args.iterations, ops);
    let size = (args.output.width as i32, args.output.height as i32);
    backend::save(&scene(&view, &windows, size, kind == Picture::Svg), output)?;
    say(&format!("drew {}", output.display()));
    Ok(true)
}

/// Why a heatmap of this trace would be empty, and what to record instead.
fn nothing_to_draw(trace: &Trace) -> Option<String> {
    if !trace.migrations.is_empty() || !trace.faults.is_empty() {
        return None;
    }
    let header = &trace.header;
    let peak = trace.totals.converted_peak_bytes;
    Some(if header.cupti_version == 0 {
        "it was recorded without CUPTI, which is what reports them\n  next: inspect it for the \
         reason, then record where libcupti can be loaded"
            .to_owned()
    } else if trace.allocs.iter().all(|alloc| !alloc.managed) {
        "no allocation was converted to managed memory\n  next: inspect it for the coverage line; \
         --min-bytes may be too high"
            .to_owned()
    } else if peak > 0 && header.emulated_card_bytes.is_none() {
        let limit = (peak / 3 * 2).max(2 << 20) / (2 << 20) * (2 << 20);
        format!(
            "the job's {} fitted into the {} of the device, so nothing had to move\n  next: record \
             it on a smaller emulated card, for instance transit-record --hbm-limit {}MiB -o \
             small.trace.zst -- {}",
            units::bytes(peak),
            units::bytes(header.device_total_bytes),
            limit >> 20,
            header.command.join(" ")
        )
    } else {
        "none happened inside the recorded window\n  next: record more iterations, or from the \
         start (--skip 0)"
            .to_owned()
    })
}

/// Where the parts of the picture lie.
struct Layout {
    strip: Area,
    plot: Area,
    lane: Area,
    legend: Area,
}

fn layout((width, height): (i32, i32)) -> Layout {
    let (left, right) = (120, width - 340);
    let (strip_top, lane_height) = (104, (height / 8).clamp(60, 140));
    let lane_bottom = height - 66;
    let lane_top = lane_bottom - lane_height;
    Layout {
        strip: Area {
            left,
            right,
            top: strip_top,
            bottom: strip_top + 14,
        },
        plot: Area {
            left,
            right,
            top: strip_top + 18,
            bottom: lane_top - 12,
        },
        lane: Area {
            left,
            right,
            top: lane_top,
            bottom: lane_bottom,
        },
        legend: Area {
            left: right + 28,
            right: width - 16,
            top: strip_top,
            bottom: height - 20,
        },
    }
}

/// The whole picture.
#[must_use]
pub fn scene(view: &View<'_>, windows: &Windows, size: (i32, i32), bounded: bool) -> Scene {
    let mut scene = Scene::new(size.0, size.1);
    let places = layout(size);
    let map = AddressMap::new(view.trace, |_| true);
    let moved = heat::moved(view);
    titles(&mut scene, &view.trace.header, windows, &moved);
    heat::draw(&mut scene, view, &map, places.plot, bounded);
    separators(&mut scene, &map, places.plot);
    let phases = Phases::new(view.trace);
    phases.draw(&mut scene, view, places.strip);
    iterations(&mut scene, view, &places);
    scene.frame(places.plot, INK);
    lane::draw(&mut scene, view, places.lane);
    axes_of(&mut scene, view, &map, &places);
    legend(&mut scene, view, &places, &phases, &moved);
    scene
}

fn titles(scene: &mut Scene, header: &Header, windows: &Windows, moved: &Moved) {
    let room = scene.width - 32;
    let title = format!("Memory that moved: {}", files::command(header));
    let title = font::fit(&title, 26, room);
    scene.text((16, 26), title, 26, INK, Align::Left);
    let line = format!(
        "{}  ·  {}, {}{}",
        files::what_was_recorded(header),
        moved_text(moved.htod_bytes, moved.htod, "HtoD"),
        moved_text(moved.dtoh_bytes, moved.dtoh, "DtoH"),
        if windows.confidence == 0.0 {
            "  ·  no iterations found"
        } else {
            ""
        },
    );
    scene.text(
        (16, 56),
        font::fit(&line, 18, room),
        18,
        SOFT_INK,
        Align::Left,
    );
}

fn moved_text(bytes: u64, count: u64, direction: &str) -> String {
    if count == 0 {
        return format!("no {direction}");
    }
    let migrations = units::counted(count, "migration", "migrations");
    format!("{} {direction} in {migrations}", units::bytes(bytes))
}

/// White lines where stretches of addresses were taken out, while they are few.
fn separators(scene: &mut Scene, map: &AddressMap, plot: Area) {
    let total = map.total_bytes().max(1) as f64;
    let segments = map.segments();
    if segments.len() > 60 {
        return;
    }
    for segment in segments.iter().skip(1) {
        let share = segment.below_bytes as f64 / total;
        let y = plot.bottom - (share * f64::from(plot.height())).round() as i32;
        scene.line((plot.left, y), (plot.right, y), palette::WHITE, 1);
    }
}

fn iterations(scene: &mut Scene, view: &View<'_>, places: &Layout) {
    let plot = places.plot;
    let scale = x_scale(view, plot);
    let begins: Vec<i32> = view
        .windows
        .iter()
        .map(|window| scale.px(view.begin_of(window)))
        .collect();
    let mut free_from = plot.left;
    for (place, x) in begins.iter().enumerate() {
        scene.dashed(*x, places.strip.top - 8, plot.bottom, SOFT_INK);
        scene.dashed(*x, places.lane.top, places.lane.bottom, SOFT_INK);
        let label = if begins.len() > 8 {
            (view.first_window + place).to_string()
        } else {
            format!("iteration {}", view.first_window + place)
        };
        let width = font::width(&label, 16);
        let end = begins.get(place + 1).copied().unwrap_or(plot.right);
        if *x >= free_from && end - x > width + 6 {
            let at = (x + 4, places.strip.top - 14);
            scene.text(at, label, 16, SOFT_INK, Align::Left);
            free_from = x + width + 10;
        }
    }
}

fn x_scale(view: &View<'_>, plot: Area) -> Scale {
    Scale {
        min: view.min,
        max: view.max,
        start_px: plot.left,
        end_px: plot.right,
    }
}

fn axes_of(scene: &mut Scene, view: &View<'_>, map: &AddressMap, places: &Layout) {
    let lane = places.lane;
    match view.along {
        Along::Time => {
            let (ticks, unit) = axes::time_ticks(view.max - view.min, 12);
            let scale = Scale {
                min: 0.0,
                max: view.max - view.min,
                ..x_scale(view, lane)
            };
            axes::below(
                scene,
                lane,
                &scale,
                &ticks,
                &format!("device time ({unit})"),
            );
        }
        Along::Op => {
            let ticks = axes::numbers(view.min, view.max, 12, true);
            let title = "op, in the order of issue";
            axes::below(scene, lane, &x_scale(view, lane), &ticks, title);
        }
    }
    let plot = places.plot;
    let bytes = map.total_bytes() as f64;
    let (ticks, unit) = axes::byte_ticks(bytes, 8);
    let scale = Scale {
        min: 0.0,
        max: bytes,
        start_px: plot.bottom,
        end_px: plot.top,
    };
    let title = format!("managed memory by address ({unit})");
    axes::beside(scene, plot, &scale, &ticks, &title, Side::Left);
}

fn legend(scene: &mut Scene, view: &View<'_>, places: &Layout, phases: &Phases, moved: &Moved) {
    let area = places.legend;
    let mut y = area.top + 8;
    heading(scene, area, &mut y, "Migrations");
    let mut rows = vec![
        (palette::HTOD, "host to device (HtoD)"),
        (palette::DTOH, "device to host (DtoH)"),
        (palette::BOTH, "both within the cell"),
    ];
    if moved.remote_bytes > 0 {
        rows.push((palette::REMOTE, "mapped remotely"));
    }
    for (colour, label) in rows {
        for (place, strength) in heat::SHADES.iter().enumerate() {
            let left = area.left + 16 * i32::try_from(place).unwrap_or(0);
            let square = Area {
                left,
                right: left + 16,
                top: y - 8,
                bottom: y + 8,
            };
            scene.fill(square, colour.tint(*strength));
        }
        label_at(scene, area, y, 74, label);
        y += 26;
    }
    y += 2;
    for text in [
        "shade: share of the cell's memory",
        "below 2 %, 10 %, 50 %, and above",
    ] {
        scene.text((area.left, y), text, 15, SOFT_INK, Align::Left);
        y += 20;
    }
    y += 6;
    square(scene, area, y, palette::ALLOCATED);
    label_at(scene, area, y, 26, "allocated, not moving");
    y += 42;
    heading(scene, area, &mut y, "Ops (strip on top)");
    for phase in &phases.list {
        square(scene, area, y, phase.colour);
        label_at(scene, area, y, 26, &phase.label);
        y += 26;
    }
    y += 16;
    if !view.windows.is_empty() {
        heading(scene, area, &mut y, "Marks");
        scene.dashed(area.left + 8, y - 10, y + 10, SOFT_INK);
        label_at(scene, area, y, 26, "start of an iteration");
    }
}

fn heading(scene: &mut Scene, area: Area, y: &mut i32, text: &str) {
    scene.text((area.left, *y), text, 18, INK, Align::Left);
    *y += 28;
}

fn square(scene: &mut Scene, area: Area, y: i32, colour: palette::Colour) {
    let square = Area {
        left: area.left,
        right: area.left + 16,
        top: y - 8,
        bottom: y + 8,
    };
    scene.fill(square, colour);
    scene.frame(square, GRID);
}

fn label_at(scene: &mut Scene, area: Area, y: i32, indent: i32, label: &str) {
    let text = font::fit(label, 16, area.width() - indent);
    scene.text((area.left + indent, y), text, 16, INK, Align::Left);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Directed, Synthetic};

    fn drawn(directed: Directed, along: Along, size: (i32, i32)) -> Scene {
        let trace = Synthetic {
            directed,
            steps: 12,
            ..Synthetic::default()
        }
        .trace();
        let windows = windows::of(&trace);
        let ops = crate::assign::migrations_to_ops(&trace);
        scene(
            &View::new(&trace, along, &windows, None, ops),
            &windows,
            size,
            false,
        )
    }

    #[test]
    fn no_label_covers_another_or_leaves_the_picture() {
        for size in [(1600, 900), (1000, 600), (3000, 1200)] {
            for directed in [Directed::Base, Directed::Advise] {
                for along in [Along::Time, Along::Op] {
                    let scene = drawn(directed, along, size);
                    assert_eq!(
                        scene.unreadable(),
                        Vec::<String>::new(),
                        "{size:?} {along:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_picture_says_what_was_recorded_in_which_units() {
        let scene = drawn(Directed::Base, Along::Time, (1600, 900));
        let all: Vec<&str> = scene.texts().map(|text| text.text.as_str()).collect();
        for words in [
            "trainer --layers 6",
            "Synthetic H200, emulated card of 256 MiB, 2026-11-29",
            "managed memory by address (MiB)",
            "GB/s",
            "host to device (HtoD)",
            "optimizer",
            "start of an iteration",
        ] {
            assert!(
                all.iter().any(|text| text.contains(words)),
                "no \"{words}\" in {all:?}"
            );
        }
    }
}
