//! Where a trace comes from: a file, stdin, or one that is made or shipped.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::error::{Next, advised, say};
use crate::generate::{self, Arrivals, Cluster, Recipe};
use crate::input::{self, Filter, Options, Report};
use crate::output;
use crate::progress::Progress;
use crate::render::table::facts;
use crate::render::units::{count, number, seconds};
use crate::scenario::Scenario;
use crate::trace::Trace;

/// Which jobs are simulated.
#[derive(Clone, Debug, clap::Args)]
pub struct Source {
    /// A job table (AcmeTrace, sacct --parsable2, or CSV with submit_s, run_s, gpus and perhaps job_id,
    /// type, state, nodes), `-` for stdin; or `seren`, `kalos` (generated) or `kalos-319` (319 real jobs).
    #[arg(value_name = "TRACE")]
    pub trace: String,
    /// Zone of times that do not name theirs, such as Europe/Berlin.
    #[arg(long, default_value = "UTC", help_heading = "Which jobs")]
    pub time_zone: String,
    /// Column that holds the type of a job.
    #[arg(long, value_name = "COLUMN", help_heading = "Which jobs")]
    pub type_column: Option<String>,
    /// Stop at the first bad row instead of counting it.
    #[arg(long, help_heading = "Which jobs")]
    pub strict: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub filter: Filter,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub made: Made,
}

/// How a generated trace is made.
#[derive(Clone, Debug, clap::Args)]
pub struct Made {
    /// Seed of a generated trace.
    #[arg(long, default_value_t = 1, help_heading = "Generated traces")]
    pub trace_seed: u64,
    /// Jobs of a generated trace; 0 for as many as the real one has.
    #[arg(long, default_value_t = 0, help_heading = "Generated traces",
          value_parser = clap::value_parser!(u32).range(0..=20_000_000))]
    pub jobs: u32,
    /// How jobs of a generated trace arrive.
    #[arg(long, value_enum, default_value_t = Arrivals::Chained, help_heading = "Generated traces")]
    pub arrivals: Arrivals,
}

impl Made {
    /// The recipe for a cluster.
    #[must_use]
    pub fn recipe(&self, cluster: Cluster) -> Recipe {
        Recipe {
            cluster,
            jobs: self.jobs,
            arrivals: self.arrivals,
            seed: self.trace_seed,
        }
    }
}

/// A trace and the account of it.
#[derive(Serialize)]
pub struct Loaded {
    /// What it is.
    pub name: String,
    /// The conditions that jobs met.
    pub filter: String,
    /// What became of its rows.
    pub report: Report,
    /// Racks of a scenario that names none: those of the trace's cluster, where that is known.
    pub own_racks: Option<f64>,
    /// The jobs.
    #[serde(skip)]
    pub trace: Trace,
}

impl Source {
    /// Refuses files to write that cannot be written, or that would destroy the job table.
    ///
    /// # Errors
    /// The first such file, with what to do about it.
    pub fn spare(&self, targets: &[&Option<PathBuf>]) -> anyhow::Result<()> {
        let targets: Vec<&Path> = targets.iter().filter_map(|path| path.as_deref()).collect();
        let input = match self.trace.as_str() {
            "seren" | "kalos" | "kalos-319" => None,
            "-" => Some(Path::new("/dev/stdin")),
            path => Some(Path::new(path)),
        };
        output::check(&targets, input)
    }

    /// Reads or makes the trace.
    ///
    /// # Errors
    /// If there is none, or no job is left of it.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        advised(self.filter.possible())?;
        let (name, raw, mut report) = match self.trace.as_str() {
            "seren" => self.made(Cluster::Seren),
            "kalos" => self.made(Cluster::Kalos),
            "kalos-319" => {
                let (trace, mut report) =
                    self.table("kalos-319", generate::data::KALOS_319.as_bytes())?;
                report.cluster = Some(Cluster::Kalos);
                (
                    "Kalos, 319 real jobs (completed, no evaluations)".to_owned(),
                    trace,
                    report,
                )
            }
            "-" => {
                let (trace, report) = self.table("stdin", io::stdin().lock())?;
                ("stdin".to_owned(), trace, report)
            }
            path => {
                let (trace, report) = self.file(Path::new(path))?;
                (path.to_owned(), trace, report)
            }
        };
        let trace = if self.filter.keeps_all(&raw) {
            raw
        } else {
            self.filter.apply(&raw, |why| report.filtered(why))
        };
        report.kept = trace.jobs.len() as u64;
        let loaded = Loaded {
            name,
            filter: self.filter.words(),
            own_racks: report.cluster.map(|cluster| cluster.profile().racks),
            report,
            trace,
        };
        if loaded.trace.jobs.is_empty() {
            let account = loaded.account();
            return Err(anyhow!(
                "no job is left to simulate\n{}",
                account.trim_end()
            ))
            .next(loaded.why_none());
        }
        Ok(loaded)
    }

    fn made(&self, cluster: Cluster) -> (String, Trace, Report) {
        let recipe = self.made.recipe(cluster);
        let progress = Progress::stage("generating");
        let trace = generate::trace(&recipe);
        drop(progress);
        let mut report = Report::new("generated", Some(cluster));
        report.rows = trace.jobs.len() as u64;
        let name = match cluster {
            Cluster::Seren => "Seren",
            Cluster::Kalos => "Kalos",
        };
        let name = format!("like {name}, generated from seed {}", recipe.seed);
        (name, trace, report)
    }

    fn file(&self, path: &Path) -> anyhow::Result<(Trace, Report)> {
        let shown = path.display();
        let file = File::open(path)
            .with_context(|| format!("cannot open {shown}"))
            .next("give a job table, or one of seren, kalos, kalos-319")?;
        if file.metadata().is_ok_and(|there| there.is_dir()) {
            return Err(anyhow!("{shown} is a folder")).next("give the job table in it");
        }
        self.table(&shown.to_string(), file)
    }

    fn table(&self, name: &str, source: impl Read) -> anyhow::Result<(Trace, Report)> {
        let zone = TimeZone::get(&self.time_zone)
            .with_context(|| format!("no time zone is named '{}'", self.time_zone))
            .next("give a name such as UTC, Asia/Shanghai or Europe/Berlin")?;
        let options = Options {
            zone,
            type_column: self.type_column.clone(),
            strict: self.strict,
            filter: self.filter.clone(),
        };
        let progress = Progress::rows();
        let read = input::read(source, &options, |rows| progress.advance(rows));
        drop(progress);
        let (trace, report) = read.or_else(|error| {
            let next = error.next();
            Err(error)
                .with_context(|| format!("cannot read {name}"))
                .next(next)
        })?;
        if report.bad_rows() > 0 {
            let bad = count(report.bad_rows());
            say(&format!(
                "transit-cluster: {bad} of {} rows are bad and left out; --strict stops at the first\n",
                count(report.rows)
            ));
        }
        Ok((trace, report))
    }
}

impl Loaded {
    /// Gives a scenario that names no racks those of the trace's cluster.
    ///
    /// # Errors
    /// If it names none and the trace's cluster is not known.
    pub fn racks_for(&self, scenario: &mut Scenario) -> anyhow::Result<()> {
        if scenario.racks.is_none() {
            scenario.racks = self.own_racks;
        }
        scenario
            .shape()
            .map(|_| ())
            .next("say it with --racks, for instance --racks 16 for 64 nodes of 8 GPUs")
    }

    /// What to do if no job is left.
    fn why_none(&self) -> &'static str {
        let without = self.report.left_out.get("no GPU").copied().unwrap_or(0);
        if self.report.table == "Slurm sacct" && without > 0 {
            return "look at AllocTRES: it names gres/gpu only if Slurm has AccountingStorageTRES=gres/gpu";
        }
        "relax the filters, or look at the rows named above"
    }

    /// The name without folders, for titles.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// The account as text.
    #[must_use]
    pub fn account(&self) -> String {
        let report = &self.report;
        let jobs = self.trace.jobs.len() as u64;
        let hours = self.trace.work() as f64 / 3_600_000.0;
        let span_s = self.trace.span().seconds();
        let bad = report
            .bad
            .iter()
            .map(|(why, bad)| format!("{:>9}  {why} (first: {})\n", count(bad.rows), bad.first));
        let left_out = report.left_out.iter();
        let left_out = left_out.map(|(why, rows)| format!("{:>9}  {why}\n", count(*rows)));
        let mut notes = String::new();
        if report.duration_with_queue > 0 {
            notes.push_str(&format!(
                "in {} rows duration holds the queue too; run times are end less start\n",
                count(report.duration_with_queue)
            ));
        }
        if report.repeated_ids > 0 {
            notes.push_str(&format!(
                "{} rows repeat the id of another (jobs run again, or rows that are there twice); kept\n",
                count(report.repeated_ids)
            ));
        }
        if report.started_early > 0 {
            notes.push_str(&format!(
                "{} jobs started before their submission, by the table; kept\n",
                count(report.started_early)
            ));
        }
        let own_racks = self.own_racks.map_or_else(String::new, |racks| {
            format!("{racks}, as the paper has them; used where --racks is not given")
        });
        facts(&[
            ("trace", format!("{} ({})", self.name, report.table)),
            ("rows", count(report.rows)),
            ("bad rows", bad.collect()),
            ("filter", self.filter.clone()),
            ("own racks", own_racks),
            ("left out", left_out.collect()),
            (
                "jobs",
                format!(
                    "{}; {} GPU hours, submitted over {}",
                    count(jobs),
                    number(hours),
                    seconds(span_s)
                ),
            ),
            ("note", notes),
        ])
    }
}
