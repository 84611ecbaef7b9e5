//! The exported symbols. `exports.txt` beside the crate's manifest lists them for readers and for
//! the test that compares it with the built library.

use transit_hook::Settings;

use crate::observer::RECORDER;

fn set_up() {
    let settings = Settings::from_env("transit-record");
    RECORDER.configure(&settings);
    transit_hook::install(&RECORDER, settings);
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
