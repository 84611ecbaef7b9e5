//! The study as text: paper | ours | difference, what each number hangs on, and the sensitivity to every
//! choice.

use super::Study;
use super::answers::Answers;
use super::choices::Choice;
use super::numbers::{Headline, NUMBERS, Number, Verdict};
use crate::render::table::Rows;
use crate::render::units::{number, seconds};

/// The whole report.
#[must_use]
pub fn text(study: &Study) -> String {
    let mut text = headline(study);
    text.push('\n');
    text.push_str(&further(study));
    text.push('\n');
    text.push_str(&reasons(study));
    text.push('\n');
    text.push_str(&sensitivity(study));
    text
}

fn paper_value(n: &Number) -> String {
    if n.low == n.high {
        signed(n.low)
    } else {
        format!("{} to {}", signed(n.low), signed(n.high))
    }
}

fn signed(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let sign = if value > 0.0 { "+" } else { "" };
        return format!("{sign}{}", number(value));
    }
    let text = format!("{value:+.1}");
    if text == "-0.0" || text == "+0.0" {
        "0.0".to_owned()
    } else {
        text
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), signed)
}

/// The readings under which a number is lowest and highest, and nearest to the paper's.
fn spread(study: &Study, n: &Number) -> (String, String) {
    let all: Vec<(f64, &str)> = values(study, n.id).collect();
    let low = all.iter().map(|v| v.0).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
    let off = |v: &&(f64, &str)| n.difference(v.0).abs();
    let Some((v, name)) = all.iter().min_by(|a, b| off(a).total_cmp(&off(b))) else {
        return ("-".to_owned(), "none".to_owned());
    };
    (
        format!("{} to {}", signed(low), signed(high)),
        format!("{} with {name}", signed(*v)),
    )
}

fn values(study: &Study, id: Headline) -> impl Iterator<Item = (f64, &'static str)> {
    let ours = std::iter::once(("ours", &study.ours));
    let others = study
        .others
        .iter()
        .map(|(choice, answers)| (choice.name, answers));
    ours.chain(others)
        .filter_map(move |(name, answers)| Some((answers.get(id)?, name)))
}

fn verdict(n: &Number, value: Option<f64>) -> &'static str {
    match value.map(|value| n.verdict(value)) {
        Some(Verdict::Agrees) => "agrees",
        Some(Verdict::SameSign) => "same sign",
        Some(Verdict::Differs) => "differs",
        None => "no queue to compare",
    }
}

fn headline(study: &Study) -> String {
    let heading = [
        "",
        "number",
        "paper",
        "ours",
        "difference",
        "",
        "over all choices",
        "hangs on",
    ];
    let mut rows = Rows::new(heading).text_columns([1, 5, 7]);
    for n in &NUMBERS {
        let value = study.ours.get(n.id);
        rows.push([
            n.row.to_string(),
            format!("{} ({})", n.what, n.unit),
            paper_value(n),
            shown(value),
            shown(value.map(|value| n.difference(value))),
            verdict(n, value).to_owned(),
            spread(study, n).0,
            n.hangs_on.to_owned(),
        ]);
    }
    rows.render()
}

/// Claims that are no single number.
fn further(study: &Study) -> String {
    let traffic = |cell: &super::grid::Cell| {
        let (from, to) = (
            cell.before.eligible.traffic.racks,
            cell.after.eligible.traffic.racks,
        );
        100.0 * (to as f64 - from as f64) / from.max(1) as f64
    };
    let full: Vec<&super::grid::Cell> = study.grid.iter().filter(|c| c.racks > 32.0).collect();
    // Six cells by cluster: three speed-ups at 25 %, then three at 50 %.
    let by_cluster = || full.chunks(6);
    let range = |cells: &[&super::grid::Cell]| {
        let all: Vec<f64> = cells.iter().map(|cell| traffic(cell)).collect();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        all.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low
    };
    let grows = by_cluster().all(|cells| match cells {
        [a, b, c, d, e, f] => [(a, d), (b, e), (c, f)]
            .iter()
            .all(|(q, h)| traffic(h) < traffic(q)),
        _ => false,
    });
    let widest = by_cluster()
        .flat_map(|cells| cells.chunks(3))
        .map(range)
        .fold(0.0, f64::max);
    let real = study.real_kalos_waits_s;
    let effect = study.ours.speedup_effect;
    let [seren, kalos, small] = study.ours.waits_before_s;
    format!(
        "1  rack traffic falls further at 50% than at 25% in all four configurations: {}\n\
         1  it moves by at most {widest:.2} points between speed-ups 0% and 137%\n\
         7  Kalos, 32 racks, r=50%: the cut in queue time moves by {} points between them\n\
         7  Kalos, 32 racks, the 319 real jobs (completed): mean queue {} before, {} at r=25%, {} at r=50%\n\
         mean queue before scale-in: Seren on 72 racks {}, Kalos on 76 {}, Kalos on 32 {}\n",
        if grows { "yes" } else { "no" },
        effect.map_or_else(|| "-".to_owned(), |points| format!("{points:.2}")),
        seconds(real[0]),
        seconds(real[1]),
        seconds(real[2]),
        seconds(seren),
        seconds(kalos),
        seconds(small),
    )
}

fn reasons(study: &Study) -> String {
    let mut text = String::from("Where ours differ, why, and what would be needed:\n");
    for n in &NUMBERS {
        let value = study.ours.get(n.id);
        let agrees = value.is_some_and(|value| n.verdict(value) == Verdict::Agrees);
        if agrees {
            continue;
        }
        text.push_str(&format!(
            "  {}  {}: {}\n",
            n.row,
            n.what.trim(),
            shown(value)
        ));
        if !n.reason.is_empty() {
            text.push_str(&format!("       {}\n", n.reason));
        }
        let (_, nearest) = spread(study, n);
        text.push_str(&format!("       nearest: {nearest}\n"));
    }
    text
}

/// Columns of the sensitivity table: short headings of numbers.
const COLUMNS: [(&str, Headline); 14] = [
    ("S72 traf25", Headline::SerenTraffic8At25),
    ("traf50", Headline::SerenTraffic8At50),
    ("queue25", Headline::SerenQueueAt25),
    ("queue50", Headline::SerenQueueAt50),
    ("one node", Headline::SerenOneNode),
    ("K76 traf25", Headline::KalosTrafficAt25),
    ("traf50", Headline::KalosTrafficAt50),
    ("idle50", Headline::KalosIdleAt50),
    ("S32 thrpt", Headline::SmallThroughput),
    ("queue", Headline::SmallQueue),
    ("q.of 32", Headline::SmallQueueOf32),
    ("traf", Headline::SmallTraffic),
    ("K32 queue25", Headline::SmallKalosQueueAt25),
    ("queue50", Headline::SmallKalosQueueAt50),
];

fn sensitivity(study: &Study) -> String {
    let mut heading = vec!["one choice changed (% against the baseline)".to_owned()];
    heading.extend(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = Rows::new(heading);
    let row = |name: String, answers: &Answers| {
        let mut row = vec![name];
        row.extend(COLUMNS.iter().map(|&(_, id)| shown(answers.get(id))));
        row
    };
    let paper = |id: Headline| {
        let number = NUMBERS.iter().find(|number| number.id == id);
        number.map(paper_value).unwrap_or_default()
    };
    let mut first = vec!["paper".to_owned()];
    first.extend(
        COLUMNS
            .iter()
            .map(|&(_, id)| paper(id).replace(" to ", "..")),
    );
    rows.push(first);
    rows.push(row(
        "ours: completed, FIFO, packed, racks up".to_owned(),
        &study.ours,
    ));
    for (choice, answers) in &study.others {
        rows.push(row(numbered(choice), answers));
    }
    rows.render()
}

fn numbered(choice: &Choice) -> String {
    format!("{:>2} {}", choice.item, choice.name)
}
