//! Managed pointers in an op's arguments: every 8-byte word of every parameter, at every launch,
//! against the ledger. What is found is advisory: a word may be a stale pointer, and a kernel may
//! reach memory through tables that are not among its arguments.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use transit_format::ids::AllocId;

use crate::functions::{Function, Param};
use crate::ledger::{Found, Ledger};
use crate::observer::PointerArg;
use crate::tensor_maps;

/// Pointers kept per op. A fused optimizer kernel passes up to 4 x 110 of them.
pub(crate) const MOST_POINTERS: usize = 512;
/// Argument bytes scanned at most: what a launch may pass since CUDA 12.1.
pub(crate) const MOST_BYTES: usize = 32_764;

const BUFFER_END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// A bounded list on the stack, not initialised beyond its length.
pub(crate) struct Pointers {
    items: [MaybeUninit<PointerArg>; MOST_POINTERS],
    used: usize,
}

impl Pointers {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            items: [const { MaybeUninit::uninit() }; MOST_POINTERS],
            used: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, pointer: PointerArg) {
        if let Some(place) = self.items.get_mut(self.used) {
            place.write(pointer);
            self.used += 1;
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[PointerArg] {
        // SAFETY: the first `used` items were written by `push`.
        unsafe { core::slice::from_raw_parts(self.items.as_ptr().cast(), self.used) }
    }

    /// Adds a place in memory; `bytes` is its extent where known, cut off at the allocation's end.
    #[inline]
    pub(crate) fn push_found(&mut self, found: Found, bytes: u64) {
        let bytes = bytes.min(found.bytes - found.offset);
        self.push(PointerArg {
            alloc: found.alloc,
            offset: found.offset,
            bytes,
        });
    }

    /// Adds the allocation that `word` points into, if any.
    #[inline]
    pub(crate) fn look_at(&mut self, ledger: &Ledger, word: u64, bytes: u64) -> bool {
        let Some(found) = ledger.find(word) else {
            return false;
        };
        self.push_found(found, bytes);
        true
    }
}

/// Scans a launch's arguments in either encoding and hands each word that points into managed
/// memory to `found`, with the allocation and the offset within it.
///
/// # Safety
/// `params` and `extra` are what the job passes to a launch of `function`: null, or an array with
/// one pointer per parameter, or a list of launch options.
#[inline(always)]
pub(crate) unsafe fn launch(
    ledger: &Ledger,
    function: &Function,
    params: *const *const c_void,
    extra: *const *const c_void,
    found: &mut impl FnMut(u64, AllocId, u64),
) {
    if !params.is_null() {
        // SAFETY: passed on.
        unsafe { by_param(ledger, &function.params, params, found) };
        if function.may_have_maps {
            // SAFETY: passed on.
            unsafe { maps_by_param(ledger, &function.params, params, found) };
        }
    } else if !extra.is_null() {
        // SAFETY: passed on.
        unsafe { by_buffer(ledger, &function.params, extra, found) };
    }
}

#[inline(always)]
unsafe fn by_param(
    ledger: &Ledger,
    layout: &[Param],
    params: *const *const c_void,
    found: &mut impl FnMut(u64, AllocId, u64),
) {
    for param in layout {
        // SAFETY: the array has one entry per parameter of the function.
        let start = unsafe { *params.wrapping_add(param.index as usize) }.cast::<u64>();
        if start.is_null() {
            continue;
        }
        // SAFETY: the entry points to the parameter's bytes.
        unsafe { by_word(ledger, start, param.words as usize, found) };
    }
}

#[cold]
unsafe fn maps_by_param(
    ledger: &Ledger,
    layout: &[Param],
    params: *const *const c_void,
    found: &mut impl FnMut(u64, AllocId, u64),
) {
    for param in layout.iter().filter(|param| param.may_be_map()) {
        // SAFETY: the array has one entry per parameter of the function.
        let start = unsafe { *params.wrapping_add(param.index as usize) }.cast::<u64>();
        if !start.is_null() {
            // SAFETY: the entry points to the parameter's bytes.
            unsafe { tensor_map(ledger, start, found) };
        }
    }
}

/// A parameter of the size of a tensor map may be one, and no address visible in it.
#[cold]
unsafe fn tensor_map(ledger: &Ledger, map: *const u64, found: &mut impl FnMut(u64, AllocId, u64)) {
    // SAFETY: the parameter has the size of a map.
    let Some(address) = (unsafe { tensor_maps::address_of(map) }) else {
        return;
    };
    let mut visible = false;
    // SAFETY: as above.
    unsafe {
        by_word(ledger, map, tensor_maps::WORDS, &mut |_, _, _| {
            visible = true
        })
    };
    if let Some((alloc, offset)) = ledger.locate(address).filter(|_| !visible) {
        found(address, alloc, offset);
    }
}

unsafe fn by_buffer(
    ledger: &Ledger,
    layout: &[Param],
    extra: *const *const c_void,
    found: &mut impl FnMut(u64, AllocId, u64),
) {
    let (mut start, mut bytes) = (core::ptr::null::<u64>(), 0_usize);
    for option in 0..8 {
        // SAFETY: the list ends with `BUFFER_END`, where the loop ends.
        let key = unsafe { *extra.wrapping_add(2 * option) }.addr();
        if key == BUFFER_END {
            break;
        }
        // SAFETY: every option but the end has a value.
        let value = unsafe { *extra.wrapping_add(2 * option + 1) };
        match key {
            BUFFER_POINTER => start = value.cast(),
            // SAFETY: this option's value is the address of the size.
            BUFFER_SIZE if !value.is_null() => bytes = unsafe { *value.cast::<usize>() },
            _ => {}
        }
    }
    if start.is_null() {
        return;
    }
    // SAFETY: the job says that many bytes of arguments lie there.
    unsafe { by_word(ledger, start, bytes.min(MOST_BYTES) / 8, found) };
    for param in layout.iter().filter(|param| param.may_be_map()) {
        let offset = param.offset as usize;
        if offset + 8 * tensor_maps::WORDS <= bytes {
            // SAFETY: the parameter lies within the buffer.
            unsafe { tensor_map(ledger, start.wrapping_byte_add(offset), found) };
        }
    }
}

#[inline(always)]
unsafe fn by_word(
    ledger: &Ledger,
    start: *const u64,
    words: usize,
    found: &mut impl FnMut(u64, AllocId, u64),
) {
    for place in 0..words {
        // SAFETY: the word lies within the parameter; it may be unaligned.
        let word = unsafe { start.wrapping_add(place).read_unaligned() };
        if let Some((alloc, offset)) = ledger.locate(word) {
            found(word, alloc, offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Allocation;

    const BASE: u64 = 0x7f20_0000_0000;

    fn ledger() -> Ledger {
        let ledger = Ledger::new(true).unwrap();
        for turn in 0..2 {
            ledger.insert(Allocation {
                address: BASE + turn * 0x1000_0000,
                bytes: 4 << 20,
                converted: true,
                managed: true,
                ..Allocation::default()
            });
        }
        ledger
    }

    fn scan(params: &[&[u64]], bytes: &[u32]) -> Vec<(u32, u64)> {
        let ledger = ledger();
        let layout: Vec<Param> = bytes
            .iter()
            .zip(0..)
            .map(|(bytes, index)| Param {
                index,
                words: bytes / 8,
                offset: 0,
            })
            .collect();
        let pointers: Vec<*const c_void> = params.iter().map(|p| p.as_ptr().cast()).collect();
        let mut found = Vec::new();
        // SAFETY: one pointer per parameter, each to at least the parameter's bytes.
        unsafe {
            by_param(
                &ledger,
                &layout,
                pointers.as_ptr(),
                &mut |_, alloc, offset| {
                    found.push((alloc.0, offset));
                },
            );
        }
        found
    }

    #[test]
    fn pointers_are_found_in_every_word_of_every_parameter() {
        let struct_param = [3, BASE + 0x1000_0000 + 64, 0, BASE + 8];
        let found = scan(&[&[BASE], &struct_param, &[7]], &[8, 32, 4]);
        assert_eq!(found, [(0, 0), (1, 64), (0, 8)]);
    }

    #[test]
    fn a_parameter_is_not_read_beyond_its_size() {
        assert_eq!(scan(&[&[BASE, BASE]], &[12]), [(0, 0)]);
        assert_eq!(scan(&[&[BASE]], &[4]), []);
    }

    #[test]
    fn the_buffer_form_is_read_like_the_other() {
        let ledger = ledger();
        let arguments = [1_u64, BASE + 16, 2];
        let bytes = 24_usize;
        let extra = [
            core::ptr::without_provenance(BUFFER_POINTER),
            arguments.as_ptr().cast::<c_void>(),
            core::ptr::without_provenance(BUFFER_SIZE),
            (&raw const bytes).cast(),
            core::ptr::null(),
        ];
        let mut found = Vec::new();
        // SAFETY: a list as CUDA defines it.
        unsafe {
            by_buffer(&ledger, &[], extra.as_ptr(), &mut |word, _, _| {
                found.push(word)
            })
        };
        assert_eq!(found, [BASE + 16]);
    }

    #[test]
    fn more_pointers_than_fit_are_dropped() {
        let ledger = ledger();
        let mut pointers = Pointers::new();
        for place in 0..MOST_POINTERS as u64 + 10 {
            pointers.look_at(&ledger, BASE + place, 0);
        }
        assert_eq!(pointers.as_slice().len(), MOST_POINTERS);
        assert_eq!(
            pointers.as_slice().last().unwrap().offset,
            MOST_POINTERS as u64 - 1
        );
    }
}
