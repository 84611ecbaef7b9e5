//! The shims as files: what they export, what they need, and that they are silent in a process that
//! never touches CUDA.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use object::{Object as _, ObjectSymbol as _};
use transit_harness::{artifacts, workspace};

const SHIMS: &[(&str, &str)] = &[
    ("libtransit_record.so", "transit-record/shim/exports.txt"),
    ("libtransit_replay.so", "transit-replay/shim/exports.txt"),
];

fn exported(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).unwrap();
    let file = object::File::parse(bytes.as_slice()).unwrap();
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .collect()
}

#[test]
fn exports_equal_each_shims_list() {
    for (library, list) in SHIMS {
        let text = std::fs::read_to_string(workspace().join(list)).unwrap();
        let listed: BTreeSet<String> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        let found = exported(&artifacts().join(library));
        let extra: Vec<_> = found.difference(&listed).collect();
        let missing: Vec<_> = listed.difference(&found).collect();
        assert!(
            extra.is_empty() && missing.is_empty(),
            "{library}: extra {extra:?}, missing {missing:?}"
        );
        assert!(listed.contains("dlsym") && listed.contains("cuGetProcAddress_v2"));
    }
}

#[test]
fn no_shim_needs_a_cuda_library() {
    for (library, _) in SHIMS {
        let output = Command::new("readelf")
            .arg("-d")
            .arg(artifacts().join(library))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success());
        for line in text.lines().filter(|line| line.contains("NEEDED")) {
            let lower = line.to_lowercase();
            assert!(
                !["cuda", "cupti", "nv", "stdc++"]
                    .iter()
                    .any(|name| lower.contains(name)),
                "{library}: {line}"
            );
        }
    }
}

/// Programs without CUDA print and return the same with a shim preloaded, whatever is set.
#[test]
fn bystanders_notice_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("x.c");
    std::fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let object = folder.path().join("x.o");
    let compile = format!("gcc -c -o {} {}", object.display(), source.display());
    let jobs: &[&[&str]] = &[
        &[
            "python3",
            "-c",
            "import ssl, ctypes; print(ssl.OPENSSL_VERSION)",
        ],
        &["sh", "-c", "echo hello; exit 4"],
        &["sh", "-c", &compile],
        &["sh", "-c", "echo a | cat | sort"],
    ];
    for (library, _) in SHIMS {
        for job in jobs {
            let run = |preload: bool| {
                let mut command = Command::new(job[0]);
                command.args(&job[1..]).current_dir(folder.path());
                if preload {
                    command
                        .env("LD_PRELOAD", artifacts().join(library))
                        .env("TRANSIT_TRACE", folder.path().join("t.trace.zst"))
                        .env("TRANSIT_PLAN", folder.path().join("no.plan"));
                }
                command.output().unwrap()
            };
            let (bare, loaded) = (run(false), run(true));
            assert_eq!(bare.status, loaded.status, "{library} {job:?}");
            assert_eq!(bare.stdout, loaded.stdout, "{library} {job:?}");
            assert_eq!(bare.stderr, loaded.stderr, "{library} {job:?}");
        }
    }
    assert!(!folder.path().join("t.trace.zst").exists());
}
