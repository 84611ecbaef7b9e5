//! Device functions: from a launch handle (a `CUfunction` or a `CUkernel`) to name, number and
//! parameter layout, asked of the driver once per handle and generation. A generation ends when a
//! module or library is unloaded, because handles come again for other functions.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use transit_format::ids::FunctionId;
use transit_format::plan::name_hash;

use crate::driver::{Driver, Handle};
use crate::handles::HandleMap;
use crate::observer::FunctionInfo;
use crate::scan::MOST_BYTES;
use crate::{state, tensor_maps};

/// Parameters asked about at most (4 KiB of arguments, one byte each).
const MOST_PARAMS: u32 = 4096;

/// A parameter that has room for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    /// Which of the function's parameters, from 0.
    pub(crate) index: u32,
    /// Whole words in it.
    pub(crate) words: u32,
    /// Where it lies in the argument buffer, in bytes.
    pub(crate) offset: u32,
}

impl Param {
    /// It has the size of a tensor map.
    pub(crate) fn may_be_map(&self) -> bool {
        self.words as usize == tensor_maps::WORDS
    }
}

/// What the launch path needs of a function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) id: FunctionId,
    pub(crate) hash: u64,
    /// Those of its parameters that are looked at, at every launch.
    pub(crate) params: Box<[Param]>,
    /// Some of them may be tensor maps.
    pub(crate) may_have_maps: bool,
    /// How many it has in all.
    param_count: u32,
    name: Box<str>,
    generation: AtomicU64,
}

static GENERATION: AtomicU64 = AtomicU64::new(1);

static KNOWN: HandleMap<Function, { 1 << 15 }> = HandleMap::new();

/// A module or library is gone: every handle may mean something else from now on.
pub(crate) fn unloaded() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// The function behind a launch handle.
#[inline]
pub(crate) fn of(driver: &Driver, handle: Handle) -> Option<&'static Function> {
    let generation = GENERATION.load(Ordering::Acquire);
    match KNOWN.get(handle) {
        Some(found) if found.generation.load(Ordering::Relaxed) == generation => Some(found),
        before => ask(driver, handle, before, generation),
    }
}

#[cold]
fn ask(
    driver: &Driver,
    handle: Handle,
    before: Option<&'static Function>,
    generation: u64,
) -> Option<&'static Function> {
    let (name, is_kernel) = name_of(driver, handle);
    let (params, param_count) = params_of(driver, handle, is_kernel);
    let unchanged = |same: &&Function| {
        *same.name == *name && *same.params == *params && same.param_count == param_count
    };
    if let Some(same) = before.filter(unchanged) {
        same.generation.store(generation, Ordering::Relaxed);
        return Some(same);
    }
    let id = number(&name, param_count);
    let function = Function {
        id,
        hash: name_hash(name.as_bytes()),
        may_have_maps: params.iter().any(Param::may_be_map),
        params,
        param_count,
        name: name.into(),
        generation: AtomicU64::new(generation),
    };
    KNOWN.insert(handle, function)
}

/// The number of an op that is no kernel, by its name (`memset`, `memcpy`, `graph`).
pub(crate) fn of_pseudo(
    name: &'static str,
    cell: &OnceLock<(FunctionId, u64)>,
) -> (FunctionId, u64) {
    *cell.get_or_init(|| (number(name, 0), name_hash(name.as_bytes())))
}

/// Numbers a function by name and parameters and tells the observer of a new one, in one piece so
/// that numbers are told in order and before the first op.
fn number(name: &str, params: u32) -> FunctionId {
    type Numbers = HashMap<(String, u32), FunctionId>;
    static NUMBERS: Mutex<Option<Numbers>> = Mutex::new(None);
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = numbers.get_or_insert_default();
    let key = (name.to_owned(), params);
    if let Some(id) = numbers.get(&key) {
        return *id;
    }
    crate::coverage::report_once();
    let id = FunctionId(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
    numbers.insert(key, id);
    if let Some(observer) = state::observer() {
        observer.function(&FunctionInfo { id, name, params });
    }
    id
}

/// The name, and whether the handle is a `CUkernel`. An old driver knows no names.
fn name_of(driver: &Driver, handle: Handle) -> (String, bool) {
    let mut text: *const c_char = ptr::null();
    for (entry, is_kernel) in [
        (driver.func_get_name, false),
        (driver.kernel_get_name, true),
    ] {
        let Some(entry) = entry else { continue };
        // SAFETY: the driver's own function; `text` is a live local.
        let result = unsafe { entry(&raw mut text, handle) };
        if result == 0 && !text.is_null() {
            // SAFETY: on success the driver's string is NUL-terminated and lives with the handle.
            let name = unsafe { CStr::from_ptr(text) };
            return (name.to_string_lossy().into_owned(), is_kernel);
        }
    }
    (
        given_name(handle).unwrap_or_else(|| "unknown".to_owned()),
        false,
    )
}

type Given = HashMap<Handle, String>;

/// Names under which functions were asked for: all there is before 12.3.
fn given() -> MutexGuard<'static, Option<Given>> {
    static GIVEN: Mutex<Option<Given>> = Mutex::new(None);
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn given_name(handle: Handle) -> Option<String> {
    given().as_ref()?.get(&handle).cloned()
}

/// The job got a handle by name. Remembered if the driver cannot say the name later.
pub(crate) fn found_by_name(driver: &Driver, handle: Handle, name: &CStr) {
    if driver.func_get_name.is_none() {
        let name = name.to_string_lossy().into_owned();
        given().get_or_insert_default().insert(handle, name);
    }
}

/// The layout: asked for one index after the other until the driver says there is none. Before
/// 12.4 the driver does not say, and the layout is empty. Also how many parameters there are.
fn params_of(driver: &Driver, handle: Handle, is_kernel: bool) -> (Box<[Param]>, u32) {
    let entry = if is_kernel {
        driver.kernel_get_param_info
    } else {
        driver.func_get_param_info
    };
    let Some(entry) = entry else {
        return Default::default();
    };
    let mut params = Vec::new();
    let mut count = 0;
    while count < MOST_PARAMS {
        let (mut offset, mut bytes) = (0_usize, 0_usize);
        // SAFETY: the driver's own function; the out-pointers are live locals.
        let result = unsafe { entry(handle, count as usize, &raw mut offset, &raw mut bytes) };
        if result != 0 {
            break;
        }
        let words = bytes.min(MOST_BYTES) / size_of::<u64>();
        if words > 0
            && let (Ok(words), Ok(offset)) = (u32::try_from(words), u32::try_from(offset))
        {
            params.push(Param {
                index: count,
                words,
                offset,
            });
        }
        count += 1;
    }
    (params.into_boxed_slice(), count)
}
