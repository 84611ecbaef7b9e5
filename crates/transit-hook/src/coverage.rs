//! The line a shim says once it is live: what it reaches, and what gets past it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::env;
use std::sync::{Mutex, PoisonError};

use crate::callers::Caller;
use crate::driver::Driver;
use crate::{hooks, log, neighbours, state};

/// Names remembered at most.
const MOST_NAMES: usize = 32;
/// Beginnings of names that allocate, launch or move: passing one uncovered is worth a word.
const WORTH_A_WORD: [&str; 6] = [
    "cuLaunch",
    "cuMemAlloc",
    "cuMemcpy",
    "cuMemset",
    "cuGraphLaunch",
    "cuGraphInstantiate",
];
/// Parts of names that are left alone on purpose: host memory and functions, arrays, and the
/// first forms of the ABI, which nobody has called since CUDA 3.2.
const ON_PURPOSE: [&str; 6] = ["Host", "AtoD", "AtoH", "AtoA", "DtoA", "HtoA"];

static UNCOVERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A resolver answered with a function we have no wrapper for.
pub(crate) fn passed_uncovered(name: &CStr) {
    let Ok(name) = name.to_str() else { return };
    if !WORTH_A_WORD.iter().any(|start| name.starts_with(start))
        || ON_PURPOSE.iter().any(|part| name.contains(part))
    {
        return;
    }
    // In a forked child the lock may be held by a thread that is not there.
    let Ok(mut names) = UNCOVERED.try_lock() else {
        return;
    };
    if names.len() < MOST_NAMES && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// Names of functions that allocate, launch or move and were handed out without a wrapper.
#[must_use]
pub fn uncovered() -> Vec<String> {
    UNCOVERED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// One line for humans and trace headers.
#[must_use]
pub fn line(driver: &Driver) -> String {
    let version = driver.version().unwrap_or(0);
    let mut text = format!(
        "driver {}.{}, {} of {} hooks have a driver function, {} handed out",
        version / 1000,
        version % 1000 / 10,
        hooks::bound(),
        hooks::COUNT,
        hooks::reached(),
    );
    let names = uncovered();
    if !names.is_empty() {
        text.push_str("; not covered: ");
        text.push_str(&names.join(" "));
    }
    let bytes = crate::ledger::counters().unconverted_bytes;
    if bytes != 0 {
        text.push_str(&format!("; {bytes} bytes unconverted"));
    }
    for way in Bypass::ALL {
        let asked = way.asked().load(Ordering::Relaxed);
        if asked != 0 {
            text.push_str(&format!("; {asked} bytes asked for through {}", way.name()));
        }
    }
    text
}

/// Says, at the first allocation or op, what is covered, what the driver lacks, and what is set in
/// a way that hides memory from us. A process that only asks for devices says nothing.
pub(crate) fn report_once() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(driver) = state::driver() {
        report(driver);
    }
}

#[cold]
fn report(driver: &Driver) {
    if !state::quiet() {
        log::say(format_args!("{}", line(driver)));
    }
    neighbours::report();
    for (lacks, what) in lacking(driver) {
        if lacks {
            log::say(format_args!("the driver is too old {what}"));
        }
    }
}

/// The job launches as before CUDA 4.0: its arguments went to the driver one by one, by
/// `cuParamSet*`. The newest driver headers (13.x) still declare these calls.
#[cold]
pub(crate) fn old_launch() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        log::say(format_args!(
            "the job launches through cuLaunch or cuLaunchGrid (before CUDA 4.0): such ops are \
             seen without their pointers"
        ));
    }
}

/// What an older driver cannot do, and what that costs.
fn lacking(driver: &Driver) -> [(bool, &'static str); 3] {
    [
        (
            driver.func_get_param_info.is_none(),
            "to describe kernel arguments (12.4): ops are seen without their pointers",
        ),
        (
            driver.func_get_name.is_none(),
            "to name kernels (12.3): names are those by which the job asked for them",
        ),
        (
            driver.mem_prefetch_v2.is_none() && driver.mem_prefetch_v1.is_none(),
            "to prefetch: nothing can be moved ahead of need",
        ),
    ]
}

/// A way to take device memory past conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    /// Stream-ordered pools.
    Pool,
    /// Virtual memory management.
    Virtual,
    /// Memory nodes of graphs.
    Graph,
}

impl Bypass {
    const ALL: [Self; 3] = [Self::Pool, Self::Virtual, Self::Graph];

    fn name(self) -> &'static str {
        match self {
            Self::Pool => "cuMemAllocAsync",
            Self::Virtual => "cuMemCreate",
            Self::Graph => "memory nodes of graphs",
        }
    }

    fn asked(self) -> &'static AtomicU64 {
        static ASKED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
        let [pool, virtual_memory, graph] = &ASKED;
        match self {
            Self::Pool => pool,
            Self::Virtual => virtual_memory,
            Self::Graph => graph,
        }
    }
}

/// Memory that conversion would have wanted was taken in a way that it does not cover, by somebody
/// who is no library of communication: says so once for each way.
pub(crate) fn bypassed(way: Bypass, caller: Caller, bytes: u64) {
    if caller.excluded {
        return;
    }
    let before = way.asked().fetch_add(bytes, Ordering::Relaxed);
    if before != 0 || bytes == 0 {
        return;
    }
    report_once();
    let who = if caller.name.is_empty() {
        "the job"
    } else {
        caller.name
    };
    let how = way.name();
    if way == Bypass::Virtual && who.contains("xla") {
        // XLA's allocators of jaxlib 0.11 all end in cuMemCreate, except this one (H200).
        log::complain(format_args!(
            "{who} allocates through {how}: that memory is counted but not converted; set \
             TF_FORCE_UNIFIED_MEMORY=1, with which XLA takes managed memory itself"
        ));
    } else if way == Bypass::Virtual {
        let setting = expandable_setting();
        log::complain(format_args!(
            "{who} allocates through {how}: that memory is counted but not converted; if these are \
             PyTorch's expandable segments, set {setting}=expandable_segments:False"
        ));
    } else {
        log::say(format_args!(
            "{who} allocates through {how}: that memory is counted but not converted"
        ));
    }
}

/// The variable by which the job turned expandable segments on, else the one to turn them off by.
fn expandable_setting() -> &'static str {
    const NAMES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];
    let on =
        |name: &&str| env::var(name).is_ok_and(|value| value.contains("expandable_segments:True"));
    NAMES
        .iter()
        .copied()
        .find(on)
        .unwrap_or("PYTORCH_CUDA_ALLOC_CONF")
}
