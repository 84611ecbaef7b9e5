//! The choices that the paper leaves open: ours, and the others, each changed alone but
//! for two pairs. They follow the list in the report; quotas and contention between jobs (15 and 16
//! there) are left out of the model, as they seem to be in the paper's.

use serde::Serialize;

use crate::generate::Arrivals;
use crate::input::Filter;
use crate::metrics::Group;
use crate::scenario::Scenario;
use crate::trace::State;

/// Which count of racks is the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Racks touched.
    Racks,
    /// Racks touched by jobs on several.
    Several,
    /// Racks beyond each job's first.
    Crossings,
}

/// Which number is the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throughput {
    /// Mean over jobs of recorded over simulated GPU time.
    PerGpuAndJob,
    /// Jobs by hour of makespan.
    JobsPerHour,
    /// Jobs by GPU hour held.
    JobsPerGpuHour,
}

/// One reading of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Its place in the list of unstated choices; 0 for ours.
    pub item: u8,
    /// What is different.
    pub name: &'static str,
    /// How jobs of the generated traces arrive.
    pub arrivals: Arrivals,
    /// Added to the seed of the generated traces.
    pub seeds_on: u64,
    /// Which count of racks is the traffic.
    pub traffic: Traffic,
    /// Which number is the throughput.
    pub throughput: Throughput,
    /// Whether queue times are those of eligible jobs.
    pub queue_of_eligible: bool,
    /// Racks of Seren and Kalos.
    pub racks: (f64, f64),
    /// Options of the scenario.
    pub options: &'static str,
    /// Only jobs in these states; none for all.
    pub states: &'static [State],
    /// Only jobs that ran so long.
    pub min_run_s: f64,
}

impl Choice {
    /// Ours: completed jobs, strict FIFO, packing, a plain count of racks.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            item: 0,
            name: "as by default",
            arrivals: Arrivals::Chained,
            seeds_on: 0,
            traffic: Traffic::Racks,
            throughput: Throughput::PerGpuAndJob,
            queue_of_eligible: false,
            racks: (72.0, 76.0),
            options: "",
            states: &[State::Completed],
            min_run_s: 1.0,
        }
    }

    fn with(item: u8, name: &'static str) -> Self {
        Self {
            item,
            name,
            ..Self::usual()
        }
    }

    fn options(item: u8, name: &'static str, options: &'static str) -> Self {
        Self {
            options,
            ..Self::with(item, name)
        }
    }

    /// The traffic of a group of jobs.
    #[must_use]
    pub fn traffic_of(&self, group: &Group) -> f64 {
        match self.traffic {
            Traffic::Racks => group.traffic.racks as f64,
            Traffic::Several => group.traffic.multi_rack as f64,
            Traffic::Crossings => group.traffic.crossings as f64,
        }
    }

    /// The throughput of a group of jobs.
    #[must_use]
    pub fn throughput_of(&self, group: &Group) -> f64 {
        match self.throughput {
            Throughput::PerGpuAndJob => group.speed,
            Throughput::JobsPerHour => group.jobs_per_hour,
            Throughput::JobsPerGpuHour => group.jobs_per_gpu_hour,
        }
    }
}

/// The filter of a choice.
#[must_use]
pub fn filter(choice: &Choice) -> Filter {
    Filter {
        states: choice.states.to_vec(),
        min_run_s: choice.min_run_s,
        ..Filter::default()
    }
}

/// The scenario of a choice, on Seren's racks and without scale-in.
#[must_use]
pub fn scenario(choice: &Choice, seed: u64) -> Scenario {
    let base = Scenario {
        seed,
        racks: Some(choice.racks.0),
        ..Scenario::default()
    };
    // The options are constants of this file; a test makes each of them.
    base.changed(choice.options).unwrap_or(base)
}

/// The others.
#[must_use]
pub fn all() -> Vec<Choice> {
    let mut all = workloads();
    all.extend([
        Choice::options(2, "queue: EASY backfill", "queue=easy"),
        Choice::options(2, "queue: greedy skip", "queue=greedy"),
        Choice::options(3, "placement: spread over nodes", "placement=spread"),
        Choice::options(3, "placement: spread over racks", "placement=spread-racks"),
        Choice::options(4, "sub-node jobs take whole nodes", "sub-node=whole"),
        Choice::options(5, "node counts rounded down", "rounding=down"),
        Choice::options(5, "node counts to the nearest", "rounding=nearest"),
        Choice::options(5, "the last node is shared", "last-node=share"),
        Choice::options(6, "nodes: 4 GPUs each", "gpus-per-node=4"),
        Choice::options(7, "class before: ideal fit", "class-before=ideal"),
        Choice::options(7, "class before: at the start", "class-before=at-start"),
        Choice::options(8, "one node: no placement factor", "single-node=neutral"),
        Choice::options(9, "speed-up 0%", "speedup=0%"),
        Choice::options(9, "speed-up 137%", "speedup=137%"),
        Choice::options(9, "slow-down as lost throughput", "slowdown-form=slower"),
        Choice::options(9, "stretched by 1/(1-r) always", "stretch=nominal"),
    ]);
    all.extend(measures());
    all.extend([
        Choice::options(13, "first 14 days not measured", "warmup-days=14"),
        Choice::options(
            14,
            "cancelled and failed keep their time",
            "ended=as-recorded",
        ),
    ]);
    for (name, seeds_on) in [("another seed", 1), ("a third seed", 2)] {
        all.push(Choice {
            seeds_on,
            ..Choice::with(17, name)
        });
    }
    all.push(Choice {
        racks: (71.5, 75.5),
        ..Choice::with(18, "71.5 and 75.5 racks")
    });
    all
}

fn workloads() -> Vec<Choice> {
    let arriving = |name, arrivals| Choice {
        arrivals,
        ..Choice::with(1, name)
    };
    vec![
        Choice {
            states: &[],
            ..Choice::with(1, "filter: all jobs that ran")
        },
        Choice {
            states: &[],
            min_run_s: 600.0,
            ..Choice::with(1, "filter: all that ran 10 minutes")
        },
        Choice {
            states: &[State::Completed, State::Failed],
            ..Choice::with(1, "filter: completed and failed")
        },
        Choice {
            min_run_s: 600.0,
            ..Choice::with(1, "filter: completed, 10 minutes")
        },
        arriving("arrivals: batches, no chains", Arrivals::Batched),
        arriving("arrivals: independent", Arrivals::Poisson),
        // Two choices at once: where the real jobs say that completed jobs alone cannot be meant.
        Choice {
            states: &[],
            ..arriving("all jobs, in batches", Arrivals::Batched)
        },
        Choice {
            states: &[],
            ..arriving("all jobs, independent", Arrivals::Poisson)
        },
    ]
}

fn measures() -> [Choice; 6] {
    [
        Choice {
            traffic: Traffic::Several,
            ..Choice::with(10, "traffic: racks of jobs on several")
        },
        Choice {
            traffic: Traffic::Crossings,
            ..Choice::with(10, "traffic: racks beyond the first")
        },
        Choice {
            throughput: Throughput::JobsPerHour,
            ..Choice::with(11, "throughput: jobs per hour")
        },
        Choice {
            throughput: Throughput::JobsPerGpuHour,
            ..Choice::with(11, "throughput: jobs per GPU hour")
        },
        Choice {
            queue_of_eligible: true,
            ..Choice::with(12, "queue: of eligible jobs")
        },
        Choice::options(12, "run ends at the last submission", "until=last-submit"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_changes_something_and_can_be_simulated() {
        let usual = scenario(&Choice::usual(), 1);
        for choice in all() {
            let made = usual.changed(choice.options).unwrap();
            assert_eq!(made.check(), Ok(()), "{}", choice.name);
            let same = format!("{made:?}") == format!("{usual:?}");
            assert_eq!(same, choice.options.is_empty(), "{}", choice.name);
        }
    }
}
