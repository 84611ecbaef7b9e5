//! What an ELF file asks of the system and offers it: the newest glibc version it needs, the
//! libraries it names, the symbols it exports. Also read by `cargo xtask pack`.

use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _};

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// Newest `GLIBC_` version needed, as numbers; empty if none.
    pub(crate) glibc: Vec<u32>,
    /// Libraries named in the file (`DT_NEEDED`).
    pub(crate) libraries: Vec<String>,
    /// Global symbols defined, sorted.
    pub(crate) exports: Vec<String>,
}

impl Elf {
    /// Reads `path`.
    ///
    /// # Errors
    /// If it cannot be read or is no 64-bit little-endian ELF file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = std::fs::read(path).map_err(|error| told(&error))?;
        Self::parse(&bytes).map_err(|error| told(&error))
    }

    fn parse(bytes: &[u8]) -> object::read::Result<Self> {
        let file = ElfFile64::<object::LittleEndian>::parse(bytes)?;
        let (endian, sections) = (file.endian(), file.elf_section_table());
        let mut elf = Self::default();
        if let Some((mut needs, strings)) = sections.gnu_verneed(endian, bytes)? {
            let strings = sections.strings(endian, bytes, strings)?;
            while let Some((_, mut versions)) = needs.next()? {
                while let Some(version) = versions.next()? {
                    let name = version.name(endian, strings)?;
                    let number = numbers(&String::from_utf8_lossy(name), "GLIBC_");
                    elf.glibc = elf.glibc.max(number);
                }
            }
        }
        let dynamic = sections.dynamic_table(endian, bytes)?;
        for entry in dynamic.iter() {
            if entry.tag == object::elf::DT_NEEDED {
                let name = dynamic.string(entry)?;
                elf.libraries
                    .push(String::from_utf8_lossy(name).into_owned());
            }
        }
        let symbols = file.dynamic_symbols();
        elf.exports = symbols
            .filter(|symbol| symbol.is_definition() && symbol.is_global())
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
            .collect();
        elf.exports.sort();
        Ok(elf)
    }

    /// The version needed as people write it.
    pub(crate) fn glibc_text(&self) -> String {
        let numbers: Vec<String> = self.glibc.iter().map(u32::to_string).collect();
        numbers.join(".")
    }

    /// The first library named that belongs to CUDA or is no part of every system.
    pub(crate) fn foreign_library(&self) -> Option<&str> {
        const FOREIGN: [&str; 4] = ["cuda", "cupti", "nv", "stdc++"];
        let mut names = self.libraries.iter().map(String::as_str);
        names.find(|name| {
            let lower = name.to_lowercase();
            FOREIGN.iter().any(|part| lower.contains(part))
        })
    }
}

/// `GLIBC_2.28` behind `GLIBC_` as `[2, 28]`; empty for anything else.
pub(crate) fn numbers(name: &str, prefix: &str) -> Vec<u32> {
    let Some(rest) = name.strip_prefix(prefix) else {
        return Vec::new();
    };
    let parsed: Option<Vec<u32>> = rest.split('.').map(|part| part.parse().ok()).collect();
    parsed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_the_c_library_and_a_version_of_it() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.libraries.iter().any(|name| name.starts_with("libc.so")));
        assert!(own.glibc >= vec![2, 2], "{:?}", own.glibc);
        assert_eq!(own.foreign_library(), None);
        assert!(Elf::read(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text| numbers(text, "GLIBC_");
        assert!(version("GLIBC_2.28") > version("GLIBC_2.4"));
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.17"));
        assert!(version("GLIBC_PRIVATE").is_empty() && version("CXXABI_1.3").is_empty());
    }
}
