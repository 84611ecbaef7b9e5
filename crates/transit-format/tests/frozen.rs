//! Files written by each version of the formats are kept in `fixtures/formats` and must read to
//! the same values for ever. `TRANSIT_BLESS=1` writes those of the current version anew, which is
//! right only before that version is released.

#[path = "common/samples.rs"]
mod samples;

use std::path::{Path, PathBuf};
use std::sync::Once;

use transit_format::trace::{End, Trace, Writer};
use transit_format::{plan, trace};

fn sample(name: &str) -> PathBuf {
    static BLESSED: Once = Once::new();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats");
    if std::env::var_os("TRANSIT_BLESS").is_some_and(|value| value == "1") {
        BLESSED.call_once(|| bless(&folder));
    }
    folder.join(name)
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn bless(folder: &Path) {
    std::fs::write(folder.join("v1.trace.zst"), write_trace()).unwrap();
    let plan = std::fs::File::create(folder.join("v1.plan")).unwrap();
    plan::write(&samples::plan(), plan).unwrap();
}

/// The sample trace: two blocks of events.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn write_trace() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &samples::header()).unwrap();
    for events in samples::events() {
        for event in events {
            writer.push(event).unwrap();
        }
        writer.flush_block().unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn the_trace_of_version_1_reads_to_the_same_values() {
    let path = sample("v1.trace.zst");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace, samples::trace());
    assert_eq!(trace.end, End::Clean);
}

#[test]
fn traces_of_early_builds_read_to_the_same_values_less_the_check() {
    let mut expected = samples::trace();
    expected.totals.check = None;
    for early in ["v1-distance.trace.zst", "v1-unchecked.trace.zst"] {
        assert_eq!(Trace::open(&sample(early)).unwrap(), expected, "{early}");
    }
}

#[test]
fn the_plan_of_version_1_reads_to_the_same_values() {
    let path = sample("v1.plan");
    assert_eq!(plan::read(&path).unwrap(), samples::plan());
}

#[test]
fn todays_writers_write_what_the_samples_hold() {
    // Not to the byte for a trace: another release of zstd may find a shorter frame.
    let bytes = write_trace();
    let content = |bytes: &[u8]| zstd::decode_all(bytes).unwrap();
    assert_eq!(
        content(&bytes),
        content(&std::fs::read(sample("v1.trace.zst")).unwrap())
    );
    let mut bytes = Vec::new();
    plan::write(&samples::plan(), &mut bytes).unwrap();
    assert_eq!(bytes, std::fs::read(sample("v1.plan")).unwrap());
}

#[test]
fn every_version_has_its_samples() {
    for version in 1..=u32::from(trace::VERSION) {
        assert!(sample(&format!("v{version}.trace.zst")).exists());
    }
    for version in 1..=plan::VERSION {
        assert!(sample(&format!("v{version}.plan")).exists());
    }
}
