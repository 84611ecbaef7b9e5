//! The wrappers by exact export name. Each exported name is a naked stub that adds what the driver's
//! ABI does not carry, the return address of the caller, and jumps to the Rust function that does
//! the work; unchanged registers and stack keep every ABI detail as it was.
#![expect(non_snake_case, reason = "the driver's own names")]
#![allow(missing_docs, clippy::missing_safety_doc)]

mod arrays;
mod batches;
mod copies;
mod function;
mod graph;
pub(crate) mod graph_memory;
mod info;
mod init;
mod launch;
mod memory;
mod pools;
mod sharing;
mod stream;
mod tensor_map;
mod transfer;
mod vmm;

pub use arrays::*;
pub use batches::*;
pub use copies::*;
pub use function::*;
pub use graph::*;
pub use graph_memory::*;
pub use info::*;
pub use init::*;
pub use launch::*;
pub use memory::*;
pub use pools::*;
pub use sharing::*;
pub use stream::*;
pub use tensor_map::*;
pub use transfer::*;
pub use vmm::*;

/// Defines `$name`, which jumps to `$inner` with the caller's return address as one more register
/// argument after the `$count` (0 to 5) of the driver's function; `none` adds nothing.
macro_rules! stub {
    ($name:ident, none, $($inner:tt)+) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!("jmp {}", sym $($inner)+);
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!("b {}", sym $($inner)+);
        }
    };
    ($name:ident, 1, $($inner:tt)+) => { stub!(@ $name, "rsi", "x1", $($inner)+); };
    ($name:ident, 2, $($inner:tt)+) => { stub!(@ $name, "rdx", "x2", $($inner)+); };
    ($name:ident, 3, $($inner:tt)+) => { stub!(@ $name, "rcx", "x3", $($inner)+); };
    ($name:ident, 4, $($inner:tt)+) => { stub!(@ $name, "r8", "x4", $($inner)+); };
    ($name:ident, 5, $($inner:tt)+) => { stub!(@ $name, "r9", "x5", $($inner)+); };
    (@ $name:ident, $x86:literal, $arm:literal, $($inner:tt)+) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                concat!("mov ", $x86, ", qword ptr [rsp]"),
                "jmp {}",
                sym $($inner)+,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {}", sym $($inner)+);
        }
    };
}
pub(crate) use stub;

/// Defines `$name`, which calls `$inner` with the caller's stack arguments behind two more: padding
/// and the return address. They are what lies between a frame of ours and the caller's, so nothing
/// is copied.
macro_rules! framed_stub {
    ($name:ident, $($inner:tt)+) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                sym $($inner)+,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "bl {}",
                "ldp x29, x30, [sp], #16",
                "ret",
                sym $($inner)+,
            );
        }
    };
}
pub(crate) use framed_stub;
