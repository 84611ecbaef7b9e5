//! Our value of each headline number under one reading of the paper.

use serde::Serialize;

use super::choices::{self, Choice};
use super::numbers::{COUNT, Headline};
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

impl Answers {
    /// Our value of a number, if there is anything to compare.
    #[must_use]
    pub fn get(&self, number: Headline) -> Option<f64> {
        self.values.get(number as usize).copied().flatten()
    }

    fn put(&mut self, number: Headline, value: Option<f64>) {
        if let Some(place) = self.values.get_mut(number as usize) {
            *place = value;
        }
    }
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

fn on_seren(side: &Side<'_>, answers: &mut Answers) -> Result<(), String> {
    let choice = side.choice;
    let racks = choice.racks.0;
    let traffic =
        |from: &Group, to: &Group| percent(choice.traffic_of(from), choice.traffic_of(to));
    let ([before, quarter, half], outcomes) = side.three(racks, "")?;
    answers.put(
        Headline::SerenTraffic8At25,
        traffic(&before.eligible, &quarter.eligible),
    );
    answers.put(
        Headline::SerenTraffic8At50,
        traffic(&before.eligible, &half.eligible),
    );
    // Small nodes only matter to the workload and to what counts as traffic.
    if matches!(choice.item, 0 | 1 | 10) {
        let ([four, quarter, half], _) = side.three(racks, "gpus-per-node=4")?;
        answers.put(
            Headline::SerenTraffic4At25,
            traffic(&four.eligible, &quarter.eligible),
        );
        answers.put(
            Headline::SerenTraffic4At50,
            traffic(&four.eligible, &half.eligible),
        );
    }
    answers.put(
        Headline::SerenQueueAt25,
        percent(side.queue(&before), side.queue(&quarter)),
    );
    answers.put(
        Headline::SerenQueueAt50,
        percent(side.queue(&before), side.queue(&half)),
    );
    let single = half.became_single_node as f64 / half.eligible.jobs.max(1) as f64;
    answers.put(Headline::SerenOneNode, Some(100.0 * single));
    let small = side.run(32.0, "reduction=50%", Some(&outcomes))?.metrics;
    let small_before = side.run(32.0, "", None)?.metrics;
    let (from, to) = (&before.eligible, &small.eligible);
    answers.put(
        Headline::SmallThroughput,
        percent(choice.throughput_of(from), choice.throughput_of(to)),
    );
    answers.put(
        Headline::SmallQueue,
        percent(from.queue.mean_s, to.queue.mean_s),
    );
    answers.put(
        Headline::SmallQueueOf32,
        percent(small_before.eligible.queue.mean_s, to.queue.mean_s),
    );
    answers.put(Headline::SmallTraffic, traffic(from, to));
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
    answers.put(Headline::KalosTrafficAt25, traffic(&before, &quarter));
    answers.put(Headline::KalosTrafficAt50, traffic(&before, &half));
    answers.put(
        Headline::KalosQueue,
        Some(side.queue(&half) - side.queue(&before)),
    );
    answers.put(
        Headline::KalosIdleAt25,
        percent(before.idle_gpu_hours, quarter.idle_gpu_hours),
    );
    answers.put(
        Headline::KalosIdleAt50,
        percent(before.idle_gpu_hours, half.idle_gpu_hours),
    );
    answers.waits_before_s[1] = side.queue(&before);
    let ([before, quarter, half], outcomes) = side.three(32.0, "")?;
    answers.put(
        Headline::SmallKalosQueueAt25,
        percent(side.queue(&before), side.queue(&quarter)),
    );
    answers.put(
        Headline::SmallKalosQueueAt50,
        percent(side.queue(&before), side.queue(&half)),
    );
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
