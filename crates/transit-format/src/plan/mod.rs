//! Plan files: fixed little-endian records, memory-mapped and validated once.

pub mod model;

/// 64-bit FNV-1a of a function's mangled name: how a plan recognises a kernel.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
