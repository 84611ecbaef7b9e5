#![allow(dead_code, reason = "each test binary uses its part")]
//! The fake driver, built and mapped once, and an observer that writes down what it is told.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use transit_hook::{
    Allocation, DeviceRecords, Driver, FunctionInfo, Observer, OpCall, PointerArg, Settings,
    StreamInfo, wrappers,
};

/// What the observer was told, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Function(String, u32),
    Stream(u32, usize),
    Allocated {
        bytes: u64,
        converted: bool,
        managed: bool,
        caller: String,
    },
    Freeing(u64),
    Before(Op),
    After(u64, u32),
    Synchronised,
    Capturing(bool),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Op {
    pub(crate) seq: u64,
    pub(crate) kind: String,
    pub(crate) stream_handle: usize,
    pub(crate) name_hash: u64,
    pub(crate) records: DeviceRecords,
    pub(crate) capturing: bool,
    pub(crate) pointers: Vec<PointerArg>,
}

struct Notes;
static NOTES: Mutex<Vec<Told>> = Mutex::new(Vec::new());
static QUIET: AtomicBool = AtomicBool::new(false);
static FAULTY: AtomicBool = AtomicBool::new(false);

fn note(told: Told) {
    NOTES.lock().unwrap().push(told);
}

impl Observer for Notes {
    fn started(&self, driver: &'static Driver) {
        assert_eq!(driver.version(), Ok(13000));
    }
    fn function(&self, function: &FunctionInfo<'_>) {
        note(Told::Function(function.name.to_owned(), function.params));
    }
    fn stream(&self, stream: &StreamInfo) {
        note(Told::Stream(stream.id.0, stream.handle));
    }
    fn allocated(&self, allocation: &Allocation) {
        note(Told::Allocated {
            bytes: allocation.bytes,
            converted: allocation.converted,
            managed: allocation.managed,
            caller: allocation.caller.to_owned(),
        });
    }
    fn freeing(&self, allocation: &Allocation) {
        note(Told::Freeing(allocation.bytes));
    }
    fn before_op(&self, op: &OpCall<'_>) -> Option<u64> {
        assert!(!FAULTY.load(Ordering::Relaxed), "a fault of the observer's");
        if QUIET.load(Ordering::Relaxed) {
            return None;
        }
        note(Told::Before(Op {
            seq: op.seq.0,
            kind: format!("{:?}", op.kind),
            stream_handle: op.stream_handle,
            name_hash: op.name_hash,
            records: op.records,
            capturing: op.capturing,
            pointers: op.pointers.to_vec(),
        }));
        Some(op.seq.0)
    }
    fn after_op(&self, op: &OpCall<'_>, word: u64, result: u32) {
        assert_eq!(word, op.seq.0, "what the same op was answered");
        note(Told::After(op.seq.0, result));
    }
    fn synchronised(&self) {
        note(Told::Synchronised);
    }
    fn capturing(&self, begin: bool) {
        note(Told::Capturing(begin));
    }
    fn closing(&self) {}
}

/// One test's turn with the process-wide shim.
pub(crate) struct Turn {
    library: *mut c_void,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the turn, with the shim live and nothing noted.
pub(crate) fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    static LIVE: Once = Once::new();
    let held = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    LIVE.call_once(|| {
        build_and_map();
        let settings = Settings::from_lookup("transit-test", &|name| match name {
            "TRANSIT_QUIET" => Some("1".to_owned()),
            "TRANSIT_CEILING_BYTES" => Some((1_u64 << 30).to_string()),
            _ => None,
        });
        transit_hook::install(&Notes, settings);
        assert!(!hooked_before_init(), "before cuInit nothing is observed");
        // SAFETY: the fake's cuInit takes flags.
        assert_eq!(unsafe { wrappers::cuInit(0) }, 0);
    });
    NOTES.lock().unwrap().clear();
    Turn {
        library: open(),
        _turn: held,
    }
}

/// Calls a wrapper before `cuInit`; whether the observer was told.
fn hooked_before_init() -> bool {
    let call: Sync = call(wrappers::cuStreamSynchronize);
    // SAFETY: the fake ignores the stream.
    assert_eq!(unsafe { call(0) }, 0);
    !NOTES.lock().unwrap().is_empty()
}

pub(crate) type Sync = unsafe extern "C" fn(usize) -> u32;

/// A wrapper as a function of its driver signature.
pub(crate) fn call<F: Copy>(wrapper: unsafe extern "C" fn()) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: both are function pointers; the caller gives the driver's signature.
    unsafe { core::mem::transmute_copy(&wrapper) }
}

fn build_and_map() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fake-driver");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("libcuda-{}.so.1", std::process::id()));
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/live/fake_driver.c");
    let built = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-O1",
            "-w",
            "-Wl,-soname,libcuda.so.1",
            "-Wl,-Bsymbolic",
        ])
        .arg("-o")
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(built.success());
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library has no constructors.
    let mapped = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!mapped.is_null());
    std::fs::remove_file(library).unwrap();
}

fn open() -> *mut c_void {
    // SAFETY: with RTLD_NOLOAD nothing runs.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }
}

impl Turn {
    /// Everything noted since the last call.
    pub(crate) fn told(&self) -> Vec<Told> {
        core::mem::take(&mut *NOTES.lock().unwrap())
    }

    /// Stops noting ops, for measurements.
    pub(crate) fn quietly(&self, quiet: bool) {
        QUIET.store(quiet, Ordering::Relaxed);
    }

    /// Makes the observer panic at the next op.
    pub(crate) fn break_observer(&self) {
        FAULTY.store(true, Ordering::Relaxed);
    }

    /// The fake's own function or variable.
    pub(crate) fn real(&self, name: &CStr) -> *mut c_void {
        transit_hook::real_symbol(self.library, name)
    }

    /// Reads a 64-bit variable of the fake.
    pub(crate) fn get(&self, name: &CStr) -> u64 {
        // SAFETY: the variable exists and no other thread writes it during a turn.
        unsafe { self.real(name).cast::<u64>().read() }
    }

    /// Reads an entry of the last launch's arguments.
    pub(crate) fn last(&self, index: usize) -> u64 {
        assert!(index < 16);
        let entry = self.real(c"fake_last").cast::<u64>().wrapping_add(index);
        // SAFETY: the array has 16 entries.
        unsafe { entry.read() }
    }

    /// Sets a 64-bit variable of the fake.
    pub(crate) fn set(&self, name: &CStr, value: u64) {
        // SAFETY: as `get`.
        unsafe { self.real(name).cast::<u64>().write(value) }
    }

    /// Sets an int of the fake.
    pub(crate) fn set_int(&self, name: &CStr, value: c_int) {
        // SAFETY: as `get`.
        unsafe { self.real(name).cast::<c_int>().write(value) }
    }

    /// Reads an int of the fake.
    pub(crate) fn get_int(&self, name: &CStr) -> c_int {
        // SAFETY: as `get`.
        unsafe { self.real(name).cast::<c_int>().read() }
    }

    /// Allocates through the hook.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, u32> {
        let alloc: unsafe extern "C" fn(*mut u64, usize) -> u32 = call(wrappers::cuMemAlloc_v2);
        let mut address = 0xdead;
        // SAFETY: a live local for the answer.
        match unsafe { alloc(&raw mut address, bytes) } {
            0 => Ok(address),
            error => {
                assert_eq!(address, 0xdead, "a refusal leaves the answer alone");
                Err(error)
            }
        }
    }

    /// Frees through the hook.
    pub(crate) fn free(&self, address: u64) -> u32 {
        let free: unsafe extern "C" fn(u64) -> u32 = call(wrappers::cuMemFree_v2);
        // SAFETY: the fake takes any address.
        unsafe { free(address) }
    }
}

/// What `cuGetProcAddress_v2` answers through the hook.
pub(crate) fn proc_address(name: &CStr, flags: u64) -> (u32, *mut c_void) {
    let mut answer = core::ptr::null_mut();
    let mut status: c_int = -1;
    let text: *const c_char = name.as_ptr();
    // SAFETY: live locals for the answers.
    let result = unsafe {
        wrappers::cuGetProcAddress_v2(text, &raw mut answer, 12000, flags, &raw mut status)
    };
    (result, answer)
}
