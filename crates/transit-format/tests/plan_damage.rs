//! Plan files that are not plans, are cut, or hold wrong bytes: each is refused with an error that
//! names file, section and offset, and none can make a reader panic.

mod common;

use proptest::prelude::*;
use transit_format::Error;
use transit_format::plan::{View, write};

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn small() -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&common::plans::plan(12, 3), &mut bytes).unwrap();
    bytes
}

/// Calls every accessor.
fn walk(view: &View) {
    let _ = (
        view.shape(),
        view.meta_json(),
        view.names().count(),
        view.placements().len(),
    );
    let _ = view.to_plan("walked");
    for stream in (0..3).map(transit_format::ids::StreamId) {
        for op in view.ops(stream) {
            let _ = (view.name(op.name()), view.pointers(op).len());
            view.steps(op)
                .iter()
                .for_each(|step| drop(view.ranges(step).to_vec()));
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let bytes = small();
    for length in 0..bytes.len() {
        match View::from_bytes(bytes[..length].to_vec(), "cut.plan") {
            Err(Error::Truncated { file, .. }) => assert_eq!(file, "cut.plan"),
            Err(error) => panic!("{length}: {error}"),
            Ok(_) => panic!("accepted {length} of {} bytes", bytes.len()),
        }
    }
    let longer = [bytes, vec![0; 8]].concat();
    assert!(
        View::from_bytes(longer, "long.plan")
            .unwrap_err()
            .is_damage()
    );
}

#[test]
fn every_bit_flip_is_refused() {
    let bytes = small();
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let error = View::from_bytes(bad, "bad.plan").expect_err(&format!("byte {at}"));
        assert!(error.to_string().starts_with("bad.plan: "), "{error}");
    }
}

#[test]
fn foreign_newer_and_missing_files_are_told_apart() {
    let text = |bytes: &[u8]| {
        View::from_bytes(bytes.to_vec(), "x")
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        text(b"{\"plan\": 1}"),
        "x: not a TRANSIT plan: it does not begin with TRNSPLAN"
    );
    let mut newer = small();
    newer[8] = 2;
    assert!(
        text(&newer).contains("newer TRANSIT (plan format 2, "),
        "{}",
        text(&newer)
    );
    assert!(text(b"").contains("cut short"), "{}", text(b""));

    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(
        View::open(file.path()),
        Err(Error::Truncated { .. })
    ));
    let missing = View::open(std::path::Path::new("no/such.plan")).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }) && missing.to_string().contains("no/such.plan"));
}

#[test]
fn a_plan_truncated_under_an_open_view_stays_readable() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), small()).unwrap();
    let view = View::open(file.path()).unwrap();
    std::fs::File::create(file.path()).unwrap();
    assert_eq!(view.to_plan("gone").unwrap(), common::plans::plan(12, 3));
}

/// Makes the checksums of a damaged plan right again, so that damage reaches deeper checks.
fn resign(file: &mut [u8]) -> Option<()> {
    for entry in (64..448).step_by(32) {
        let word = |at: usize| {
            file.get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_le_bytes)
        };
        let record = word(entry)? >> 32;
        let (first, count) = (
            word(entry + 8)? as usize,
            word(entry + 16)?.checked_mul(record)?,
        );
        if let Some(bytes) = file
            .get(first..)
            .and_then(|rest| rest.get(..count as usize))
        {
            let crc = crc32fast::hash(bytes);
            file.get_mut(entry + 24..entry + 28)?
                .copy_from_slice(&crc.to_le_bytes());
        }
    }
    file.get_mut(24..28)?.fill(0);
    let crc = crc32fast::hash(file.get(..448)?);
    file.get_mut(24..28)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(view) = View::from_bytes(bytes.clone(), "noise") {
            walk(&view);
        }
        let mut plan = b"TRNSPLAN\x01\x00\x00\x00\x0c\x00\x00\x00".to_vec();
        plan.extend(bytes);
        if let Ok(view) = View::from_bytes(plan, "noise") {
            walk(&view);
        }
    }

    #[test]
    fn no_signed_damage_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = small();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        resign(&mut bytes);
        if let Ok(view) = View::from_bytes(bytes, "signed") {
            walk(&view);
        }
    }
}
