//! What the launchers tell the shims, read from the environment once, before the first hooked
//! call. The table below is the whole interface; no other variable is read by a shim.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `TRANSIT_DISABLE` | set and not `0`: the shim does nothing at all | unset |
//! | `TRANSIT_MIN_BYTES` | smallest request converted to managed memory, bytes | 2 MiB |
//! | `TRANSIT_NO_OVERSUBSCRIBE` | set and not `0`: never more memory than the card has free | unset |
//! | `TRANSIT_CEILING_BYTES` | upper bound of converted bytes | device + host |
//! | `TRANSIT_EXCLUDE` | more libraries whose allocations stay as they are, comma-separated | unset |
//! | `TRANSIT_INCLUDE` | libraries taken off the list of those that are left alone by default | unset |
//! | `TRANSIT_EXCLUDE_FILE` | file of exclusion rules, read at the start and added to | unset |
//! | `TRANSIT_POOLS` | `0`: stream-ordered memory is not converted | converted, where managed pools are |
//! | `TRANSIT_POPULATE` | `0`: first uses populate converted memory | when it is made, if all fits |
//! | `TRANSIT_LOCK_DIR` | folder of the locks by which converting processes see each other | `/tmp` |
//! | `TRANSIT_QUIET` | set and not `0`: no line but errors | unset |
//! | `TRANSIT_TRACE` | trace file to write, a path template | unset |
//! | `TRANSIT_SKIP` | recorder: ops or iterations before the window | 0 |
//! | `TRANSIT_ITERATIONS` | recorder: length of the window | unset |
//! | `TRANSIT_MAX_BYTES` | recorder: size at which the trace ends | unset |
//! | `TRANSIT_HBM_LIMIT_BYTES` | recorder: size of the emulated card | unset |
//! | `TRANSIT_BURSTS` | recorder, an experiment: set and not `0`: device times in bursts | unset |
//! | `TRANSIT_FAULTS` | recorder: set and not `0`: fault and remote-map records | unset |
//! | `TRANSIT_PLAN` | replayer: plan file, a path template | unset |
//! | `TRANSIT_STATS_JSON` | replayer: file for the exit statistics | unset |
//!
//! Path templates hold `{rank}`, `{local_rank}`, `{host}` and `{pid}`; the shims fill them in.

use std::env;

/// Requests below this stay device memory: the driver moves memory in 2 MiB chunks.
pub const DEFAULT_MIN_BYTES: u64 = 2 << 20;

/// The table of the module's documentation, as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// First word of every line on stderr: `transit-record` or `transit-replay`.
    pub prefix: &'static str,
    /// `TRANSIT_DISABLE`.
    pub disable: bool,
    /// `TRANSIT_MIN_BYTES`.
    pub min_bytes: u64,
    /// `TRANSIT_NO_OVERSUBSCRIBE`.
    pub no_oversubscribe: bool,
    /// `TRANSIT_CEILING_BYTES`.
    pub ceiling_bytes: Option<u64>,
    /// `TRANSIT_EXCLUDE`, split.
    pub exclude: Vec<String>,
    /// `TRANSIT_INCLUDE`, split.
    pub include: Vec<String>,
    /// `TRANSIT_EXCLUDE_FILE`.
    pub exclude_file: Option<String>,
    /// `TRANSIT_POOLS`.
    pub pools: bool,
    /// `TRANSIT_POPULATE`.
    pub populate: bool,
    /// `TRANSIT_LOCK_DIR`.
    pub lock_dir: String,
    /// `TRANSIT_QUIET`.
    pub quiet: bool,
    /// `TRANSIT_TRACE`.
    pub trace: Option<String>,
    /// `TRANSIT_SKIP`.
    pub skip: u64,
    /// `TRANSIT_ITERATIONS`.
    pub iterations: Option<u64>,
    /// `TRANSIT_MAX_BYTES`.
    pub max_bytes: Option<u64>,
    /// `TRANSIT_HBM_LIMIT_BYTES`.
    pub hbm_limit_bytes: Option<u64>,
    /// `TRANSIT_BURSTS`.
    pub bursts: bool,
    /// `TRANSIT_FAULTS`.
    pub faults: bool,
    /// `TRANSIT_PLAN`.
    pub plan: Option<String>,
    /// `TRANSIT_STATS_JSON`.
    pub stats_json: Option<String>,
    /// Variables whose value could not be read and was left at its default.
    pub unreadable: Vec<String>,
}

impl Settings {
    /// Reads the environment. `prefix` opens every line the shim prints.
    #[must_use]
    pub fn from_env(prefix: &'static str) -> Self {
        Self::from_lookup(prefix, &|name| env::var(name).ok())
    }

    /// The same from any source of variables.
    #[must_use]
    pub fn from_lookup(prefix: &'static str, look_up: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut unreadable = Vec::new();
        let text = |name: &str| look_up(name).filter(|value| !value.is_empty());
        let flag = |name: &str| text(name).is_some_and(|value| value != "0");
        let mut number = |name: &str| {
            let value = text(name)?;
            let parsed = value.trim().parse::<u64>();
            if parsed.is_err() {
                unreadable.push(format!("{name}={value}"));
            }
            parsed.ok()
        };
        let min_bytes = number("TRANSIT_MIN_BYTES").unwrap_or(DEFAULT_MIN_BYTES);
        let ceiling_bytes = number("TRANSIT_CEILING_BYTES");
        let skip = number("TRANSIT_SKIP").unwrap_or(0);
        let iterations = number("TRANSIT_ITERATIONS");
        let max_bytes = number("TRANSIT_MAX_BYTES");
        let hbm_limit_bytes = number("TRANSIT_HBM_LIMIT_BYTES");
        Self {
            prefix,
            disable: flag("TRANSIT_DISABLE"),
            min_bytes,
            no_oversubscribe: flag("TRANSIT_NO_OVERSUBSCRIBE"),
            ceiling_bytes,
            exclude: split(&text("TRANSIT_EXCLUDE").unwrap_or_default()),
            include: split(&text("TRANSIT_INCLUDE").unwrap_or_default()),
            exclude_file: text("TRANSIT_EXCLUDE_FILE"),
            pools: text("TRANSIT_POOLS").is_none_or(|value| value != "0"),
            populate: text("TRANSIT_POPULATE").is_none_or(|value| value != "0"),
            lock_dir: text("TRANSIT_LOCK_DIR").unwrap_or_else(|| "/tmp".to_owned()),
            quiet: flag("TRANSIT_QUIET"),
            trace: text("TRANSIT_TRACE"),
            skip,
            iterations,
            max_bytes,
            hbm_limit_bytes,
            bursts: flag("TRANSIT_BURSTS"),
            faults: flag("TRANSIT_FAULTS"),
            plan: text("TRANSIT_PLAN"),
            stats_json: text("TRANSIT_STATS_JSON"),
            unreadable,
        }
    }
}

fn split(list: &str) -> Vec<String> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Settings {
        Settings::from_lookup("transit-test", &|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_gives_the_documented_defaults() {
        let settings = read(&[]);
        assert!(!settings.disable && !settings.no_oversubscribe && !settings.quiet);
        assert_eq!(settings.min_bytes, 2 << 20);
        assert_eq!(settings.ceiling_bytes, None);
        assert!(settings.exclude.is_empty() && settings.unreadable.is_empty());
        assert!(settings.pools && settings.include.is_empty());
        assert!(!read(&[("TRANSIT_POOLS", "0")]).pools);
        assert!(settings.populate && !read(&[("TRANSIT_POPULATE", "0")]).populate);
    }

    #[test]
    fn zero_and_empty_are_off_anything_else_is_on() {
        assert!(!read(&[("TRANSIT_DISABLE", "0")]).disable);
        assert!(!read(&[("TRANSIT_DISABLE", "")]).disable);
        assert!(read(&[("TRANSIT_DISABLE", "1")]).disable);
        assert!(read(&[("TRANSIT_NO_OVERSUBSCRIBE", "yes")]).no_oversubscribe);
    }

    #[test]
    fn a_number_that_is_none_is_named_and_left_at_its_default() {
        let settings = read(&[("TRANSIT_MIN_BYTES", "2MiB"), ("TRANSIT_SKIP", "7")]);
        assert_eq!(settings.min_bytes, 2 << 20);
        assert_eq!(settings.skip, 7);
        assert_eq!(settings.unreadable, ["TRANSIT_MIN_BYTES=2MiB"]);
    }

    #[test]
    fn the_exclusion_list_is_split_and_trimmed() {
        let settings = read(&[("TRANSIT_EXCLUDE", " libucx.so, ,libfoo.so ")]);
        assert_eq!(settings.exclude, ["libucx.so", "libfoo.so"]);
    }
}
