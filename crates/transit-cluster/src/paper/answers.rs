//! Our value of each headline number under one reading of the paper.

use serde::Serialize;

use super::choices::{self, Choice};
use super::numbers::COUNT;
use crate::engine::Outcome;
use crate::metrics::{Group, Metrics};
use crate::render::units::relative;
use crate::scenario::Scenario;
use crate::simulate::{self, Run};
use crate::trace::Trace;

/// Our values, in the order of [`super::numbers::NUMBERS`]; `None` where nothing can be compared.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// The values.
    pub values: [Option<f64>; COUNT],
    /// Kalos on 32 racks, r=50%: points between the cuts in queue time at speed-ups 0 and 137 %.
    pub speedup_effect: Option<f64>,
    /// Mean queue in seconds before scale-in: Seren on 72, Kalos on 76, Kalos on 32.
    pub waits_before_s: [f64; 3],
}

/// One cluster and trace under one choice.
struct Side<'a> {
    choice: &'a Choice,
    trace: Trace,
    base: Scenario,
}

impl Side<'_> {
    fn run(&self, racks: f64, options: &str, before: Option<&[Outcome]>) -> Result<Run, String> {
        let scenario = Scenario {
            racks: Some(racks),
            ..self.base.changed(options)?
        };
        simulate::run(&self.trace, &scenario, before, &|_| {})
    }

    /// Metrics at r=0, 25 and 50 %, and where jobs ran at r=0.
    fn three(&self, racks: f64, options: &str) -> Result<([Metrics; 3], Vec<Outcome>), String> {
        let before = self.run(racks, options, None)?;
        let outcomes = before.outcomes;
        let quarter = self.run(racks, &format!("{options} reduction=25%"), Some(&outcomes))?;
        let half = self.run(racks, &format!("{options} reduction=50%"), Some(&outcomes))?;
        Ok(([before.metrics, quarter.metrics, half.metrics], outcomes))
    }

    fn queue(&self, metrics: &Metrics) -> f64 {
        let group = if self.choice.queue_of_eligible {
            &metrics.eligible
        } else {
            &metrics.all
        };
        group.queue.mean_s
    }
}

fn percent(from: f64, to: f64) -> Option<f64> {
    relative(from, to).map(|share| share * 100.0)
}

/// The answers under a choice.
///
/// # Errors
/// If a scenario cannot be simulated, in words.
pub fn answer(choice: &Choice, seren: &Trace, kalos: &Trace, seed: u64) -> Result<Answers, String> {
    let filter = choices::filter(choice);
    let base = choices::scenario(choice, seed);
    let side = |trace: &Trace| Side {
        choice,
        trace: filter.apply(trace, |_| {}),
        base: base.clone(),
    };
    let mut answers = Answers {
        values: [None; COUNT],
        speedup_effect: None,
        waits_before_s: [0.0; 3],
    };
    on_seren(&side(seren), &mut answers)?;
    on_kalos(&side(kalos), &mut answers)?;
    Ok(answers)
}

fn put(answers: &mut Answers, at: usize, value: Option<f64>) {
    if let Some(place) = answers.values.get_mut(at) {
        *place = value;
    }
}

fn on_seren(side: &Side<'_>, answers: &mut Answers) -> Result<(), String> {
    let choice = side.choice;
    let racks = choice.racks.0;
    let traffic =
        |from: &Group, to: &Group| percent(choice.traffic_of(from), choice.traffic_of(to));
    let ([before, quarter, half], outcomes) = side.three(racks, "")?;
    put(answers, 0, traffic(&before.eligible, &quarter.eligible));
    put(answers, 1, traffic(&before.eligible, &half.eligible));
    // Small nodes only matter to the workload and to what counts as traffic.
    if matches!(choice.item, 0 | 1 | 10) {
        let ([four, quarter, half], _) = side.three(racks, "gpus-per-node=4")?;
        put(answers, 2, traffic(&four.eligible, &quarter.eligible));
        put(answers, 3, traffic(&four.eligible, &half.eligible));
    }
    put(
        answers,
        4,
        percent(side.queue(&before), side.queue(&quarter)),
    );
    put(answers, 5, percent(side.queue(&before), side.queue(&half)));
    let single = half.became_single_node as f64 / half.eligible.jobs.max(1) as f64;
    put(answers, 6, Some(100.0 * single));
    let small = side.run(32.0, "reduction=50%", Some(&outcomes))?.metrics;
    let small_before = side.run(32.0, "", None)?.metrics;
    let (from, to) = (&before.eligible, &small.eligible);
    put(
        answers,
        12,
        percent(choice.throughput_of(from), choice.throughput_of(to)),
    );
    put(answers, 13, percent(from.queue.mean_s, to.queue.mean_s));
    put(
        answers,
        14,
        percent(small_before.eligible.queue.mean_s, to.queue.mean_s),
    );
    put(answers, 15, traffic(from, to));
    answers.waits_before_s[0] = side.queue(&before);
    Ok(())
}

fn on_kalos(side: &Side<'_>, answers: &mut Answers) -> Result<(), String> {
    let choice = side.choice;
    let traffic = |from: &Metrics, to: &Metrics| {
        percent(
            choice.traffic_of(&from.eligible),
            choice.traffic_of(&to.eligible),
        )
    };
    let ([before, quarter, half], _) = side.three(choice.racks.1, "")?;
    put(answers, 7, traffic(&before, &quarter));
    put(answers, 8, traffic(&before, &half));
    put(answers, 9, Some(side.queue(&half) - side.queue(&before)));
    put(
        answers,
        10,
        percent(before.idle_gpu_hours, quarter.idle_gpu_hours),
    );
    put(
        answers,
        11,
        percent(before.idle_gpu_hours, half.idle_gpu_hours),
    );
    answers.waits_before_s[1] = side.queue(&before);
    let ([before, quarter, half], outcomes) = side.three(32.0, "")?;
    put(
        answers,
        16,
        percent(side.queue(&before), side.queue(&quarter)),
    );
    put(answers, 17, percent(side.queue(&before), side.queue(&half)));
    answers.waits_before_s[2] = side.queue(&before);
    let cut = |speedup: &str| -> Result<Option<f64>, String> {
        let options = format!("reduction=50% speedup={speedup}");
        let run = side.run(32.0, &options, Some(&outcomes))?;
        Ok(percent(side.queue(&before), side.queue(&run.metrics)))
    };
    answers.speedup_effect = cut("0%")?
        .zip(cut("137%")?)
        .map(|(slow, fast)| (fast - slow).abs());
    Ok(())
}
