//! The direction of dependencies: phases meet only through files (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use transit_harness::workspace;

fn graph() -> BTreeMap<String, BTreeSet<String>> {
    // Of this platform alone: a build fetches no more, and nothing is fetched here.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(["--filter-platform", &platform])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut names = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        names.insert(
            package["id"].to_string(),
            package["name"].as_str().unwrap().to_owned(),
        );
    }
    let mut graph = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let dependencies = node["deps"].as_array().unwrap().iter().filter(|dep| {
            // Development dependencies link nothing into what is shipped.
            dep["dep_kinds"]
                .as_array()
                .unwrap()
                .iter()
                .any(|kind| kind["kind"] != "dev")
        });
        let found = dependencies
            .map(|dep| names[&dep["pkg"].to_string()].clone())
            .collect();
        graph.insert(names[&node["id"].to_string()].clone(), found);
    }
    graph
}

fn reach(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(name) = open.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn parts_depend_in_one_direction() {
    let graph = graph();
    let ours = |name: &str| name.starts_with("transit-") || name == "soft-gpu";
    let format = reach(&graph, "transit-format");
    assert!(
        !format.iter().any(|name| ours(name)),
        "transit-format: {format:?}"
    );
    // The cluster simulator is of use without the rest, so it is tied to nothing of ours.
    let cluster = reach(&graph, "transit-cluster");
    assert!(
        graph.contains_key("transit-cluster") && !cluster.iter().any(|name| ours(name)),
        "transit-cluster: {cluster:?}"
    );
    let never: &[(&str, &[&str])] = &[
        (
            "transit-plan",
            &["transit-hook", "transit-capture", "cudarc"],
        ),
        ("transit-hook", &["transit-capture", "transit-plan"]),
        (
            "transit-record-shim",
            &[
                "clap",
                "anyhow",
                "tokio",
                "transit-plan",
                "transit-replay-shim",
            ],
        ),
        (
            "transit-replay-shim",
            &[
                "clap",
                "anyhow",
                "tokio",
                "transit-plan",
                "transit-record-shim",
            ],
        ),
        (
            "soft-gpu",
            &[
                "transit-hook",
                "transit-capture",
                "transit-plan",
                "transit-format",
            ],
        ),
    ];
    for (package, forbidden) in never {
        let found = reach(&graph, package);
        assert!(graph.contains_key(*package), "no package {package}");
        for name in *forbidden {
            assert!(
                !found.contains(*name),
                "{package} must not depend on {name}"
            );
        }
    }
}
