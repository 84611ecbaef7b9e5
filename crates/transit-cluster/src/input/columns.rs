//! Which column means what, found by the heading's names.

use csv::ByteRecord;

use crate::generate::Cluster;

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Whether a field may stand in quotes; Slurm knows none.
    pub quoting: bool,
}

impl Dialect {
    /// The dialect of a table with this first line: its most frequent separator.
    #[must_use]
    pub fn of(first_line: &[u8]) -> Self {
        let count = |byte: u8| first_line.iter().filter(|&&b| b == byte).count();
        let delimiter = [b',', b'|', b';', b'\t']
            .into_iter()
            .rev()
            .max_by_key(|&byte| count(byte))
            .unwrap_or(b',');
        Self {
            delimiter,
            quoting: delimiter != b'|',
        }
    }
}

/// What a column can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The job's name.
    Name,
    /// Its type.
    Kind,
    /// How it ended.
    State,
    /// GPUs as a number.
    Gpus,
    /// GPUs within Slurm's list of resources.
    Tres,
    /// Nodes.
    Nodes,
    /// When it was submitted.
    Submit,
    /// When it started.
    Start,
    /// When it ended.
    End,
    /// Run time in seconds.
    RunSeconds,
    /// Run time as Slurm writes it.
    Elapsed,
    /// AcmeTrace's duration, which in Kalos contains the queue; compared, never used.
    Duration,
}

impl Role {
    /// What a field of this column has to be, where it is a time.
    #[must_use]
    pub fn kind_of_time(self) -> &'static str {
        match self {
            Self::RunSeconds => "number of seconds",
            Self::Elapsed => "duration",
            _ => "time",
        }
    }
}

/// Names of columns, in lower case; the first that a heading has is taken.
const NAMES: [(Role, &[&str]); 12] = [
    (Role::Name, &["job_id", "jobid", "jobidraw", "id", "name"]),
    (Role::Kind, &["type", "kind", "partition"]),
    (Role::State, &["state", "status"]),
    (Role::Gpus, &["gpus", "gpu_num"]),
    (Role::Tres, &["alloctres", "allocgres", "reqtres"]),
    (Role::Nodes, &["nodes", "node_num", "nnodes", "allocnodes"]),
    (Role::Submit, &["submit", "submit_s", "submit_time"]),
    (Role::Start, &["start", "start_s", "start_time"]),
    (Role::End, &["end", "end_s", "end_time"]),
    (Role::RunSeconds, &["run_s", "duration_s", "elapsedraw"]),
    (Role::Elapsed, &["elapsed"]),
    (Role::Duration, &["duration"]),
];

/// The columns of one table.
#[derive(Clone, Debug)]
pub struct Columns {
    names: Vec<String>,
    places: [Option<usize>; NAMES.len()],
}

impl Columns {
    /// Finds them.
    ///
    /// # Errors
    /// What is missing, and what there is instead.
    pub fn find(header: &ByteRecord, type_column: Option<&str>) -> Result<Self, String> {
        let names: Vec<String> = header
            .iter()
            .map(|name| {
                String::from_utf8_lossy(name)
                    .trim()
                    .trim_matches('\u{feff}')
                    .to_owned()
            })
            .collect();
        let place = |wanted: &str| {
            names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(wanted))
        };
        let mut places = NAMES.map(|(_, known)| known.iter().find_map(|name| place(name)));
        if let Some(wanted) = type_column {
            let found = place(wanted)
                .ok_or_else(|| format!("no column '{wanted}' for types; {}", there_are(&names)))?;
            if let Some(kind) = places.get_mut(Role::Kind as usize) {
                *kind = Some(found);
            }
        }
        let columns = Self { names, places };
        columns.complete()?;
        columns.unambiguous()?;
        Ok(columns)
    }

    fn complete(&self) -> Result<(), String> {
        let has = |role: Role| self.place(role).is_some();
        let mut missing = Vec::new();
        if !has(Role::Submit) {
            missing.push("when jobs were submitted (submit, submit_s, submit_time)");
        }
        if !has(Role::Gpus) && !has(Role::Tres) {
            missing.push("GPUs (gpus, gpu_num, or Slurm's AllocTRES)");
        }
        let ends = has(Role::Start) && has(Role::End);
        if !ends && !has(Role::RunSeconds) && !has(Role::Elapsed) {
            missing.push("how long jobs ran (run_s, ElapsedRaw, Elapsed, or start and end)");
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!(
            "no column for {}; {}",
            missing.join(", nor for "),
            there_are(&self.names)
        ))
    }

    /// Whether a column that is read has a namesake, of which nobody knows which was meant.
    fn unambiguous(&self) -> Result<(), String> {
        for &place in self.places.iter().flatten() {
            let name = self.names.get(place).map_or("", String::as_str);
            let same = |other: &&String| other.eq_ignore_ascii_case(name);
            if self.names.iter().filter(same).count() > 1 {
                return Err(format!(
                    "two columns are named '{name}'; name one otherwise"
                ));
            }
        }
        Ok(())
    }

    /// Where a role's column is.
    #[must_use]
    pub fn place(&self, role: Role) -> Option<usize> {
        self.places.get(role as usize).copied().flatten()
    }

    /// Number of columns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// A column's place and name, for messages; beyond the heading just its place.
    #[must_use]
    pub fn name(&self, place: usize) -> String {
        match self.names.get(place) {
            Some(name) => format!("{} ({name})", place + 1),
            None => format!("{}", place + 1),
        }
    }

    /// The cluster of AcmeTrace whose table this is, told by its columns.
    #[must_use]
    pub fn cluster(&self) -> Option<Cluster> {
        let has = |wanted: &str| {
            self.names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !["node_num", "gpu_num", "type", "gpu_time"]
            .iter()
            .all(|name| has(name))
        {
            return None;
        }
        let kalos = has("fail_time") || has("mem_per_pod_GB");
        Some(if kalos {
            Cluster::Kalos
        } else {
            Cluster::Seren
        })
    }

    /// What kind of table this is, in words.
    #[must_use]
    pub fn kind_of_table(&self) -> &'static str {
        match self.cluster() {
            Some(Cluster::Kalos) => "AcmeTrace, Kalos",
            Some(Cluster::Seren) => "AcmeTrace, Seren",
            None if self.place(Role::Tres).is_some() => "Slurm sacct",
            None => "plain table",
        }
    }
}

fn there_are(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    let text: String = shown
        .join(", ")
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    format!("the heading has: {text}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(heading: &[&str]) -> Result<Columns, String> {
        Columns::find(&ByteRecord::from(heading.to_vec()), None)
    }

    #[test]
    fn roles_are_places_of_the_table_of_names() {
        for (place, (role, _)) in NAMES.iter().enumerate() {
            assert_eq!(*role as usize, place);
        }
    }

    #[test]
    fn what_is_missing_is_told_with_what_there_is() {
        let error = find(&["job", "when", "cards"]).unwrap_err();
        for word in ["submit_s", "AllocTRES", "run_s", "job, when, cards"] {
            assert!(error.contains(word), "{error}");
        }
        assert!(find(&["Submit", "AllocTRES", "Elapsed"]).is_ok());
        let twice = find(&["submit_s", "run_s", "gpus", "GPUs"]).unwrap_err();
        assert!(twice.contains("two columns are named 'gpus'"), "{twice}");
        assert!(find(&["submit_s", "run_s", "gpus", "note", "note"]).is_ok());
    }

    #[test]
    fn only_acme_tables_are_of_a_known_cluster() {
        let kind = |heading: &[&str]| find(heading).unwrap().kind_of_table();
        assert_eq!(kind(&["submit_s", "run_s", "gpus"]), "plain table");
        let times = ["submit_time", "start_time", "end_time"];
        let acme = |more: &[&'static str]| {
            let names = ["node_num", "gpu_num", "type", "gpu_time"];
            kind(&[&names, more, &times].concat())
        };
        assert_eq!(acme(&[]), "AcmeTrace, Seren");
        assert_eq!(acme(&["fail_time"]), "AcmeTrace, Kalos");
        // Helios writes its tables alike.
        let helios = ["vc", "gpu_num", "node_num"];
        assert_eq!(kind(&[&helios[..], &times].concat()), "plain table");
    }

    #[test]
    fn separators_are_told_by_the_first_line() {
        let delimiter = |line: &str| Dialect::of(line.as_bytes()).delimiter;
        assert_eq!(delimiter("JobID|State|Submit"), b'|');
        assert_eq!(delimiter("a;b;c"), b';');
        assert_eq!(delimiter("a"), b',');
    }
}
