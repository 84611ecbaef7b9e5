//! The recorder: passes on what the hooks see, settles after each op where a card is emulated, and
//! says at the end what it has.

use std::sync::OnceLock;

use transit_capture::{Capture, Config, Outcome, SettleCounts};
use transit_hook::{
    Allocation, Driver, FunctionInfo, Observer, OpCall, Settings, StreamInfo, birth, injected,
};

/// This process' recorder.
#[derive(Debug)]
pub(crate) struct Recorder {
    capture: Capture,
    config: OnceLock<Config>,
}

pub(crate) static RECORDER: Recorder = Recorder {
    capture: Capture::new(),
    config: OnceLock::new(),
};

impl Recorder {
    /// Says what is to be recorded, before anything happens.
    pub(crate) fn configure(&self, settings: &Settings) {
        let mut config = Config::of_recorder(settings);
        if injected::injected() {
            let text = "CUDA_INJECTION64_PATH: calls as CUPTI tells them, nothing converted, so no \
                        migrations; callers unknown; launches are taken to succeed";
            config.notes.push(("way in".to_owned(), text.to_owned()));
        }
        let _ = self.config.set(config);
    }
}

impl Observer for Recorder {
    fn started(&self, driver: &'static Driver) {
        if let Some(config) = self.config.get() {
            RECORDER.capture.start(config.clone(), driver);
        }
    }

    fn function(&self, function: &FunctionInfo<'_>) {
        RECORDER.capture.function(function);
    }

    fn stream(&self, stream: &StreamInfo) {
        RECORDER.capture.stream(stream);
    }

    fn allocated(&self, allocation: &Allocation) {
        RECORDER.capture.allocated(allocation);
    }

    fn freeing(&self, allocation: &Allocation) {
        RECORDER.capture.freeing(allocation);
    }

    fn before_op(&self, op: &OpCall<'_>) -> Option<u64> {
        Some(RECORDER.capture.before_op(op))
    }

    fn after_op(&self, op: &OpCall<'_>, issued: u64, result: u32) {
        RECORDER.capture.after_op(op, issued, result);
        if result == 0 {
            RECORDER.capture.settle(op, issued);
        }
    }

    fn synchronised(&self) {
        RECORDER.capture.synchronised();
    }

    fn capturing(&self, begin: bool) {
        RECORDER.capture.capturing(begin);
    }

    fn populates(&self) -> bool {
        // An emulated card records them too.
        self.config.get().is_some_and(|config| !config.faults)
    }

    fn context_ends(&self) {
        RECORDER.capture.checkpoint();
    }

    fn context_gone(&self, context: usize) {
        RECORDER.capture.context_gone(context);
    }

    fn closing(&self) {
        let outcome = RECORDER.capture.finish();
        let Some(config) = self.config.get().filter(|config| !config.quiet) else {
            return;
        };
        if let Some(outcome) = outcome {
            let counts = RECORDER.capture.settle_counts();
            let text = last_line(&outcome, config.card_bytes.map(|_| counts));
            transit_hook::log::say(format_args!("{text}"));
        }
    }
}

/// What the file holds, and whether it can be trusted: hooks and CUPTI must have seen the same.
fn last_line(outcome: &Outcome, settled: Option<SettleCounts>) -> String {
    let totals = &outcome.totals;
    let name = outcome.path.file_name().unwrap_or(outcome.path.as_os_str());
    let mut text = format!(
        "{}: {} ops, {} migrations, {} KiB",
        name.display(),
        totals.ops,
        outcome.migrations,
        outcome.bytes.div_ceil(1024)
    );
    if let Some(iterations) = outcome.iterations {
        text += &format!(", about {iterations} iterations");
    }
    text += &match &totals.check {
        Some(check) => format!(
            "; {} device records of {}: {}",
            check.recorded(),
            check.hooked(),
            check.verdict(&totals.drops)
        ),
        None => format!(
            "; device records: n/a (no CUPTI, or another tool takes its records); the hooks expect \
             {}",
            totals.hooked_ops
        ),
    };
    if let Some(note) = totals.sampled() {
        text += &format!("; {note}");
    }
    if let Some(counts) = settled {
        text += &format!(
            "; card settled after {} ops, {} put off, {} MiB evicted",
            counts.settled,
            counts.deferred,
            counts.evicted_bytes >> 20
        );
        if counts.refused > 0 {
            text += &format!(", {} evictions refused", counts.refused);
        }
    }
    if birth::populated_bytes() > 0 {
        text += &format!(
            "; {} MiB populated when made",
            birth::populated_bytes() >> 20
        );
    }
    if birth::refused() > 0 {
        text += &format!("; {} allocations not populated", birth::refused());
    }
    let drops = totals.drops;
    for (lost, what) in [
        (drops.ops, "ops"),
        (drops.cupti, "CUPTI records"),
        (drops.unplaced, "transfers outside every allocation"),
        (drops.bad_times, "records with impossible times"),
    ] {
        if lost > 0 {
            text += &format!("; lost: {lost} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use transit_format::trace::check::{Check, Counted};

    use super::*;

    #[test]
    fn the_last_line_says_whether_hooks_and_cupti_agree_and_what_was_lost() {
        let mut outcome = Outcome {
            path: "/d/x.trace.zst".into(),
            ..Outcome::default()
        };
        outcome.totals.ops = 5;
        outcome.totals.hooked_ops = 7;
        let line = last_line(&outcome, None);
        assert!(line.contains("n/a") && line.contains("expect 7"), "{line}");
        let kernels = |confirmed| Counted {
            hooked: 7,
            confirmed,
            unseen: 0,
        };
        let check = |confirmed| Check {
            kernels: kernels(confirmed),
            ..Check::default()
        };
        outcome.totals.check = Some(check(7));
        let line = last_line(&outcome, None);
        assert!(line.starts_with("x.trace.zst: 5 ops"), "{line}");
        assert!(
            line.contains("7 device records of 7: complete") && !line.contains("lost"),
            "{line}"
        );
        outcome.totals.check = Some(check(6));
        outcome.totals.drops.cupti = 1;
        let line = last_line(&outcome, Some(SettleCounts::default()));
        assert!(
            line.contains("6 device records of 7: 1 kernels without a record"),
            "{line}"
        );
        assert!(
            line.contains("lost: 1 CUPTI records") && line.contains("settled"),
            "{line}"
        );
    }
}
