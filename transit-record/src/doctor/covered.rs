//! What of a job's memory would be converted to managed memory, and what would not.

use bytesize::ByteSize;
use serde_json::json;
use transit_hook::Settings;

use super::ask::Asked;
use super::report::Check;

pub(super) fn checks(asked: &Asked) -> Vec<Check> {
    let settings = Settings::from_env("transit-record");
    let mut checks = vec![off(&settings), settable(&settings)];
    if asked.facts.init == Some(0) {
        checks.push(converted(&settings, asked));
    }
    checks
}

fn off(settings: &Settings) -> Check {
    if settings.disable {
        let next = "unset TRANSIT_DISABLE";
        return Check::warning(
            "settings.on",
            "TRANSIT_DISABLE switches all of it off",
            next,
        );
    }
    Check::ok("settings.on", "not switched off")
}

fn settable(settings: &Settings) -> Check {
    let data = json!({ "unreadable": settings.unreadable });
    let check = if settings.unreadable.is_empty() {
        Check::ok("settings.readable", "every TRANSIT_ variable can be read")
    } else {
        let text = format!("{}: no number, ignored", settings.unreadable.join(", "));
        Check::warning("settings.readable", text, "give plain bytes or items")
    };
    check.with(data)
}

fn converted(settings: &Settings, asked: &Asked) -> Check {
    let gpus = &asked.facts.gpus;
    let managed = gpus.iter().filter(|gpu| gpu.concurrent_managed_access);
    let excluded: Vec<&str> = transit_hook::excluded_libraries()
        .iter()
        .copied()
        .chain(settings.exclude.iter().map(String::as_str))
        .collect();
    // Managed pools came with CUDA 13.
    let pools = settings.pools && asked.facts.cuda_version >= 13_000;
    let text = format!(
        "device memory of {} and more on {} of {} GPUs, {} stream-ordered memory; not: smaller \
         requests, virtual memory, arrays, graphs' own memory, and what {} ask for",
        ByteSize::b(settings.min_bytes),
        managed.count(),
        gpus.len(),
        if pools { "and" } else { "without" },
        excluded.join(", ")
    );
    Check::ok("converted", text).with(json!({
        "min_bytes": settings.min_bytes,
        "stream_ordered": pools,
        "excluded": excluded,
        "no_oversubscribe": settings.no_oversubscribe,
    }))
}
