//! The panels of the paper's Figure 12, drawn from our runs.

use super::Study;
use super::grid::{Cell, REDUCTIONS, SPEEDUPS};
use super::numbers::Headline;
use crate::cluster::Placement;
use crate::metrics::{Group, Metrics};
use crate::render::chart::{Content, Figure, Panel};
use crate::render::units::relative;

type Value = fn(&Metrics) -> f64;

/// Figure 12: (a) Seren on 72 racks, (b) on 32 racks against 72.
#[must_use]
pub fn figure(study: &Study) -> Figure {
    let numbers: [(&str, &str, Value); 3] = [
        ("rack traffic", "change in %", |m| {
            m.eligible.traffic.racks as f64
        }),
        ("throughput per GPU and job", "change in %", |m| {
            eligible(m).speed
        }),
        ("racks of jobs on several", "change in %", |m| {
            m.eligible.traffic.multi_rack as f64
        }),
    ];
    let mut panels: Vec<Panel> = numbers
        .iter()
        .map(|(name, y, value)| {
            panel(
                &format!("(a) Seren, 72 racks: {name}"),
                y,
                clusters(study, *value),
            )
        })
        .collect();
    let small = || study.grid.iter().filter(|cell| cell.racks == 32.0);
    let changes = numbers
        .iter()
        .map(|(name, _, value)| ((*name).to_owned(), bars(small(), *value)));
    panels.push(panel(
        "(b) Seren, 32 racks against 72",
        "change in %",
        changes.collect(),
    ));
    panels.push(panel(
        "(b) Mean queue of eligible jobs",
        "minutes",
        waits(study),
    ));
    panels.push(panel(
        "Kalos: change of the mean queue, all jobs",
        "change in %",
        kalos(study),
    ));
    let series = REDUCTIONS.iter().flat_map(|&r| {
        SPEEDUPS.map(|s| {
            format!(
                "{}% fewer nodes, speed-up {}%",
                r * 100.0,
                (s * 100.0).round()
            )
        })
    });
    Figure {
        title: format!(
            "Scale-in on Seren and Kalos (generated from seed {})",
            study.seed
        ),
        names: series.collect(),
        panels,
        columns: 3,
    }
}

fn eligible(metrics: &Metrics) -> &Group {
    &metrics.eligible
}

fn panel(title: &str, y: &str, groups: Vec<(String, Vec<Option<f64>>)>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: String::new(),
        y: y.to_owned(),
        content: Content::Bars(groups),
    }
}

fn bars<'a>(cells: impl Iterator<Item = &'a Cell>, value: Value) -> Vec<Option<f64>> {
    let change = |cell: &Cell| relative(value(&cell.before), value(&cell.after));
    cells
        .map(|cell| change(cell).map(|share| share * 100.0))
        .collect()
}

fn clusters(study: &Study, value: Value) -> Vec<(String, Vec<Option<f64>>)> {
    let mut groups = Vec::new();
    for gpus_per_node in [8, 4] {
        for placement in [Placement::Pack, Placement::Spread] {
            let of = |cell: &&Cell| {
                cell.racks > 32.0
                    && cell.gpus_per_node == gpus_per_node
                    && cell.placement == placement
            };
            let word = if placement == Placement::Pack {
                "packed"
            } else {
                "spread"
            };
            let name = format!("{gpus_per_node} per node, {word}");
            groups.push((name, bars(study.grid.iter().filter(of), value)));
        }
    }
    groups
}

/// Absolute waits: a change from next to nothing would hide all others.
fn waits(study: &Study) -> Vec<(String, Vec<Option<f64>>)> {
    let small: Vec<&Cell> = study
        .grid
        .iter()
        .filter(|cell| cell.racks == 32.0)
        .collect();
    let minutes = |m: &Metrics| Some(eligible(m).queue.mean_s / 60.0);
    let before = small.iter().map(|cell| minutes(&cell.before)).collect();
    let after = small.iter().map(|cell| minutes(&cell.after)).collect();
    vec![
        ("72 racks, before".to_owned(), before),
        ("32 racks".to_owned(), after),
    ]
}

fn kalos(study: &Study) -> Vec<(String, Vec<Option<f64>>)> {
    let quarter = study.ours.get(Headline::SmallKalosQueueAt25);
    let half = study.ours.get(Headline::SmallKalosQueueAt50);
    // The series are reductions by speed-ups; Kalos is run at the middle speed-up.
    let row = |quarter, half| vec![None, quarter, None, None, half, None];
    vec![("32 racks both".to_owned(), row(quarter, half))]
}
