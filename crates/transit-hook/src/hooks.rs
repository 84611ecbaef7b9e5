//! The table of hooks: name, wrapper, and the driver's own function. Resolvers hand out a wrapper
//! only for a function whose real address is in the table, so a wrapper never lacks its real one.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::{resolve, wrappers};

macro_rules! table {
    ($($name:ident,)*) => {
        /// One hooked driver function.
        #[expect(non_camel_case_types, reason = "the driver's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Hook {
            cuInit,
            cuGetProcAddress,
            cuGetProcAddress_v2,
            $($name,)*
        }

        const TABLE: &[(Hook, &CStr, Wrapper)] = &[
            (Hook::cuInit, c"cuInit", Wrapper(wrappers::cuInit as *const c_void)),
            (
                Hook::cuGetProcAddress,
                c"cuGetProcAddress",
                Wrapper(wrappers::cuGetProcAddress as *const c_void),
            ),
            (
                Hook::cuGetProcAddress_v2,
                c"cuGetProcAddress_v2",
                Wrapper(wrappers::cuGetProcAddress_v2 as *const c_void),
            ),
            $((Hook::$name, to_cstr(concat!(stringify!($name), "\0")), Wrapper(
                wrappers::$name as *const c_void,
            )),)*
        ];
    };
}
crate::for_each_hook!(table);

/// Number of hooks.
pub(crate) const COUNT: usize = TABLE.len();

static REALS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];
static DONE: AtomicBool = AtomicBool::new(false);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// A wrapper's address.
#[derive(Clone, Copy)]
struct Wrapper(*const c_void);
// SAFETY: the address of a function, never written through.
unsafe impl Sync for Wrapper {}

const fn to_cstr(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// The hook of that exact name.
pub(crate) fn by_name(name: &CStr) -> Option<Hook> {
    TABLE
        .iter()
        .find(|(_, known, _)| *known == name)
        .map(|(hook, _, _)| *hook)
}

/// A hook's name.
pub(crate) fn name_of(hook: Hook) -> &'static CStr {
    TABLE.get(hook as usize).map_or(c"", |(_, name, _)| name)
}

/// A hook's wrapper; marks the hook as handed out.
pub(crate) fn wrapper_of(hook: Hook) -> *mut c_void {
    if let Some(reached) = REACHED.get(hook as usize) {
        reached.store(true, Ordering::Relaxed);
    }
    TABLE
        .get(hook as usize)
        .map_or(ptr::null_mut(), |(_, _, wrapper)| wrapper.0.cast_mut())
}

/// Whether an address is one of our wrappers (a driver that asks `dlsym` for its own exports is
/// given them).
pub(crate) fn is_wrapper(address: *mut c_void) -> bool {
    TABLE
        .iter()
        .any(|(_, _, wrapper)| wrapper.0.cast_mut() == address)
}

/// How many hooks have been handed out by a resolver.
pub(crate) fn reached() -> usize {
    REACHED
        .iter()
        .filter(|reached| reached.load(Ordering::Relaxed))
        .count()
}

/// How many hooks have a driver function behind them.
pub(crate) fn bound() -> usize {
    REALS
        .iter()
        .filter(|real| !real.load(Ordering::Acquire).is_null())
        .count()
}

/// The driver's own function; null before libcuda is mapped or if it lacks the function.
#[inline]
pub(crate) fn real_of(hook: Hook) -> *mut c_void {
    REALS
        .get(hook as usize)
        .map_or(ptr::null_mut(), |real| real.load(Ordering::Acquire))
}

/// The hooks whose real function lies at `address`: one, or several where a linker folded equal
/// functions.
pub(crate) fn by_real(address: *mut c_void) -> impl Iterator<Item = Hook> {
    TABLE
        .iter()
        .filter(move |(hook, _, _)| real_of(*hook) == address)
        .map(|(hook, _, _)| *hook)
}

/// Finds the real functions, once libcuda is mapped.
pub(crate) fn resolve_all() {
    if DONE.load(Ordering::Acquire) {
        return;
    }
    let Some(library) = resolve::libcuda() else {
        return;
    };
    for ((_, name, _), real) in TABLE.iter().zip(&REALS) {
        // Two threads may both do this; they store the same values.
        real.store(resolve::real_symbol(library, name), Ordering::Release);
    }
    DONE.store(true, Ordering::Release);
}

/// Puts `function` behind every wrapper in the driver's place, for good.
pub(crate) fn stand_in(function: *mut c_void) {
    DONE.store(true, Ordering::Release);
    for real in &REALS {
        real.store(function, Ordering::Release);
    }
}

/// The real function for a wrapper that was called, looked up now if it was bound before libcuda
/// was mapped.
#[cold]
pub(crate) fn real_late(hook: Hook) -> *mut c_void {
    resolve_all();
    real_of(hook)
}

/// The real function of a hook, as a function of the given type; `None` if the driver lacks it.
macro_rules! real {
    ($hook:expr, $type:ty) => {{
        let hook: $crate::hooks::Hook = $hook;
        let mut address = $crate::hooks::real_of(hook);
        if address.is_null() {
            address = $crate::hooks::real_late(hook);
        }
        // SAFETY: the table holds the driver's function of the hook's name, whose C signature is
        // the one given; null becomes `None`.
        unsafe { ::core::mem::transmute::<*mut ::core::ffi::c_void, Option<$type>>(address) }
    }};
}
pub(crate) use real;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_wrappers_agree() {
        let mut names = Vec::new();
        for (place, (hook, name, wrapper)) in TABLE.iter().enumerate() {
            assert_eq!(*hook as usize, place);
            assert!(!name.is_empty() && !wrapper.0.is_null());
            assert_eq!(by_name(name), Some(*hook));
            names.push(name.to_str().unwrap());
        }
        let exported: Vec<&str> = crate::EXPORTS
            .iter()
            .copied()
            .filter(|name| *name != "dlsym" && !name.starts_with("cupti"))
            .collect();
        assert_eq!(names, exported);
    }

    #[test]
    fn names_of_the_old_abi_are_not_hooked() {
        for name in [
            c"cuMemAlloc",
            c"cuMemFree",
            c"cuMemcpyHtoD",
            c"cudaMalloc",
            c"cuda",
        ] {
            assert_eq!(by_name(name), None, "{name:?}");
        }
    }
}
