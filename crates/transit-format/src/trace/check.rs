//! The recorder's check of itself: what the hooks saw being launched against what the device says
//! it ran, by kind. A record is one kernel, memset or copy as CUPTI reports it; a graph launch is
//! as many as its nodes.

use serde::{Deserialize, Serialize};

use super::model::Drops;

/// Names kept of kernels that no hook saw.
pub const MOST_UNSEEN: usize = 5;

/// Device work of one kind, counted on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Records that the recorded ops must have caused.
    pub hooked: u64,
    /// Those of them that came.
    pub confirmed: u64,
    /// Records that belong to no recorded op. Memsets and copies of memory that is not managed are
    /// no ops and do not count here, as far as the hooks let that many pass.
    pub unseen: u64,
}

impl Counted {
    /// Records that should have come and did not.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.hooked.saturating_sub(self.confirmed)
    }
}

/// The whole check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Kernels.
    pub kernels: Counted,
    /// Memsets.
    pub memsets: Counted,
    /// Copies.
    pub memcpys: Counted,
    /// Launches of graphs in which the device or the driver decides what runs (conditional and
    /// device-updatable nodes, nodes switched off): what came of them is taken as right.
    pub open_launches: u64,
    /// Mangled names of kernels that no hook saw, with their records, most first.
    pub unseen_kernels: Vec<(String, u64)>,
}

impl Check {
    fn kinds(&self) -> [(&'static str, &Counted); 3] {
        [
            ("kernels", &self.kernels),
            ("memsets", &self.memsets),
            ("copies", &self.memcpys),
        ]
    }

    /// Records that the recorded ops must have caused.
    #[must_use]
    pub fn hooked(&self) -> u64 {
        self.kinds().iter().map(|(_, counted)| counted.hooked).sum()
    }

    /// Records that came: of recorded ops, and beside them.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        let of = |counted: &Counted| counted.confirmed + counted.unseen;
        self.kinds().iter().map(|(_, counted)| of(counted)).sum()
    }

    /// Whether every op has its records and every record its op.
    #[must_use]
    pub fn complete(&self) -> bool {
        let whole = |counted: &Counted| counted.missing() == 0 && counted.unseen == 0;
        self.kinds().iter().all(|(_, counted)| whole(counted))
    }

    /// The verdict in words: `complete`, or what differs, by kind, and why that may be.
    #[must_use]
    pub fn verdict(&self, drops: &Drops) -> String {
        let mut parts = Vec::new();
        let list = |pick: fn(&Counted) -> u64| {
            let kinds = self.kinds();
            let some = kinds.iter().filter(|(_, counted)| pick(counted) > 0);
            let words: Vec<String> = some
                .map(|(kind, counted)| format!("{} {kind}", pick(counted)))
                .collect();
            (!words.is_empty()).then(|| words.join(", "))
        };
        if let Some(missing) = list(Counted::missing) {
            parts.push(format!(
                "{missing} without a record ({})",
                why_missing(drops)
            ));
        }
        if let Some(unseen) = list(|counted| counted.unseen) {
            parts.push(format!(
                "{unseen} that no hook saw ({})",
                self.why_unseen(drops)
            ));
        }
        if parts.is_empty() {
            parts.push("complete".to_owned());
        }
        if self.open_launches > 0 {
            parts.push(format!(
                "{} launches of graphs that decide on the device what runs, taken as they came",
                self.open_launches
            ));
        }
        parts.join("; ")
    }

    fn why_unseen(&self, drops: &Drops) -> String {
        if drops.ops > 0 {
            return format!("{} ops found their ring full", drops.ops);
        }
        if self.unseen_kernels.is_empty() {
            return "the driver's own, or by a function without a hook".to_owned();
        }
        let names: Vec<String> = self
            .unseen_kernels
            .iter()
            .map(|(name, count)| format!("{name} x {count}"))
            .collect();
        names.join(", ")
    }
}

fn why_missing(drops: &Drops) -> String {
    if drops.cupti > 0 {
        return format!("CUPTI dropped {} records", drops.cupti);
    }
    if drops.bad_times > 0 {
        return format!("{} records had impossible times", drops.bad_times);
    }
    "not finished when recording ended, or another tool took the records".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(hooked: u64, confirmed: u64, unseen: u64) -> Counted {
        Counted {
            hooked,
            confirmed,
            unseen,
        }
    }

    #[test]
    fn a_verdict_says_what_differs_by_kind_and_why() {
        let mut check = Check {
            kernels: counted(7, 7, 0),
            memcpys: counted(2, 2, 0),
            ..Check::default()
        };
        assert!(check.complete());
        assert_eq!(check.verdict(&Drops::default()), "complete");
        // As many lost as unseen: the sums agree, the check does not.
        check.kernels = counted(7, 5, 2);
        check.memcpys = counted(2, 1, 0);
        check.unseen_kernels = vec![("_Z6hidden".to_owned(), 2)];
        assert_eq!((check.hooked(), check.recorded()), (9, 8));
        assert!(!check.complete());
        let drops = Drops {
            cupti: 3,
            ..Drops::default()
        };
        assert_eq!(
            check.verdict(&drops),
            "2 kernels, 1 copies without a record (CUPTI dropped 3 records); 2 kernels that no \
             hook saw (_Z6hidden x 2)"
        );
    }
}
