//! Job tables as people have them, and as nobody should.

use std::io::{self, Read};

use jiff::tz::TimeZone;
use proptest::prelude::*;
use transit_cluster::input::{self, Filter, InputError, Options, Report};
use transit_cluster::trace::{State, Trace};

fn options() -> Options {
    Options {
        zone: TimeZone::UTC,
        type_column: None,
        strict: false,
        filter: Filter {
            min_run_s: 1.0,
            ..Filter::default()
        },
    }
}

fn read(text: &str) -> Result<(Trace, Report), InputError> {
    input::read(text.as_bytes(), &options(), |_| {})
}

fn strict(text: &str) -> String {
    let options = Options {
        strict: true,
        ..options()
    };
    input::read(text.as_bytes(), &options, |_| {})
        .unwrap_err()
        .to_string()
}

const SEREN: &str = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n";
const KALOS: &str = "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n";

#[test]
fn acme_tables_are_read_as_published() {
    let seren = format!(
        "{SEREN}5778432,uf794,1,8,128,Eval,COMPLETED,2023-03-01 00:01:00+08:00,2023-03-01 00:02:00+08:00,2023-03-01 00:12:00+08:00,600,60,4800.0\n\
         5778433,uf794,0,0,4,Other,COMPLETED,2023-03-01 00:01:00+08:00,\
         2023-03-01 00:02:00+08:00,2023-03-01 00:12:00+08:00,600,60,0\n\
         5778434,uf794,2,16,4,Pretrain,CANCELLED,2023-02-28 16:03:00+00:00,2023-03-01 00:04:00+08:00,2023-03-01 00:05:00+08:00,60,60,0\n"
    );
    let (trace, report) = read(&seren).unwrap();
    assert_eq!(report.table, "AcmeTrace, Seren");
    assert_eq!((report.kept, report.left_out["no GPU"]), (2, 1));
    assert_eq!((trace.jobs[0].run.0, trace.jobs[0].gpus), (600_000, 8));
    // Two zones, one clock: the second job came two minutes later.
    assert_eq!(
        (trace.jobs[1].submit.0, trace.jobs[1].state),
        (120_000, State::Cancelled)
    );
    assert_eq!(trace.kind_of(&trace.jobs[1]), "Pretrain");
}

#[test]
fn the_duration_of_kalos_is_not_the_run_time() {
    let kalos = format!(
        "{KALOS}dlctk696s0jbvitv,uf794,1,8,64,512,64,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18.0,10.0,144.0\n"
    );
    let (trace, report) = read(&kalos).unwrap();
    assert_eq!(report.table, "AcmeTrace, Kalos");
    assert_eq!(trace.jobs[0].run.0, 8_000);
    assert_eq!(report.duration_with_queue, 1);
}

#[test]
fn sacct_output_is_read() {
    let text = "JobID|User|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES\n\
        101|ann|gpu|COMPLETED|2026-01-05T08:00:00|2026-01-05T08:10:00|2026-01-05T09:10:00|3600|\
        2|billing=16,cpu=128,gres/gpu=16,node=2\n\
        101.batch|||COMPLETED|2026-01-05T08:10:00|2026-01-05T08:10:00|2026-01-05T09:10:00|3600|1|cpu=64\n\
        102_3|bob|gpu|CANCELLED by 1000|2026-01-05T08:01:00|2026-01-05T08:10:00|\
        2026-01-05T08:10:30|30|1|cpu=8,gres/gpu:a100=4\n\
        103|bob|cpu|COMPLETED|2026-01-05T08:02:00|2026-01-05T08:10:00|2026-01-05T08:10:30|30|1|cpu=8\n\
        104|bob|gpu|PENDING|2026-01-05T08:03:00|Unknown|Unknown|0|1|\n\
        105|bob|gpu|CANCELLED|2026-01-05T08:04:00|None|2026-01-05T08:05:00|0|1|\n\
        106_[1-9%2]|bob|gpu|PENDING|2026-01-05T08:04:00|Unknown|Unknown|0|4|\n\
        107|bob|gpu|RUNNING|2026-01-05T08:04:00|2026-01-05T08:05:00|Unknown|60|1|gres/gpu=8\n\
        101.extern|||COMPLETED|2026-01-05T08:10:00|2026-01-05T08:10:00|2026-01-05T09:10:00|3600|2|gres/gpu=16\n";
    let (trace, report) = read(text).unwrap();
    assert_eq!(report.table, "Slurm sacct");
    assert_eq!((report.kept, report.bad_rows()), (2, 0));
    assert_eq!(report.left_out["Slurm job steps"], 2);
    assert_eq!(report.left_out["still running or pending"], 3);
    assert_eq!(report.left_out["no GPU"], 1);
    assert_eq!(report.left_out["never started"], 1);
    let gpus: Vec<u32> = trace.jobs.iter().map(|job| job.gpus).collect();
    assert_eq!((gpus, trace.names.get(1)), (vec![16, 4], "102_3"));
}

#[test]
fn every_way_of_writing_the_same_table_is_the_same() {
    let plain =
        "job_id,submit_s,run_s,gpus,type,state\na,0,60,8,x,COMPLETED\nb,5,30.5,16,y,FAILED\n";
    let (expected, _) = read(plain).unwrap();
    let variants = [
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        plain.replace(',', ";"),
        plain.replace(',', "\t"),
        plain.replace("a,0", "\"a\",\"0\""),
        plain.trim_end().to_owned(),
        plain.replace("\nb", "\n\n\nb"),
        plain
            .to_uppercase()
            .replace("COMPLETED", "completed")
            .replace('X', "x")
            .replace('Y', "y"),
    ];
    for text in variants {
        let (trace, report) = read(&text).unwrap();
        assert_eq!(
            (&trace.jobs, report.bad_rows()),
            (&expected.jobs, 0),
            "{text}"
        );
    }
}

#[test]
fn bad_rows_are_counted_with_line_and_column() {
    let text = "job_id,submit_time,start_time,end_time,gpus\n\
        ok,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,8\n\
        backwards,2026-01-01 00:00:00,2026-01-01 02:00:00,2026-01-01 01:00:00,8\n\
        \n\
        negative,-5,2026-01-01 00:00:00,2026-01-01 01:00:00,8\n\
        short,2026-01-01 00:00:00\n\
        word,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,eight\n\
        half,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,0.5\n\
        less,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,-8\n\
        huge,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,99999999999\n\
        never,,2026-01-01 00:00:00,2026-01-01 01:00:00,8\n\
        nul,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 01:00:00,8\0\n";
    let (_, report) = read(text).unwrap();
    assert_eq!((report.rows, report.kept, report.bad_rows()), (10, 1, 9));
    let first = |why: &str| report.bad[why].first.clone();
    assert_eq!(
        first("end before start"),
        "line 3, column 4 (end_time): it ends 3600 s before it starts"
    );
    assert_eq!(
        first("negative times"),
        "line 5, column 2 (submit_time): '-5' is negative"
    );
    assert_eq!(
        first("wrong number of fields"),
        "line 6, column 3 (start_time): 2 fields where the heading has 5"
    );
    assert_eq!(report.bad["not a number"].rows, 3);
    assert!(first("NUL bytes").starts_with("line 12, column 5 (gpus)"));
    assert_eq!(
        strict(text),
        "line 3, column 4 (end_time): it ends 3600 s before it starts"
    );
}

#[test]
fn what_is_no_table_is_told_at_once() {
    for (text, expected) in [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("a,b,c\n1,2,3\n", "no column for when jobs were submitted"),
        ("submit_s,run_s\n1,2\n", "no column for GPUs"),
        ("submit_s,gpus\n1,2\n", "no column for how long jobs ran"),
        ("\n\r\n\na,b\n1,2\n", "line 4: no column for"),
        (
            "submit_s,run_s,gpus,GPUS\n1,2,8,4\n",
            "two columns are named",
        ),
        ("PNG\0\x01\x02", "no text"),
    ] {
        let error = strict(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn packed_and_foreign_files_are_told_with_the_way_to_read_them() {
    let utf16: Vec<u8> = "\u{feff}submit_s,run_s,gpus\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let gzip: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03half of it\n";
    for (bytes, next) in [
        (gzip, "zcat"),
        (&utf16, "iconv"),
        (b"PK\x03\x04\n", "unzip"),
    ] {
        let error = input::read(bytes, &options(), |_| {}).unwrap_err();
        assert!(error.next().contains(next), "{error}: {}", error.next());
    }
    for (heading, next) in [
        ("       JobID    State  Submit\n", "--parsable2"),
        (
            "7|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00\n",
            "heading line",
        ),
    ] {
        let error = input::read(heading.as_bytes(), &options(), |_| {}).unwrap_err();
        assert!(error.next().contains(next), "{error}: {}", error.next());
    }
}

#[test]
fn run_times_that_nobody_had_are_bad_and_not_simulated() {
    let text = "submit_s,run_s,gpus\n\
        0,60,8\n\
        0,2026-01-01T00:00:00,8\n\
        0,00:10:00,8\n\
        0,1767225600,8\n\
        0,1e300,8\n\
        0,inf,8\n\
        0,-60,8\n\
        0,NaN,8\n";
    let (_, report) = read(text).unwrap();
    assert_eq!((report.kept, report.bad_rows()), (1, 6));
    assert_eq!(
        report.bad["longer than ten years"].first,
        "line 5, column 2 (run_s): it ran 56 years"
    );
    assert_eq!(
        report.bad["not a time"].first,
        "line 3, column 2 (run_s): '2026-01-01T00:00:00' is no number of seconds"
    );
    assert_eq!(report.left_out["no run time"], 1);
    // The same by the clock: a start that was never set.
    let clock = "submit,start,end,gpus\n0,1970-01-01T00:00:00,2026-01-01T00:00:00,8\n";
    let (_, report) = read(clock).unwrap();
    assert_eq!(report.bad["longer than ten years"].rows, 1);
}

#[test]
fn rows_that_repeat_an_id_are_kept_and_counted() {
    let (trace, report) = read("id,submit_s,run_s,gpus\na,0,9,8\nb,0,9,8\na,5,9,8\n").unwrap();
    assert_eq!((trace.jobs.len(), report.repeated_ids), (3, 1));
    let (_, report) = read("submit_s,run_s,gpus\n0,9,8\n0,9,8\n").unwrap();
    assert_eq!(report.repeated_ids, 0);
}

#[test]
fn quoted_line_breaks_belong_to_their_field() {
    let (trace, report) = read("id,submit_s,run_s,gpus\n\"a\nb\",0,9,8\nc,0,x,8\n").unwrap();
    assert_eq!((trace.jobs.len(), trace.names.get(0)), (1, "a\nb"));
    assert!(
        report.bad["not a time"]
            .first
            .starts_with("line 4, column 3")
    );
}

#[test]
fn an_open_quote_does_not_pull_the_file_into_memory() {
    // The rest of the file is one endless field.
    let head: &[u8] = b"submit_s,run_s,gpus\n0,1,8\n\"0,1,8\n";
    let mut endless = head.chain(io::repeat(b'x'));
    let fails = |source: &mut dyn Read| {
        let error = input::read(source, &options(), |_| {}).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        (error.to_string(), cause)
    };
    let (error, cause) = fails(&mut endless);
    assert_eq!(error, "reading stopped at line 3");
    assert!(cause.contains("quote"), "{cause}");
    let (error, cause) = fails(&mut io::repeat(b'x'));
    assert_eq!(error, "reading stopped at line 1");
    assert!(cause.contains("longer than 1 MiB"), "{cause}");
}

/// Rows without end, made as they are read.
struct Endless {
    rows: u64,
    line: io::Cursor<Vec<u8>>,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.line.read(into)?;
        if count > 0 || self.rows == 0 {
            return Ok(count);
        }
        self.rows -= 1;
        let row = if self.rows.is_multiple_of(1000) {
            format!("{},60,8\n", self.rows)
        } else {
            format!("{},60,bad\n", self.rows)
        };
        self.line = io::Cursor::new(row.into_bytes());
        self.line.read(into)
    }
}

#[test]
fn rows_that_are_left_out_cost_no_memory() {
    let source = Endless {
        rows: 300_000,
        line: io::Cursor::new(b"submit_s,run_s,gpus\n".to_vec()),
    };
    let mut ticks = 0;
    let (trace, report) = input::read(source, &options(), |rows| ticks += rows).unwrap();
    assert_eq!(
        (report.rows, report.kept, report.bad_rows()),
        (300_000, 300, 299_700)
    );
    assert_eq!(
        (trace.jobs.len(), report.bad.len(), ticks),
        (300, 1, 262_144)
    );
}

/// Pieces that tables are made of, and pieces that they are not.
const PIECES: [&str; 30] = [
    "job_id",
    "submit_s",
    "run_s",
    "gpus",
    "State",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "AllocTRES",
    ",",
    ",",
    "|",
    ";",
    "\n",
    "\n",
    "\r\n",
    "\"",
    "0",
    "60",
    "8",
    "-1",
    "1e300",
    "NaN",
    "2026-01-01T00:00:00",
    "1-02:03:04",
    "gres/gpu:h100=8",
    "\0",
    "Unknown",
    "\u{feff}",
];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever stands in a file, each of its rows is kept, left out or bad, and nothing else happens.
    #[test]
    fn every_row_of_any_file_is_accounted_for(
        heading in prop::sample::select(vec![
            "", "job_id,submit_s,run_s,gpus\n", "Submit|Start|End|Elapsed|AllocTRES\n",
            "submit_time;start_time;end_time;gpu_num\r\n",
        ]),
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..80),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let bytes = [heading.as_bytes(), pieces.concat().as_bytes(), &noise].concat();
        let cut = bytes.len() - noise.len() / 2;
        if let Ok((trace, report)) = input::read(&bytes[..cut], &options(), |_| {}) {
            let left_out: u64 = report.left_out.values().sum();
            prop_assert_eq!(report.kept + left_out + report.bad_rows(), report.rows);
            prop_assert_eq!(trace.jobs.len() as u64, report.kept);
            prop_assert!(trace.jobs.iter().all(|job| job.gpus > 0 && job.run.0 > 0));
        }
    }
}
