//! The exported symbols. `exports.txt` beside the crate's manifest lists them for readers and for
//! the test that compares it with the built library.

use transit_hook::{Settings, injected, state};

use crate::observer::RECORDER;

fn set_up() {
    let mut settings = Settings::from_env("transit-record");
    if injected::injected() {
        // What CUPTI tells of has happened and cannot be changed.
        settings.no_oversubscribe = false;
        settings.ceiling_bytes = None;
        settings.hbm_limit_bytes = None;
        settings.pools = false;
    }
    RECORDER.configure(&settings);
    transit_hook::install(&RECORDER, settings);
}

transit_hook::export_all!(set_up);

/// The driver's call to a library that `CUDA_INJECTION64_PATH` names, within `cuInit`. Preloaded as
/// well, we have the job's calls already and this does nothing. 1: all is well.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the driver's own name")]
extern "C" fn InitializeInjection() -> i32 {
    let _ = std::panic::catch_unwind(|| {
        if injected::preloaded() || injected::injected() {
            return;
        }
        injected::begin();
        state::set_up_once(set_up);
        if state::settings().is_some_and(|settings| settings.disable) {
            return;
        }
        if let Err(why) = state::as_our_own(transit_capture::follow_calls) {
            state::disable(&format!("nothing can be recorded: {why}"));
        }
    });
    1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_list_for_readers_is_the_list_of_the_code() {
        let listed: BTreeSet<&str> = include_str!("../exports.txt")
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let defined: BTreeSet<&str> = transit_hook::EXPORTS
            .iter()
            .copied()
            .chain(["InitializeInjection"])
            .collect();
        assert_eq!(listed, defined);
    }
}
