//! `transit-plan plot sizes`: the paper's Figure 5. How large migrations were, in bins of powers
//! of two, and how fast those of each bin went; several traces side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use transit_format::trace::Trace;
use transit_format::trace::model::Direction;

use super::files;
use super::plot::Output;
use crate::error::say;
use crate::render::axes::{self, Scale, Side, TICK_SIZE, Tick};
use crate::render::backend;
use crate::render::font;
use crate::render::palette::{self, INK, SOFT_INK};
use crate::render::scene::{Align, Area, Scene};
use crate::render::units;

/// Upper ends of the bins: 4 KiB, 8 KiB, ... 64 MiB; one more bin holds what is larger.
const FIRST_POWER: u32 = 12;
const LAST_POWER: u32 = 26;
/// Number of bins.
pub const BINS: usize = (LAST_POWER - FIRST_POWER + 2) as usize;

/// What the height of a bar means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Share of the migrations.
    #[default]
    Count,
    /// Share of the bytes.
    Bytes,
}

const EXAMPLES: &str = "\
Examples:
  transit-plan plot sizes warmup.trace.zst -o sizes.png
  transit-plan plot sizes before.trace.zst after.trace.zst --by bytes -o sizes.svg";

/// Arguments of `plot sizes`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    /// One or more traces, or names given to `transit-record -o` (first ranks are drawn).
    #[arg(required = true, num_args = 1..=6)]
    traces: Vec<PathBuf>,
    /// What the height of a bar means.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    #[command(flatten)]
    output: Output,
}

/// Runs it.
///
/// # Errors
/// If a trace cannot be read or the picture cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    backend::kind_of(&args.output.output)?;
    let mut series = Vec::new();
    let (mut jobs, mut subtitles) = (Vec::new(), Vec::new());
    for given in &args.traces {
        let (path, trace) = files::first_trace(given)?;
        let command = files::command(&trace.header);
        if !jobs.contains(&command) {
            let recorded = files::what_was_recorded(&trace.header);
            subtitles.push(format!("{command}  ·  {recorded}"));
            jobs.push(command);
        }
        series.push(Series::of(&trace, &files::label(&path, &trace.header)));
    }
    if series
        .iter()
        .all(|one| one.htod.count() + one.dtoh.count() == 0)
    {
        say(&format!(
            "no migration in {}\n  next: transit-plan inspect says why; record with \
             a smaller card (transit-record --hbm-limit)",
            args.traces
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        ));
        return Ok(ExitCode::from(1));
    }
    let subtitle = match subtitles.as_slice() {
        [only] => only.clone(),
        several => format!("{} different jobs: {}", several.len(), several.join(";  ")),
    };
    let size = (args.output.width as i32, args.output.height as i32);
    backend::save(
        &scene(&series, &subtitle, args.by, size),
        &args.output.output,
    )?;
    say(&format!("drew {}", args.output.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// One bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Migrations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their durations.
    pub moving_ns: u64,
}

/// All bins of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub [Bin; BINS]);

impl Histogram {
    fn add(&mut self, bytes: u64, moving_ns: u64) {
        if let Some(bin) = self.0.get_mut(bin_of(bytes)) {
            bin.count += 1;
            bin.bytes += bytes;
            bin.moving_ns += moving_ns;
        }
    }

    /// Migrations of all sizes.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bin| bin.count).sum()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|bin| bin.bytes).sum()
    }

    /// Sum of their durations.
    #[must_use]
    pub fn moving_ns(&self) -> u64 {
        self.0.iter().map(|bin| bin.moving_ns).sum()
    }

    /// Share of a bin, in per cent.
    fn share(&self, bin: &Bin, by: By) -> f64 {
        let (part, whole) = match by {
            By::Count => (bin.count, self.count()),
            By::Bytes => (bin.bytes, self.bytes()),
        };
        if whole == 0 {
            0.0
        } else {
            100.0 * part as f64 / whole as f64
        }
    }
}

/// The bin of a size: the smallest power of two from 4 KiB on that holds it.
#[must_use]
pub fn bin_of(bytes: u64) -> usize {
    let power = bytes
        .max(1)
        .next_power_of_two()
        .ilog2()
        .clamp(FIRST_POWER, LAST_POWER + 1);
    (power - FIRST_POWER) as usize
}

fn bin_label(bin: usize) -> String {
    let power = FIRST_POWER + bin as u32;
    if power > LAST_POWER {
        format!("> {}", units::bytes(1 << LAST_POWER))
    } else {
        units::bytes(1 << power)
    }
}

/// One trace.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub label: String,
    /// Host to device.
    pub htod: Histogram,
    /// Device to host.
    pub dtoh: Histogram,
}

impl Series {
    /// Counts a trace.
    #[must_use]
    pub fn of(trace: &Trace, label: &str) -> Self {
        let (mut htod, mut dtoh) = (Histogram::default(), Histogram::default());
        for one in &trace.migrations {
            let moving_ns = one.end_ns.0.saturating_sub(one.start_ns.0);
            match one.direction {
                Direction::HtoD => htod.add(one.bytes, moving_ns),
                Direction::DtoH => dtoh.add(one.bytes, moving_ns),
                Direction::DtoD => {}
            }
        }
        Self {
            label: label.to_owned(),
            htod,
            dtoh,
        }
    }
}

/// The whole picture: HtoD above, DtoH below.
#[must_use]
pub fn scene(series: &[Series], subtitle: &str, by: By, size: (i32, i32)) -> Scene {
    let mut scene = Scene::new(size.0, size.1);
    let room = size.0 - 32;
    let title = "Sizes of migrations (bars) and their throughput (lines)";
    scene.text((16, 26), title, 26, INK, Align::Left);
    scene.text(
        (16, 56),
        font::fit(subtitle, 18, room),
        18,
        SOFT_INK,
        Align::Left,
    );
    let legend_rows = i32::try_from(series.len()).unwrap_or(0);
    let top = 84 + 24 * legend_rows;
    legend(&mut scene, series);
    let each = (size.1 - top - 80) / 2;
    let (left, right) = (120, size.0 - 120);
    let upper = Area {
        left,
        right,
        top: top + 28,
        bottom: top + each - 16,
    };
    let lower = Area {
        left,
        right,
        top: top + each + 40,
        bottom: size.1 - 68,
    };
    let htod: Vec<&Histogram> = series.iter().map(|one| &one.htod).collect();
    let dtoh: Vec<&Histogram> = series.iter().map(|one| &one.dtoh).collect();
    panel(&mut scene, upper, "Host to device (HtoD)", &htod, by);
    panel(&mut scene, lower, "Device to host (DtoH)", &dtoh, by);
    bin_axis(&mut scene, lower, true);
    bin_axis(&mut scene, upper, false);
    scene
}

fn legend(scene: &mut Scene, series: &[Series]) {
    let summary = |name: &str, all: &Histogram| {
        if all.count() == 0 {
            return format!("no {name}");
        }
        format!(
            "{} {name} of {} on average, {} at {}",
            units::count(all.count()),
            units::bytes(all.bytes() / all.count()),
            units::bytes(all.bytes()),
            units::rate(all.bytes() as f64, all.moving_ns() as f64),
        )
    };
    let mut y = 88;
    for (place, one) in series.iter().enumerate() {
        let colour = palette::series(place);
        scene.fill(
            Area {
                left: 16,
                right: 40,
                top: y - 8,
                bottom: y + 8,
            },
            colour,
        );
        let text = format!(
            "{}: {}; {}",
            one.label,
            summary("HtoD", &one.htod),
            summary("DtoH", &one.dtoh)
        );
        let text = font::fit(&text, 16, scene.width - 64);
        scene.text((48, y), text, 16, INK, Align::Left);
        y += 24;
    }
}

fn slot(plot: Area, bin: usize) -> (f64, f64) {
    let width = f64::from(plot.width()) / BINS as f64;
    (f64::from(plot.left) + width * bin as f64, width)
}

fn bin_axis(scene: &mut Scene, plot: Area, titled: bool) {
    for bin in 0..BINS {
        let (left, width) = slot(plot, bin);
        // On a narrow picture every other bin keeps its label.
        if width < 72.0 && bin % 2 == 1 {
            continue;
        }
        let at = ((left + width / 2.0) as i32, plot.bottom + 6 + TICK_SIZE / 2);
        let size = if width < 72.0 { 14 } else { TICK_SIZE - 2 };
        scene.text(at, bin_label(bin), size, INK, Align::Centre);
    }
    if titled {
        let middle = i32::midpoint(plot.left, plot.right);
        let at = (middle, plot.bottom + 46);
        scene.text(
            at,
            "size of a migration, up to",
            axes::TITLE_SIZE,
            INK,
            Align::Centre,
        );
    }
}

fn panel(scene: &mut Scene, plot: Area, title: &str, list: &[&Histogram], by: By) {
    scene.text((plot.left, plot.top - 16), title, 18, INK, Align::Left);
    let bins = || {
        list.iter()
            .flat_map(|one| one.0.iter().map(move |bin| (*one, bin)))
    };
    let highest = bins()
        .map(|(all, bin)| all.share(bin, by))
        .fold(0.0, f64::max);
    let fastest = bins().map(|(_, bin)| rate_of(bin)).fold(0.0, f64::max);
    let shares = Scale {
        min: 0.0,
        max: (highest * 1.08).clamp(1.0, 100.0),
        start_px: plot.bottom,
        end_px: plot.top,
    };
    let rates = Scale {
        max: (fastest * 1.12).max(1.0),
        ..shares
    };
    let ticks = axes::numbers(0.0, shares.max, 5, false);
    let name = match by {
        By::Count => "share of migrations (%)",
        By::Bytes => "share of bytes (%)",
    };
    axes::beside(scene, plot, &shares, &ticks, name, Side::LeftWithGrid);
    let ticks: Vec<Tick> = axes::numbers(0.0, rates.max, 5, false);
    axes::beside(
        scene,
        plot,
        &rates,
        &ticks,
        "throughput (GB/s)",
        Side::Right,
    );
    bars(scene, plot, list, by, &shares);
    for (place, one) in list.iter().enumerate() {
        throughput(scene, plot, one, place, list.len(), &rates);
    }
    scene.frame(plot, INK);
}

fn rate_of(bin: &Bin) -> f64 {
    if bin.moving_ns == 0 {
        0.0
    } else {
        bin.bytes as f64 / bin.moving_ns as f64
    }
}

fn bars(scene: &mut Scene, plot: Area, list: &[&Histogram], by: By, shares: &Scale) {
    for bin in 0..BINS {
        for (place, one) in list.iter().enumerate() {
            let Some(content) = one.0.get(bin).filter(|bin| bin.count > 0) else {
                continue;
            };
            let (left, right) = bar(plot, bin, place, list.len());
            // A bin that holds something shows at least a line.
            let top = shares.px(one.share(content, by)).min(plot.bottom - 2);
            let colour = palette::series(place);
            scene.fill(
                Area {
                    left,
                    right,
                    top,
                    bottom: plot.bottom,
                },
                colour,
            );
        }
    }
}

fn bar(plot: Area, bin: usize, place: usize, of: usize) -> (i32, i32) {
    let (left, width) = slot(plot, bin);
    let each = width * 0.8 / of.max(1) as f64;
    let from = left + width * 0.1 + each * place as f64;
    (
        from.round() as i32,
        ((from + each).round() as i32 - 1).max(from.round() as i32 + 1),
    )
}

/// A line from bin to bin with a dot on each that holds something.
fn throughput(
    scene: &mut Scene,
    plot: Area,
    one: &Histogram,
    place: usize,
    of: usize,
    rates: &Scale,
) {
    let mut last: Option<(usize, (i32, i32))> = None;
    let mut dots = Vec::new();
    for (bin, content) in one.0.iter().enumerate() {
        if content.count == 0 || content.moving_ns == 0 {
            continue;
        }
        let (left, right) = bar(plot, bin, place, of);
        let at = (i32::midpoint(left, right), rates.px(rate_of(content)));
        if let Some((_, before)) = last {
            // A white line below keeps it visible across bars of its own colour.
            scene.line(before, at, palette::WHITE, 4);
            scene.line(before, at, palette::series(place).shade(0.75), 2);
        }
        dots.push(at);
        last = Some((bin, at));
    }
    for at in dots {
        scene
            .items
            .push(crate::render::scene::Item::Dot(at, 6, palette::WHITE));
        let colour = palette::series(place).shade(0.75);
        scene
            .items
            .push(crate::render::scene::Item::Dot(at, 4, colour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Directed, Synthetic};

    #[test]
    fn bins_are_powers_of_two_with_open_ends() {
        assert_eq!(bin_of(1), 0);
        assert_eq!(bin_of(4096), 0);
        assert_eq!(bin_of(4097), 1);
        assert_eq!(bin_of(2 << 20), 9);
        assert_eq!(bin_of(64 << 20), BINS - 2);
        assert_eq!(bin_of(1 << 40), BINS - 1);
        assert_eq!(bin_label(0), "4 KiB");
        assert_eq!(bin_label(BINS - 1), "> 64 MiB");
    }

    #[test]
    fn every_migration_is_counted_once_and_labels_stay_apart() {
        let base = Synthetic::default().trace();
        let prefetch = Synthetic {
            directed: Directed::Prefetch,
            ..Synthetic::default()
        }
        .trace();
        let series = [Series::of(&base, "base"), Series::of(&prefetch, "prefetch")];
        let counted = series[0].htod.count() + series[0].dtoh.count();
        assert_eq!(counted, base.migrations.len() as u64);
        for size in [(1600, 900), (1000, 600)] {
            let scene = scene(&series, "trainer", By::Count, size);
            assert_eq!(scene.unreadable(), Vec::<String>::new());
        }
    }
}
