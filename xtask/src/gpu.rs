//! `cargo xtask gpu`: packs, and runs the evidence script where there is a GPU. The script is one
//! Python file in the bundle, so that it also runs on a machine that has no Rust.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{build, pack};

/// Options of `cargo xtask gpu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the bundle.
    #[arg(long, default_value = "out/bundle")]
    bundle: PathBuf,
    /// Folder for traces, plans, pictures and the report.
    #[arg(long, default_value = "out/gpu")]
    out: PathBuf,
}

/// Packs and runs `gpu/evidence.py`, or says how to run it elsewhere.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = transit_harness::workspace();
    let bundle = root.join(&args.bundle);
    pack::run(&pack::Args::into_folder(bundle.clone()))?;
    let script = bundle.join("gpu/evidence.py");
    let gpu = Command::new("nvidia-smi").arg("-L").output();
    if !gpu.is_ok_and(|output| output.status.success()) {
        println!(
            "no GPU here. On a GPU machine with PyTorch: python3 {} --out DIR (never \
             oversubscribes: memory pressure is emulated)",
            script.display()
        );
        return Ok(());
    }
    build::run(
        Command::new("python3")
            .arg(script)
            .arg("--out")
            .arg(root.join(&args.out)),
    )
}
