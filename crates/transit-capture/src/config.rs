//! What a capture is asked for.

use transit_hook::Settings;

/// How to capture; see the settings table of `transit-hook` for the variables behind it.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// First word of every line on stderr.
    pub prefix: &'static str,
    /// No line but errors.
    pub quiet: bool,
    /// Path template of the trace; without one nothing is written.
    pub trace: Option<String>,
    /// Ops before the window.
    pub skip_ops: u64,
    /// Iterations in the window, by [estimate](crate#the-window).
    pub iterations: Option<u64>,
    /// Size at which the window closes.
    pub max_bytes: Option<u64>,
    /// Size of the emulated card, if one is imposed; 0 keeps nothing on it (touch maps).
    pub card_bytes: Option<u64>,
    /// Fault and remote-map records too.
    pub faults: bool,
    /// Device times in bursts, where those of every op would slow the job. An experiment, see
    /// `sampling.rs`.
    pub bursts: bool,
    /// Smallest request that is converted, for the header.
    pub min_convert_bytes: u64,
    /// Policy and plan of a replayed run, for the header.
    pub replayed_policy: Option<String>,
    /// Further facts for the header.
    pub notes: Vec<(String, String)>,
}

impl Config {
    /// A recorder's configuration.
    #[must_use]
    pub fn of_recorder(settings: &Settings) -> Self {
        Self {
            prefix: settings.prefix,
            quiet: settings.quiet,
            trace: settings.trace.clone(),
            skip_ops: settings.skip,
            iterations: settings.iterations,
            max_bytes: settings.max_bytes,
            card_bytes: settings.hbm_limit_bytes,
            faults: settings.faults || settings.hbm_limit_bytes.is_some(),
            bursts: settings.bursts,
            min_convert_bytes: settings.min_bytes,
            replayed_policy: None,
            notes: Vec::new(),
        }
    }

    /// Whether there is anything to capture at all.
    pub(crate) fn wanted(&self) -> bool {
        self.trace.is_some() || self.card_bytes.is_some()
    }
}
