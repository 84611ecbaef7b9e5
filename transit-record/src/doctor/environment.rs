//! What is set in the environment that a job would inherit, and gets in our way or in its own.

use std::env;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::elf::Elf;
use super::report::Check;

/// Beginnings of variables by which a profiler announces itself to the job it starts.
const PROFILERS: [(&str, &str); 4] = [
    ("NSYS_", "Nsight Systems"),
    ("QUADD_", "Nsight Systems"),
    ("NV_COMPUTE_PROFILER", "Nsight Compute"),
    ("COMPUTE_PROFILE", "the command-line profiler"),
];

pub(super) fn checks() -> Vec<Check> {
    let get = |name: &str| env::var(name).unwrap_or_default();
    let mut checks = vec![
        preloads(&get("LD_PRELOAD"), "/etc/ld.so.preload"),
        set(
            "LD_AUDIT",
            &get("LD_AUDIT"),
            "LD_AUDIT libraries see and may redirect every binding",
        ),
        injection(&get("CUDA_INJECTION64_PATH")),
        stubs(&get("LD_LIBRARY_PATH")),
        allocator(&get),
    ];
    let names: Vec<String> = env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    checks.push(profilers(&names));
    checks.push(seen(&names, &get));
    checks
}

/// Which neighbour a library is.
fn neighbour(path: &Path) -> Option<&'static str> {
    transit_hook::neighbours::known(&path.file_name()?.to_string_lossy())
}

/// Libraries preloaded already, and whether they answer for CUDA too.
fn preloads(variable: &str, file: &str) -> Check {
    let listed = std::fs::read_to_string(file).unwrap_or_default();
    let words = variable
        .split([' ', ':', '\n'])
        .chain(listed.split_whitespace());
    let libraries: Vec<PathBuf> = words
        .filter(|word| !word.is_empty())
        .map(PathBuf::from)
        .collect();
    let mut rivals = Vec::new();
    for library in &libraries {
        let exports = Elf::read(library)
            .map(|elf| elf.exports)
            .unwrap_or_default();
        let answers = |name: &String| name == "dlsym" || name.starts_with("cu");
        let cuda = exports.iter().filter(|name| answers(name)).count();
        let who = neighbour(library);
        if cuda > 0 || who.is_some() {
            let who = who.map(|who| format!(" ({who})")).unwrap_or_default();
            rivals.push(format!("{}{who}", library.display()));
        }
    }
    let data = json!({ "libraries": libraries, "answer_for_cuda": rivals });
    let key = "environment.LD_PRELOAD";
    let check = if !rivals.is_empty() {
        Check::warning(
            key,
            format!("{} answers for CUDA too", rivals.join(", ")),
            "ours goes before it and asks it next; where allocations look wrong, run without it",
        )
    } else if libraries.is_empty() {
        Check::ok(key, "nothing is preloaded")
    } else {
        Check::ok(key, format!("{variable}: none of it answers for CUDA"))
    };
    check.with(data)
}

fn set(name: &str, value: &str, why: &str) -> Check {
    let key = format!("environment.{name}");
    let check = if value.is_empty() {
        Check::ok(key, "not set")
    } else {
        Check::warning(
            key,
            format!("{value}: {why}"),
            format!("unset {name} for the job"),
        )
    };
    check.with(json!({ "value": value }))
}

fn injection(value: &str) -> Check {
    let key = "environment.CUDA_INJECTION64_PATH";
    if value.is_empty() {
        return Check::ok(key, "not set").with(json!({ "value": value }));
    }
    let who = neighbour(Path::new(value));
    let named = who.map(|who| format!(" ({who})")).unwrap_or_default();
    Check::warning(
        key,
        format!("{value}{named} is loaded into every CUDA program and is likely to hold CUPTI"),
        "unset it, or the recording has no kernel times and no migrations",
    )
    .with(json!({ "value": value, "tool": who }))
}

/// A folder of the toolkit's stubs, in which a program may find a libcuda without a driver.
fn stubs(path: &str) -> Check {
    let key = "environment.LD_LIBRARY_PATH";
    let stub = path
        .split(':')
        .filter(|folder| folder.trim_end_matches('/').ends_with("/stubs"))
        .find(|folder| Path::new(folder).join("libcuda.so").exists());
    let check = match stub {
        Some(folder) => Check::warning(
            key,
            format!("{folder} holds the toolkit's stub of libcuda"),
            "take it off LD_LIBRARY_PATH: it is for linking only",
        ),
        None => Check::ok(key, "no folder of stubs"),
    };
    check.with(json!({ "stubs": stub }))
}

fn allocator(get: &dyn Fn(&str) -> String) -> Check {
    let key = "environment.allocator";
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        let value = get(name);
        let what = if value.contains("expandable_segments:True") {
            (
                "expandable segments are not converted",
                "expandable_segments:False",
            )
        } else {
            continue;
        };
        let text = format!("{name}={value}: {}", what.0);
        return Check::warning(key, text, format!("set {}", what.1))
            .with(json!({ "variable": name, "value": value }));
    }
    Check::ok(
        key,
        "PyTorch's allocator is not set in a way that hides memory",
    )
}

fn profilers(names: &[String]) -> Check {
    let key = "environment.profiler";
    let found = names.iter().find_map(|name| {
        let known = PROFILERS.iter().find(|(start, _)| name.starts_with(start));
        known.map(|(_, who)| (name, *who))
    });
    match found {
        Some((name, who)) => Check::warning(
            key,
            format!("{who} runs this: {name} is set"),
            "it holds CUPTI: start transit-record outside of it",
        )
        .with(json!({ "variable": name, "tool": who })),
        None => Check::ok(key, "no profiler announces itself"),
    }
}

/// Variables that change what a job sees, for the record.
fn seen(names: &[String], get: &dyn Fn(&str) -> String) -> Check {
    const WORTH: [&str; 5] = [
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NVTX_INJECTION64_PATH",
        "CUDA_MODULE_LOADING",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
    ];
    let mut found: Vec<String> = names
        .iter()
        .filter(|name| name.starts_with("TRANSIT_") || WORTH.contains(&name.as_str()))
        .map(|name| format!("{name}={}", get(name)))
        .collect();
    found.sort();
    let text = if found.is_empty() {
        "nothing else is set that matters here".to_owned()
    } else {
        found.join(" ")
    };
    Check::ok("environment.set", text).with(json!(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::State;

    #[test]
    fn traps_are_warnings_and_bystanders_are_not() {
        assert_eq!(preloads("", "/nonexistent").state, State::Ok);
        assert_eq!(
            preloads("/lib/libjemalloc.so.2", "/nonexistent").state,
            State::Ok
        );
        assert_eq!(
            preloads("/x/libnvshare.so", "/nonexistent").state,
            State::Warning
        );
        assert_eq!(injection("/o/libcuinj64.so").state, State::Warning);
        assert_eq!(
            profilers(&["NSYS_PROFILING_SESSION_ID".into()]).state,
            State::Warning
        );
        let expandable = |name: &str| {
            let set = name == "PYTORCH_CUDA_ALLOC_CONF";
            if set {
                "expandable_segments:True".to_owned()
            } else {
                String::new()
            }
        };
        assert_eq!(allocator(&expandable).state, State::Warning);
        assert_eq!(allocator(&|_| String::new()).state, State::Ok);
    }
}
