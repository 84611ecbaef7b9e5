//! Who calls: from a return address to the library it lies in, for the caller column of
//! allocations, for exclusion (libraries whose memory must stay what they asked for) and for
//! pointer answers. A look-up is a range search in a snapshot of the mapped objects; the dynamic
//! linker is asked only when an address is new.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::settings::Settings;
use crate::{injected, thread};

/// Libraries whose allocations are never converted: they share memory with other processes or
/// devices (IPC, RDMA, GPUDirect storage), or are CUPTI itself. Beginnings of file names.
const EXCLUDED: [&str; 6] = [
    "libnccl",
    "libnvshmem",
    "libcufile",
    "libcupti",
    "libgdrapi",
    "libtransit_",
];

/// Beginnings of the names of libraries whose allocations are never converted.
#[must_use]
pub fn excluded_libraries() -> &'static [&'static str] {
    &EXCLUDED
}

/// Libraries that are told that converted memory is managed: they choose transports by it.
const TRUTHFUL: [&str; 11] = [
    "libuc",
    "libmpi",
    "libopen-pal",
    "libopen-rte",
    "libmpich",
    "libfabric",
    "libcupti",
    "libcufile",
    "libnvshmem",
    "libgdrapi",
    "libtransit_",
];

/// A library, as far as we care.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// File name; empty if unknown.
    pub(crate) name: &'static str,
    /// Its allocations stay as they are; its ops are never waited for.
    pub(crate) excluded: bool,
    /// It is told that converted memory is managed.
    pub(crate) truthful: bool,
}

/// Nobody known.
pub(crate) const UNKNOWN: Caller = Caller {
    name: "",
    excluded: false,
    truthful: false,
};

/// A stretch of a library's code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    start: usize,
    end: usize,
    caller: Caller,
}

#[derive(Debug, Default)]
struct Snapshot {
    ranges: Vec<Range>,
    /// How many objects had been loaded when it was taken.
    adds: u64,
}

/// The user's additions to the list of excluded libraries, and what they take off it.
#[derive(Debug, Default)]
struct Lists {
    exclude: Vec<String>,
    include: Vec<String>,
}

static SNAPSHOT: AtomicPtr<Snapshot> = AtomicPtr::new(core::ptr::null_mut());
static LISTS: OnceLock<Lists> = OnceLock::new();
/// Pages that belong to no object (generated code), so that they are asked about once.
static NOWHERE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Takes the exclusion list and the first snapshot.
pub(crate) fn start(settings: &Settings) {
    let _ = LISTS.set(Lists {
        exclude: settings.exclude.clone(),
        include: settings.include.clone(),
    });
    refresh();
}

/// The library a return address lies in.
#[inline]
pub(crate) fn who(address: usize) -> Caller {
    match last(address) {
        Some(range) => range.caller,
        None => search(address),
    }
}

/// Whether that library's ops are never waited for: all that a launch needs of it.
#[inline]
pub(crate) fn excluded(address: usize) -> bool {
    match last(address) {
        Some(range) => range.caller.excluded,
        None => search(address).excluded,
    }
}

/// Where this thread's last caller lies, if that is there.
#[inline]
fn last(address: usize) -> Option<&'static Range> {
    let last = thread::with(|thread| thread.last_caller.get());
    last.filter(|last| address >= last.start && address < last.end)
}

#[inline(never)]
fn search(address: usize) -> Caller {
    if address == 0 {
        return UNKNOWN;
    }
    if let Some(range) = find(address) {
        thread::with(|thread| thread.last_caller.set(Some(range)));
        return range.caller;
    }
    unknown_page(address)
}

fn find(address: usize) -> Option<&'static Range> {
    let pointer = SNAPSHOT.load(Ordering::Acquire);
    // SAFETY: null, or a snapshot leaked by `refresh`.
    let snapshot = unsafe { pointer.as_ref() }?;
    let next = snapshot
        .ranges
        .partition_point(|range| range.start <= address);
    let range = snapshot.ranges.get(next.checked_sub(1)?)?;
    (address < range.end).then_some(range)
}

#[cold]
fn unknown_page(address: usize) -> Caller {
    let page = (address >> 12) as u64;
    let first = usize::try_from(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54).unwrap_or(0);
    let Some(place) = NOWHERE.get(first) else {
        return UNKNOWN;
    };
    if place.load(Ordering::Relaxed) == page {
        return UNKNOWN;
    }
    refresh();
    match find(address) {
        Some(range) => range.caller,
        None => {
            place.store(page, Ordering::Relaxed);
            UNKNOWN
        }
    }
}

/// Takes a new snapshot if objects were loaded since the last. Old ones are leaked: readers may be
/// in them, and there are as many as times that a new library called for the first time.
fn refresh() {
    static EDIT: Mutex<()> = Mutex::new(());
    let _edit = EDIT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fresh = Snapshot::default();
    // SAFETY: the callback has the signature asked for; `fresh` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut fresh).cast()) };
    // SAFETY: null, or a snapshot leaked below.
    let old = unsafe { SNAPSHOT.load(Ordering::Acquire).as_ref() };
    if old.is_some_and(|old| old.adds == fresh.adds) {
        return;
    }
    fresh.ranges.sort_unstable_by_key(|range| range.start);
    for place in &NOWHERE {
        place.store(0, Ordering::Relaxed);
    }
    SNAPSHOT.store(Box::into_raw(Box::new(fresh)), Ordering::Release);
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _bytes: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let info = unsafe { &*info };
    // SAFETY: `data` is the snapshot of `refresh`, alive and not otherwise borrowed.
    let snapshot = unsafe { &mut *data.cast::<Snapshot>() };
    snapshot.adds = info.dlpi_adds;
    // SAFETY: the headers are those of a mapped object.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let caller = describe(file_name(info));
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            let Ok(start) = usize::try_from(start) else {
                continue;
            };
            let Ok(bytes) = usize::try_from(header.p_memsz) else {
                continue;
            };
            snapshot.ranges.push(Range {
                start,
                end: start.wrapping_add(bytes),
                caller,
            });
        }
    }
    0
}

fn file_name(info: &libc::dl_phdr_info) -> String {
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: non-null names are NUL-terminated.
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned()
    };
    if path.is_empty() {
        // The main program, whose name the dynamic linker leaves out.
        let program = std::env::current_exe().unwrap_or_default();
        return program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
    }
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn describe(name: String) -> Caller {
    if injected::injected() && name.starts_with("libtransit_") {
        // Calls come to us by CUPTI's word, which does not say who made them, and leaves nothing
        // to change.
        return Caller {
            excluded: true,
            ..UNKNOWN
        };
    }
    let excluded = is_excluded(&name, LISTS.get().unwrap_or(&Lists::default()));
    let truthful = TRUTHFUL.iter().any(|start| name.starts_with(start));
    Caller {
        name: interned(name),
        excluded,
        truthful,
    }
}

/// Whether a library's allocations stay as they are. What the user names counts before the list
/// of defaults, and an exclusion before an inclusion.
fn is_excluded(name: &str, lists: &Lists) -> bool {
    let in_list = |list: &[String]| list.iter().any(|start| name.starts_with(start.as_str()));
    let by_default = EXCLUDED.iter().any(|start| name.starts_with(start));
    // Ours is no matter of choice.
    let included = in_list(&lists.include) && !name.starts_with("libtransit_");
    in_list(&lists.exclude) || (by_default && !included)
}

/// The same name once, for the process' life.
fn interned(name: String) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.into_boxed_str());
    names.push(leaked);
    leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_placed_in_its_library_and_data_nowhere() {
        let settings = Settings::from_lookup("transit-test", &|name| {
            (name == "TRANSIT_EXCLUDE").then(|| "libc.so".to_owned())
        });
        start(&settings);
        let mine = who(code_is_placed_in_its_library_and_data_nowhere as fn() as usize);
        assert!(mine.name.starts_with("transit_hook"), "{mine:?}");
        assert!(!mine.excluded);
        let theirs = who(libc::getpid as *const () as usize);
        assert!(theirs.name.starts_with("libc.so"), "{theirs:?}");
        assert!(theirs.excluded, "TRANSIT_EXCLUDE names it");
        for _ in 0..3 {
            assert_eq!(who(0x10).name, "");
        }
    }

    #[test]
    fn the_libraries_that_share_memory_are_left_alone() {
        for name in [
            "libnccl.so.2",
            "libnvshmem_host.so.3",
            "libcufile.so.0",
            "libcupti.so.13",
        ] {
            assert!(describe(name.to_owned()).excluded, "{name}");
        }
        for name in [
            "libcudart.so.13",
            "libcublasLt.so.13",
            "libtorch_cuda.so",
            "python3.12",
        ] {
            assert!(!describe(name.to_owned()).excluded, "{name}");
        }
        for name in [
            "libucp.so.0",
            "libmpi.so.40",
            "libfabric.so.1",
            "libcupti.so.13",
        ] {
            assert!(describe(name.to_owned()).truthful, "{name}");
        }
        assert!(!describe("libtorch_cuda.so".to_owned()).truthful);
    }

    #[test]
    fn the_list_can_be_added_to_and_taken_from() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let lists = Lists {
            exclude: list(&["libmine", "libcufile_rdma"]),
            include: list(&["libcufile", "libtransit_"]),
        };
        assert!(is_excluded("libmine.so.1", &lists));
        assert!(is_excluded("libnccl.so.2", &lists));
        assert!(!is_excluded("libcufile.so.0", &lists));
        assert!(is_excluded("libcufile_rdma.so.1", &lists));
        assert!(is_excluded("libtransit_record.so", &lists));
    }
}
