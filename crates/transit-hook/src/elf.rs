//! The last resort for the real `dlsym`: reading the C library's own symbol table, for a C library
//! whose versions we do not know.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
/// Symbols read at most; the C library has some three thousand.
const MOST_SYMBOLS: usize = 65_536;

struct Search {
    name: *const CStr,
    found: *mut c_void,
}

/// The address of `name` in the C library; null if it has none.
pub(crate) fn symbol_of_libc(name: &CStr) -> *mut c_void {
    let mut search = Search {
        name,
        found: ptr::null_mut(),
    };
    // SAFETY: the callback matches the signature asked for and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _bytes: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let info = unsafe { &*info };
    // SAFETY: `data` is the `Search` of `symbol_of_libc`, alive and not otherwise borrowed.
    let search = unsafe { &mut *data.cast::<Search>() };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: non-null names are NUL-terminated.
    let file = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let base = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
    if !(base.starts_with(b"libc.so") || base.starts_with(b"libdl.so")) {
        return 0;
    }
    // SAFETY: `name` points to the caller's string, alive during the iteration.
    search.found = in_object(info, unsafe { &*search.name });
    c_int::from(!search.found.is_null())
}

fn in_object(info: &libc::dl_phdr_info, name: &CStr) -> *mut c_void {
    // SAFETY: the headers are those of a mapped object.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(dynamic) = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)
    else {
        return ptr::null_mut();
    };
    let load = info.dlpi_addr;
    let mut entry =
        ptr::with_exposed_provenance::<[u64; 2]>(address(load.wrapping_add(dynamic.p_vaddr)));
    let (mut symbols, mut strings) = (0_u64, 0_u64);
    loop {
        // SAFETY: the dynamic section is mapped and ends with DT_NULL, where the loop ends.
        let [tag, value] = unsafe { *entry };
        match tag {
            DT_NULL => break,
            DT_SYMTAB => symbols = value,
            DT_STRTAB => strings = value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if symbols == 0 || strings <= symbols {
        return ptr::null_mut();
    }
    // The string table follows the symbol table in every object that GNU and LLVM linkers write.
    let bytes = address(strings - symbols);
    let count = (bytes / size_of::<libc::Elf64_Sym>()).min(MOST_SYMBOLS);
    let first = ptr::with_exposed_provenance::<libc::Elf64_Sym>(address(symbols));
    // SAFETY: the symbol table is mapped and holds at least `count` entries (see above).
    let table = unsafe { core::slice::from_raw_parts(first, count) };
    table
        .iter()
        .filter(|symbol| symbol.st_value != 0)
        .find(|symbol| {
            let text = address(strings + u64::from(symbol.st_name));
            // SAFETY: names lie in the mapped string table and are NUL-terminated.
            (unsafe { CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(text)) }) == name
        })
        .map_or(ptr::null_mut(), |symbol| {
            ptr::with_exposed_provenance_mut(address(load.wrapping_add(symbol.st_value)))
        })
}

fn address(value: u64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_read_when_no_version_is_known() {
        let found = symbol_of_libc(c"dlsym");
        assert!(!found.is_null());
        assert_eq!(found, crate::resolve::real_dlsym_address());
        assert!(symbol_of_libc(c"no_such_function_anywhere").is_null());
    }
}
