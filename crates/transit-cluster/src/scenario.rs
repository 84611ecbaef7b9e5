//! Everything that one simulated run depends on besides the trace. Each choice that the paper leaves
//! open is an option here, its default the reading closest to the paper; `Choices` in the paper's
//! command lists them with what they change.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use crate::cluster::shape::ShapeError;
use crate::cluster::{LastNode, Placement, Shape, SubNode};

/// In which order waiting jobs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Strictly by submission: a job that does not fit holds back all behind it.
    Fifo,
    /// The first that fits starts; a large job may wait long.
    Greedy,
    /// EASY backfill: others may pass the first job where they do not delay it.
    Easy,
    /// Conservative backfill: others may pass where they delay no earlier job.
    Conservative,
}

/// How a reduced number of nodes becomes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Up: 3 nodes less 50 % are 2.
    Up,
    /// Down, at least one: 3 nodes less 50 % are 1.
    Down,
    /// To the nearest, halves up.
    Nearest,
}

/// By how much a job takes longer on fewer nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stretch {
    /// By nodes before over nodes after, so that GPU time is kept.
    Actual,
    /// By 1/(1 - reduction), whatever rounding did.
    Nominal,
}

/// From what the class (one rack or several) before scale-in is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassBefore {
    /// From where the job ran in the baseline run.
    BaselineRun,
    /// From whether it would fit an empty rack.
    Ideal,
    /// From where it would go unshrunk at the moment it starts.
    AtStart,
}

/// How a job counts that scale-in brings onto one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SingleNode {
    /// As a job within one rack.
    Intra,
    /// Without any placement factor.
    Neutral,
}

/// How a slow-down becomes a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowdownForm {
    /// Duration x (1 + d).
    Longer,
    /// Throughput x (1 - d), so duration / (1 - d).
    Slower,
}

/// Which jobs scale-in may touch, by how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// All: a failed or cancelled job holds its GPUs longer as well.
    Scaled,
    /// Failed and cancelled jobs take fewer nodes, but keep their recorded time.
    AsRecorded,
}

/// From where the number of nodes is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodesFrom {
    /// From the GPUs and the simulated nodes' size.
    Gpus,
    /// From the trace, where it tells; all of them taken whole.
    Trace,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// When the last job has ended.
    Drained,
    /// At the last submission; what waits or runs then is counted as such.
    LastSubmit,
}

/// A number or a range to draw from, as a fraction: `50%`, `0..137%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

impl Factor {
    /// Always the same.
    #[must_use]
    pub fn fixed(value: f64) -> Self {
        Self {
            low: value,
            high: value,
        }
    }

    /// The value at a place between 0 and 1 of the range.
    #[must_use]
    pub fn at(self, place: f64) -> f64 {
        self.low + place * (self.high - self.low)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |value: f64| (value * 1e6).round() / 1e4;
        if self.low == self.high {
            write!(f, "{}%", percent(self.low))
        } else {
            write!(f, "{}..{}%", percent(self.low), percent(self.high))
        }
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Beyond this a number without % was meant to have one.
const MOST_BARE: f64 = 10.0;

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        let as_percent = high.ends_with('%');
        let number = |part: &str| -> Result<f64, String> {
            let bare = part.strip_suffix('%').unwrap_or(part).trim();
            let value: f64 = bare
                .parse()
                .map_err(|_| format!("'{part}' is no number; 50%, 0.5 and 0..137% are"))?;
            let scale = if as_percent { 100.0 } else { 1.0 };
            Ok(value / scale)
        };
        let factor = Self {
            low: number(low)?,
            high: number(high)?,
        };
        if !as_percent && factor.high > MOST_BARE {
            return Err(format!(
                "'{text}' is {text}00%; write '{text}%' if that is meant"
            ));
        }
        let possible = -0.99..=100.0;
        if factor.low > factor.high
            || !possible.contains(&factor.low)
            || !possible.contains(&factor.high)
        {
            return Err(format!(
                "'{text}' is no range from low to high within -99% and 10000%"
            ));
        }
        Ok(factor)
    }
}

/// A share of nodes: `25%` or `0.25`, below 1.
///
/// # Errors
/// If it is no number from 0 to below 1.
pub fn reduction(text: &str) -> Result<f64, String> {
    let value = Factor::from_str(text)?;
    if value.low == value.high && (0.0..1.0).contains(&value.low) {
        Ok(value.low)
    } else {
        Err(format!(
            "'{text}' is no share of nodes: 0% to below 100%, for instance 50%"
        ))
    }
}

/// One simulated run, without its trace.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Scenario {
    /// Racks; a fraction counts in whole nodes (286 nodes of 8 GPUs are 71.5). Without it Seren's jobs
    /// get the paper's 72 racks and Kalos's 76; for other tables it must be given.
    #[arg(long, help_heading = "Cluster")]
    pub racks: Option<f64>,
    /// GPUs of a node.
    #[arg(long, default_value_t = 8, help_heading = "Cluster")]
    pub gpus_per_node: u32,
    /// GPUs of a rack.
    #[arg(long, default_value_t = 32, help_heading = "Cluster")]
    pub gpus_per_rack: u32,
    /// How a place is chosen.
    #[arg(long, value_enum, default_value_t = Placement::Pack, help_heading = "Cluster")]
    pub placement: Placement,
    /// In which order waiting jobs start.
    #[arg(long, value_enum, default_value_t = Queue::Fifo, help_heading = "Cluster")]
    pub queue: Queue,
    /// Waiting jobs that EASY looks at behind the first.
    #[arg(long, default_value_t = 1000, help_heading = "Cluster")]
    pub backfill_depth: u32,
    /// Whether jobs smaller than a node share nodes.
    #[arg(long, value_enum, default_value_t = SubNode::Share, help_heading = "Cluster")]
    pub sub_node: SubNode,
    /// What multi-node jobs do with a last node that they do not fill.
    #[arg(long, value_enum, default_value_t = LastNode::Whole, help_heading = "Cluster")]
    pub last_node: LastNode,
    /// From where the number of nodes is known.
    #[arg(long, value_enum, default_value_t = NodesFrom::Gpus, help_heading = "Cluster")]
    pub nodes_from: NodesFrom,

    /// Share of nodes that eligible (multi-node) jobs give up.
    #[arg(long, default_value = "0%", value_parser = reduction, help_heading = "Scale-in")]
    pub reduction: f64,
    /// How the reduced number of nodes becomes whole.
    #[arg(long, value_enum, default_value_t = Rounding::Up, help_heading = "Scale-in")]
    pub rounding: Rounding,
    /// By how much a job takes longer on fewer nodes.
    #[arg(long, value_enum, default_value_t = Stretch::Actual, help_heading = "Scale-in")]
    pub stretch: Stretch,
    /// Speed-up of jobs that come from several racks into one (paper: 0..137%).
    #[arg(long, default_value = "50%", help_heading = "Scale-in")]
    pub speedup: Factor,
    /// Slow-down of jobs that come from one rack to several (paper: 0..55%).
    #[arg(long, default_value = "0..55%", help_heading = "Scale-in")]
    pub slowdown: Factor,
    /// Change of throughput of shrunk jobs that stay in their class (paper: -5..5%).
    #[arg(
        long,
        default_value = "-5..5%",
        allow_hyphen_values = true,
        help_heading = "Scale-in"
    )]
    pub same: Factor,
    /// How a slow-down becomes a duration.
    #[arg(long, value_enum, default_value_t = SlowdownForm::Longer, help_heading = "Scale-in")]
    pub slowdown_form: SlowdownForm,
    /// From what the class before scale-in is known.
    #[arg(long, value_enum, default_value_t = ClassBefore::BaselineRun, help_heading = "Scale-in")]
    pub class_before: ClassBefore,
    /// How a job counts that comes onto one node.
    #[arg(long, value_enum, default_value_t = SingleNode::Intra, help_heading = "Scale-in")]
    pub single_node: SingleNode,
    /// Whether failed and cancelled jobs take longer on fewer nodes.
    #[arg(long, value_enum, default_value_t = Ended::Scaled, help_heading = "Scale-in")]
    pub ended: Ended,

    /// When the run ends.
    #[arg(long, value_enum, default_value_t = Until::Drained, help_heading = "Measurement")]
    pub until: Until,
    /// Days at the start whose jobs run but are not measured.
    #[arg(long, default_value_t = 0.0, help_heading = "Measurement")]
    pub warmup_days: f64,
    /// Times the trace's arrival rate: 2 halves the time between submissions.
    #[arg(long, default_value_t = 1.0, help_heading = "Measurement")]
    pub load: f64,
    /// Seed of drawn factors and of failures.
    #[arg(long, default_value_t = 1, help_heading = "Measurement")]
    pub seed: u64,

    /// Mean hours between failures of one node; 0 for none.
    #[arg(long, default_value_t = 0.0, help_heading = "Failures")]
    pub mtbf_hours: f64,
    /// Hours until a failed node is back.
    #[arg(long, default_value_t = 12.0, help_heading = "Failures")]
    pub repair_hours: f64,
    /// Hours between a job's checkpoints; 0 if it starts over after a failure.
    #[arg(long, default_value_t = 1.0, help_heading = "Failures")]
    pub checkpoint_hours: f64,
    /// Restarts after which a job is given up.
    #[arg(long, default_value_t = 100, help_heading = "Failures")]
    pub max_restarts: u32,
}

impl Scenario {
    /// The cluster.
    ///
    /// # Errors
    /// If there is none of this shape, or nobody said how many racks it has.
    pub fn shape(&self) -> Result<Shape, ShapeError> {
        let racks = self.racks.ok_or(ShapeError::Unsaid)?;
        Shape::new(racks, self.gpus_per_rack, self.gpus_per_node)
    }

    /// Numbers that cannot be simulated. The number of racks may still be open.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let racks = self.racks.unwrap_or(1.0);
        Shape::new(racks, self.gpus_per_rack, self.gpus_per_node)
            .map_err(|error| error.to_string())?;
        let within = |name: &str, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(format!("--{name} {value} is not within {low} and {high}"))
            }
        };
        within("warmup-days", self.warmup_days, 0.0, 1e6)?;
        within("load", self.load, 1e-6, 1e6)?;
        if self.mtbf_hours != 0.0 {
            within("mtbf-hours", self.mtbf_hours, 0.01, 1e9)?;
        }
        within("repair-hours", self.repair_hours, 0.001, 1e6)?;
        within("checkpoint-hours", self.checkpoint_hours, 0.0, 1e6)?;
        if self.slowdown_form == SlowdownForm::Slower && self.slowdown.high > 0.99 {
            return Err("--slowdown of 99% and more leaves no throughput".to_owned());
        }
        Ok(())
    }

    /// This scenario with some options changed: `racks=32 reduction=50%`, commas or spaces between.
    ///
    /// # Errors
    /// If a name or a value is none, in words.
    pub fn changed(&self, changes: &str) -> Result<Self, String> {
        use clap::{Args, FromArgMatches};
        let words = changes.split([' ', ',']).filter(|word| !word.is_empty());
        let mut flags = self.flags();
        flags.extend(words.map(|word| format!("--{}", word.trim_start_matches("--"))));
        let command = clap::Command::new("scenario")
            .no_binary_name(true)
            .disable_help_flag(true);
        let changed = Self::augment_args(command.args_override_self(true))
            .try_get_matches_from(flags)
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|error| {
                let text = error.to_string();
                // What is wrong, and the values that would be right.
                let lines = text.lines().take_while(|line| !line.is_empty());
                let lines: Vec<&str> = lines.map(str::trim).collect();
                lines.join(" ").trim_start_matches("error: ").to_owned()
            })?;
        changed.check()?;
        Ok(changed)
    }

    /// The options that make this scenario: each field is named as its option.
    fn flags(&self) -> Vec<String> {
        let document = serde_json::to_value(self).unwrap_or_default();
        let fields = document.as_object().into_iter().flatten();
        let flag = |(name, value): (&String, &serde_json::Value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("--{}={value}", name.replace('_', "-"))
        };
        fields
            .filter(|(_, value)| !value.is_null())
            .map(flag)
            .collect()
    }

    /// This scenario without scale-in.
    #[must_use]
    pub fn baseline(&self) -> Self {
        Self {
            reduction: 0.0,
            ..self.clone()
        }
    }
}

/// The defaults of the command line.
impl Default for Scenario {
    fn default() -> Self {
        use clap::{Args, FromArgMatches};
        let command = Self::augment_args(clap::Command::new("x"));
        let matches = command.get_matches_from(["x"]);
        match Self::from_arg_matches(&matches) {
            Ok(scenario) => scenario,
            Err(error) => error.exit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_percentages_fractions_or_ranges() {
        let parse = |text: &str| text.parse::<Factor>();
        assert_eq!(parse("50%"), Ok(Factor::fixed(0.5)));
        assert_eq!(parse("0.5"), Ok(Factor::fixed(0.5)));
        let paper = Factor {
            low: 0.0,
            high: 1.37,
        };
        assert_eq!(parse("0..137%"), Ok(paper));
        assert_eq!(paper.to_string(), "0..137%");
        assert_eq!(parse("-5..5%").unwrap().to_string(), "-5..5%");
        for wrong in ["", "x", "5..1%", "nan", "-100%", "inf"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["100%", "-1%", "0..50%", "50"] {
            assert!(reduction(wrong).is_err(), "{wrong}");
        }
        assert!(parse("50").unwrap_err().contains("write '50%'"));
        assert_eq!(parse("1.37"), Ok(Factor::fixed(1.37)));
    }

    #[test]
    fn defaults_are_simulable() {
        let scenario = Scenario::default();
        assert_eq!(scenario.check(), Ok(()));
        assert_eq!(scenario.shape(), Err(ShapeError::Unsaid));
        let seren = scenario.changed("racks=72").unwrap();
        assert_eq!(seren.shape().unwrap().gpus(), 2304);
    }
}
