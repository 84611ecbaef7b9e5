//! The exported symbols. `exports.txt` beside the crate's manifest lists them for readers and for
//! the test that compares it with the built library.

use transit_hook::settings::Settings;

use crate::director::{DIRECTOR, PREFIX};

/// Runs once, at the first look-up of a driver function or the first `cuInit`.
fn set_up() {
    let settings = Settings::from_env(PREFIX);
    DIRECTOR.configure(settings.clone());
    transit_hook::install(&DIRECTOR, settings);
}

transit_hook::export_all!(set_up);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_list_for_readers_is_the_list_of_the_code() {
        let listed: BTreeSet<&str> = include_str!("../exports.txt")
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let defined: BTreeSet<&str> = transit_hook::EXPORTS.iter().copied().collect();
        assert_eq!(listed, defined);
    }
}
