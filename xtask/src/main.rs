//! Everything a developer or CI runs: `cargo xtask demo | test | build | pack | aarch64 | gpu | bench`.

mod aarch64;
mod bench;
mod build;
mod demo;
// One reader of ELF files for the bundle's check and for `transit-record doctor`.
#[path = "../../transit-record/src/doctor/elf.rs"]
mod elf;
mod gpu;
mod launches;
mod pack;
mod packed;
mod test;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer tasks of TRANSIT.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Record, plan and replay a trainer on an oversubscribed software GPU, and print a table.
    Demo(demo::Args),
    /// Format, lints, all tests and the mutation check: what CI runs.
    Test(test::Args),
    /// Build shims, launchers, planner, software GPU and trainer.
    Build,
    /// Make a bundle that runs without Rust.
    Pack(pack::Args),
    /// Build for aarch64, where its Rust target is installed, and check the files.
    Aarch64,
    /// Pack, and run the evidence script where there is a GPU.
    Gpu(gpu::Args),
    /// Run the benchmarks (decoding, planning, cluster, launch path).
    Bench {
        /// Only the launch path; exit code 1 where it takes more instructions than its budget.
        #[arg(long)]
        launches: bool,
    },
}

fn main() {
    // Whether what was looked at is as it should be.
    let result: Result<bool> = match Args::parse().task {
        Task::Demo(args) => demo::run(&args).map(|()| true),
        Task::Test(args) => test::run(&args).map(|()| true),
        Task::Build => build::everything().map(|()| true),
        Task::Pack(args) => pack::run(&args).map(|()| true),
        Task::Aarch64 => aarch64::run().map(|()| true),
        Task::Gpu(args) => gpu::run(&args).map(|()| true),
        Task::Bench { launches: true } => launches::run(),
        Task::Bench { launches: false } => bench::run(),
    };
    match result {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::exit(2);
        }
    }
}
