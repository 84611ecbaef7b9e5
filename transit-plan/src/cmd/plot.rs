//! `transit-plan plot`: draws a trace.
//!
//! ```console
//! $ transit-plan plot heatmap warmup.trace.zst -o heatmap.png
//! $ transit-plan plot sizes before.trace.zst after.trace.zst -o sizes.svg
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use super::{plot_heatmap, plot_sizes};

const EXAMPLES: &str = "\
Examples:
  transit-plan plot heatmap warmup.trace.zst -o heatmap.png
  transit-plan plot heatmap warmup.trace.zst --x op --iterations 1..3 -o heatmap.svg
  transit-plan plot sizes before.trace.zst after.trace.zst -o sizes.png";

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Debug, clap::Subcommand)]
enum Figure {
    /// Which memory moved when: addresses over time or ops (the paper's Figure 4).
    Heatmap(plot_heatmap::Args),
    /// How large migrations were and how fast they went (the paper's Figure 5).
    Sizes(plot_sizes::Args),
}

/// Where a picture goes and how large it is.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// File to write; its end, .png or .svg, says which kind.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Width in pixels.
    #[arg(long, default_value_t = 1600, value_parser = clap::value_parser!(u32).range(1000..=8000))]
    pub width: u32,
    /// Height in pixels.
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u32).range(600..=8000))]
    pub height: u32,
}

/// Runs it.
///
/// # Errors
/// If a trace cannot be read or the picture cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.figure {
        Figure::Heatmap(args) => plot_heatmap::run(&args),
        Figure::Sizes(args) => plot_sizes::run(&args),
    }
}
