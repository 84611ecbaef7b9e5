//! What people get wrong at the command line: each mistake is told at once, with what to do, and costs
//! them no file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::verbs::run;

const TABLE: &str = "submit_s,run_s,gpus\n0,60,8\n5,60,16\n";

/// Exit code 2, the tool's name in front, what is wrong and what to do next; files stay as they were.
fn told(args: &[&str], folder: &Path, expected: &str) {
    let names = || {
        let names = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let before = names();
    let output = run(args, folder);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert!(errors.contains(expected), "{args:?}: {errors}");
    let ours = errors.starts_with("transit-cluster: ") && errors.contains("next: ");
    let of_options = errors.starts_with("error: ") && errors.contains("--help");
    assert!(ours || of_options, "{args:?}: {errors}");
    assert_eq!(names(), before, "{args:?}");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("none.csv", "submit_s,run_s,gpus\n0,1,0\n0,x,8\n");
    write("other.csv", "a,b\n1,2\n");
    write(
        "slurm.txt",
        "JobID|Submit|Elapsed|AllocTRES\n7|2026-01-01T00:00:00|01:00:00|cpu=8,node=1\n",
    );
    for (args, expected) in [
        (&["run", "missing.csv"][..], "cannot open missing.csv"),
        (&["run", "."], "is a folder"),
        (
            &["run", "other.csv"],
            "no column for when jobs were submitted",
        ),
        (&["run", "none.csv"], "no job is left"),
        (&["run", "slurm.txt"], "AccountingStorageTRES"),
        (&["run", "none.csv", "--strict"], "line 3, column 2 (run_s)"),
        (&["run", "kalos-319", "--time-zone", "Mars"], "Mars"),
        (&["run", "kalos-319", "--plot", "a.pdf"], ".png or .svg"),
        (&["compare", "kalos-319", "--with", "rack=3"], "rack"),
        (&["compare", "kalos-319", "--with", ""], "changes nothing"),
        (
            &["sweep", "kalos-319", "--over", "racks"],
            "names no values",
        ),
        (
            &[
                "sweep",
                "kalos-319",
                "--over",
                "racks=1",
                "--over",
                "racks=2",
            ],
            "given twice",
        ),
    ] {
        told(args, folder.path(), expected);
    }
    let output = run(&["run", "missing.csv", "--json"], folder.path());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "error");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (option, expected) in [
        ("--racks=0", "0 racks"),
        ("--racks=-3", "-3 racks"),
        ("--racks=nan", "NaN racks"),
        ("--racks=1e9", "1000000000 racks"),
        ("--gpus-per-node=0", "a node of 0 GPUs"),
        ("--gpus-per-node=5", "whole number of nodes"),
        ("--gpus-per-rack=0", "whole number of nodes"),
        ("--reduction=150%", "no share of nodes"),
        ("--reduction=100%", "no share of nodes"),
        ("--reduction=-1%", "no share of nodes"),
        ("--reduction=nan", "no range"),
        ("--speedup=nan", "no range"),
        ("--speedup=5..1%", "no range"),
        ("--load=0", "--load"),
        ("--load=nan", "--load"),
        ("--warmup-days=-1", "--warmup-days"),
        ("--warmup-days=9999", "no job is measured"),
        ("--mtbf-hours=0.001", "--mtbf-hours"),
        ("--repair-hours=nan", "--repair-hours"),
        ("--min-run-s=nan", "--min-run-s"),
        ("--min-run-s=-5", "--min-run-s"),
        ("--days=-1", "--days"),
        ("--days=inf", "--days"),
        ("--min-gpus=9", "--max-gpus"),
        ("--types=nosuch", "no job is left"),
    ] {
        let args = ["run", "kalos-319", "--max-gpus=8", option];
        told(&args, folder.path(), expected);
    }
}

#[test]
fn no_file_is_lost_and_none_is_begun_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in.csv"), TABLE).unwrap();
    fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink("in.csv", at("link.csv")).unwrap();
    for (input, target, expected) in [
        ("in.csv", "in.csv", "is the input"),
        ("in.csv", "./folder/../in.csv", "is the input"),
        ("in.csv", "link.csv", "is the input"),
        ("link.csv", "in.csv", "is the input"),
        ("in.csv", "folder", "is a folder"),
        ("in.csv", "in.csv/out.csv", "cannot write"),
        ("in.csv", "/proc/none/out.csv", "cannot write"),
    ] {
        let args = ["run", input, "--racks", "1", "--jobs-csv", target];
        told(&args, folder.path(), expected);
        assert_eq!(fs::read_to_string(at("in.csv")).unwrap(), TABLE);
    }
    let twice = ["--jobs-csv", "a.svg", "--plot", "./a.svg"];
    told(
        &[&["run", "kalos-319"], &twice[..]].concat(),
        folder.path(),
        "written twice",
    );
    let sweep = ["sweep", "in.csv", "--over", "racks=1", "--csv", "in.csv"];
    told(&sweep, folder.path(), "is the input");
    let compare = [
        "compare",
        "kalos-319",
        "--with",
        "racks=9",
        "--plot",
        "/proc/a.png",
    ];
    told(&compare, folder.path(), "cannot write");
    told(
        &["generate", "kalos", "-o", "folder"],
        folder.path(),
        "is a folder",
    );
    told(
        &["paper", "--plot", "/proc/a.png"],
        folder.path(),
        "cannot write",
    );
}

#[test]
fn the_cluster_is_the_traces_own_unless_said_and_never_guessed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), TABLE).unwrap();
    let kalos = "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n\
        a,u,1,8,64,512,64,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18.0,10.0,144.0\n";
    fs::write(folder.path().join("kalos.csv"), kalos).unwrap();
    let racks = |args: &[&str]| {
        let output = run(&[&["run", "--json"], args].concat(), folder.path());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["scenario"]["racks"].as_f64().unwrap()
    };
    assert_eq!(racks(&["kalos-319"]), 76.0);
    assert_eq!(racks(&["kalos.csv"]), 76.0);
    assert_eq!(racks(&["kalos", "--jobs", "50"]), 76.0);
    assert_eq!(racks(&["seren", "--jobs", "50"]), 72.0);
    assert_eq!(racks(&["kalos-319", "--racks", "71.5"]), 71.5);
    told(&["run", "in.csv"], folder.path(), "how many racks");
    let compare = ["compare", "in.csv", "--with", "racks=2"];
    told(&compare, folder.path(), "how many racks");
    let sweep = run(&["sweep", "in.csv", "--over", "racks=1,2"], folder.path());
    assert!(sweep.status.success());
}

#[test]
fn output_that_nobody_takes_is_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let full = || {
        Stdio::from(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    for args in [&["run", "kalos-319"][..], &["generate", "kalos", "-o", "-"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transit-cluster"));
        let output = command.args(args).stdout(full()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("cannot write to stdout"), "{errors}");
        // A reader that goes away has had enough.
        let mut child = Command::new(env!("CARGO_BIN_EXE_transit-cluster"))
            .args(args)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success(), "{args:?}");
    }
}

#[test]
fn an_interrupted_sweep_leaves_a_whole_file_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_transit-cluster"))
        .args([
            "sweep",
            "kalos",
            "--over",
            "racks=32,48,64,76",
            "--csv",
            "out.csv",
        ])
        .args(["--over", "reduction=0%,25%,50%"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    child.wait().unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.ends_with("out.csv"), "{}", path.display());
        assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 13);
    }
}
