//! Virtual memory management (PyTorch's expandable segments, JAX, NCCL): physical memory by handle,
//! mapped into reserved addresses. It stays device memory and is counted from its creation until
//! nobody holds it and nothing maps it, as the driver counts it.

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::stub;
use crate::callers;
use crate::coverage::{self, Bypass};
use crate::driver::{NOT_FOUND, SUCCESS};
use crate::held;
use crate::hooks::{Hook, real};
use crate::ops::hooked;

stub!(cuMemCreate, 4, create);
stub!(cuMemRelease, none, release);
stub!(cuMemRetainAllocationHandle, none, retain);
stub!(cuMemMap, none, map);
stub!(cuMemUnmap, none, unmap);

/// Physical memory on a device.
#[derive(Clone, Copy, Debug)]
struct Physical {
    device: u32,
    bytes: u64,
    /// Creations and retains not yet released.
    holds: u32,
    maps: u32,
}

/// A piece of an address range and the memory behind it.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    memory: u64,
}

/// Everything known. Memory has a number of its own: while a mapping keeps memory alive, its
/// handle, once released, may come again for other memory.
#[derive(Debug)]
struct Book {
    physical: BTreeMap<u64, Physical>,
    handles: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Mapping>,
    next: u64,
}

fn book() -> MutexGuard<'static, Book> {
    static BOOK: Mutex<Book> = Mutex::new(Book::new());
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    const fn new() -> Self {
        Self {
            physical: BTreeMap::new(),
            handles: BTreeMap::new(),
            mapped: BTreeMap::new(),
            next: 0,
        }
    }

    fn created(&mut self, handle: u64, device: u32, bytes: u64) {
        let memory = self.next;
        self.next += 1;
        self.handles.insert(handle, memory);
        let (holds, maps) = (1, 0);
        self.physical.insert(
            memory,
            Physical {
                device,
                bytes,
                holds,
                maps,
            },
        );
    }

    fn change(&mut self, memory: u64, change: impl FnOnce(&mut Physical)) {
        if let Some(physical) = self.physical.get_mut(&memory) {
            change(physical);
        }
    }

    /// Takes one hold off a handle; the handle is unknown once it has none.
    fn let_go(&mut self, handle: u64) -> Option<u64> {
        let memory = *self.handles.get(&handle)?;
        self.change(memory, |physical| {
            physical.holds = physical.holds.saturating_sub(1);
        });
        if self.physical.get(&memory).is_none_or(|it| it.holds == 0) {
            self.handles.remove(&handle);
        }
        Some(memory)
    }

    fn take_hold(&mut self, handle: u64, memory: u64) {
        self.change(memory, |physical| physical.holds += 1);
        self.handles.insert(handle, memory);
    }

    fn map(&mut self, address: u64, mapping: Mapping) {
        self.change(mapping.memory, |physical| physical.maps += 1);
        self.mapped.insert(address, mapping);
    }

    /// Takes the mappings of a range out.
    fn unmap(&mut self, address: u64, bytes: u64) -> Vec<(u64, Mapping)> {
        let range = address..address.saturating_add(bytes);
        let found: Vec<(u64, Mapping)> = self.mapped.range(range).map(|(a, m)| (*a, *m)).collect();
        for (address, mapping) in &found {
            self.mapped.remove(address);
            self.change(mapping.memory, |physical| {
                physical.maps = physical.maps.saturating_sub(1);
            });
        }
        found
    }

    /// The memory mapped at an address.
    fn at(&self, address: u64) -> Option<u64> {
        let (base, mapping) = self.mapped.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some(mapping.memory)
    }

    /// Forgets memory that is neither held nor mapped.
    fn collect(&mut self, memory: u64) -> Option<Physical> {
        let idle = |it: &&Physical| it.holds == 0 && it.maps == 0;
        let gone = *self.physical.get(&memory).filter(idle)?;
        self.physical.remove(&memory);
        Some(gone)
    }
}

/// Counts memory down that has come to its end.
fn collect(memory: u64) {
    let gone = book().collect(memory);
    if let Some(gone) = gone {
        held::gone(gone.device, gone.bytes);
    }
}

/// The first fields of `CUmemAllocationProp`.
#[repr(C)]
struct AllocationProp {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location_id: i32,
}

unsafe extern "C" fn create(
    handle: *mut u64,
    bytes: usize,
    prop: *const c_void,
    flags: u64,
    from: usize,
) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> u32;
    const LOCATION_DEVICE: i32 = 1;
    let Some(real) = real!(Hook::cuMemCreate, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, bytes, prop, flags) };
    hooked(plain, |driver, _, real_call| {
        // SAFETY: null, or the caller's properties, which begin with these fields. There may be no
        // current context: the device is what the properties say.
        let Some(prop) = (unsafe { prop.cast::<AllocationProp>().as_ref() }) else {
            return real_call();
        };
        let Ok(device) = u32::try_from(prop.location_id) else {
            return real_call();
        };
        if prop.location_kind != LOCATION_DEVICE || handle.is_null() {
            return real_call();
        }
        let bytes = bytes as u64;
        let caller = callers::who(from);
        let result = held::counted(driver, device, bytes, real_call);
        if result == SUCCESS {
            // SAFETY: the driver accepted the pointer and filled it in.
            let made = unsafe { *handle };
            book().created(made, device, bytes);
            coverage::bypassed(Bypass::Virtual, caller, bytes);
        }
        result
    })
}

unsafe extern "C" fn release(handle: u64) -> u32 {
    let Some(real) = real!(Hook::cuMemRelease, unsafe extern "C" fn(u64) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's argument.
    let plain = || unsafe { real(handle) };
    hooked(plain, |_, _, real_call| {
        // Taken out first: once the driver has it back, another thread may be given the handle.
        let memory = book().let_go(handle);
        let result = real_call();
        match memory {
            Some(memory) if result == SUCCESS => collect(memory),
            Some(memory) => book().take_hold(handle, memory),
            None => {}
        }
        result
    })
}

unsafe extern "C" fn retain(handle: *mut u64, address: *mut c_void) -> u32 {
    type Real = unsafe extern "C" fn(*mut u64, *mut c_void) -> u32;
    let Some(real) = real!(Hook::cuMemRetainAllocationHandle, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(handle, address) };
    hooked(plain, |_, _, real_call| {
        let result = real_call();
        if result == SUCCESS && !handle.is_null() {
            // SAFETY: the driver accepted the pointer and filled it in.
            let handle = unsafe { *handle };
            let mut book = book();
            if let Some(memory) = book.at(address as u64) {
                book.take_hold(handle, memory);
            }
        }
        result
    })
}

unsafe extern "C" fn map(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> u32 {
    type Real = unsafe extern "C" fn(u64, usize, usize, u64, u64) -> u32;
    let Some(real) = real!(Hook::cuMemMap, Real) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(address, bytes, offset, handle, flags) };
    hooked(plain, |_, _, real_call| {
        let result = real_call();
        if result == SUCCESS {
            let bytes = bytes as u64;
            let mut book = book();
            if let Some(&memory) = book.handles.get(&handle) {
                book.map(address, Mapping { bytes, memory });
            }
        }
        result
    })
}

unsafe extern "C" fn unmap(address: u64, bytes: usize) -> u32 {
    let Some(real) = real!(Hook::cuMemUnmap, unsafe extern "C" fn(u64, usize) -> u32) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's arguments.
    let plain = || unsafe { real(address, bytes) };
    hooked(plain, |_, _, real_call| {
        let taken = book().unmap(address, bytes as u64);
        let result = real_call();
        for (address, mapping) in taken {
            if result == SUCCESS {
                collect(mapping.memory);
            } else {
                book().map(address, mapping);
            }
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(memory: u64) -> Mapping {
        Mapping { bytes: 64, memory }
    }

    #[test]
    fn memory_lives_until_nobody_holds_it_and_nothing_maps_it() {
        let mut book = Book::new();
        book.created(500, 0, 64);
        book.map(0x1000, mapping(0));
        assert_eq!(book.let_go(500), Some(0));
        assert!(book.collect(0).is_none(), "still mapped");
        // The handle comes again for other memory while the first is mapped.
        book.created(500, 1, 64);
        assert_eq!(book.at(0x1010), Some(0));
        assert_eq!(book.unmap(0x1000, 64).len(), 1);
        assert_eq!(book.collect(0).map(|gone| gone.device), Some(0));
        assert!(book.collect(0).is_none(), "once only");
        assert_eq!(book.let_go(500), Some(1));
        assert_eq!(book.collect(1).map(|gone| gone.device), Some(1));
        assert_eq!(book.let_go(500), None);
    }

    #[test]
    fn every_retain_needs_a_release() {
        let mut book = Book::new();
        book.created(500, 0, 64);
        book.map(0x1000, mapping(0));
        let memory = book.at(0x103f).unwrap();
        book.take_hold(500, memory);
        assert_eq!(book.at(0x1040), None);
        book.unmap(0x1000, 64);
        assert_eq!(book.let_go(500), Some(0));
        assert!(book.collect(0).is_none());
        assert_eq!(book.let_go(500), Some(0));
        assert!(book.collect(0).is_some());
    }
}
