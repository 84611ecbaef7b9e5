//! The instructions of the exported `dlsym`, once for each processor: as the body of the naked
//! function in [`crate::export_all!`], and as text for the test that assembles them and asks
//! `RTLD_NEXT` through them.
//!
//! The rule: what `RTLD_NEXT` and `RTLD_DEFAULT` mean depends on who called, so the real `dlsym` is
//! jumped to with the caller's return address in place. Only names that start with `cu` ask
//! `{answer}` first (null: the real one decides after all; 1: the answer is null). `{find}` gives
//! the real one.

/// System V x86-64: `rdi` handle, `rsi` name, return address at `[rsp]`.
#[doc(hidden)]
#[macro_export]
macro_rules! __dlsym_x86_64 {
    () => {
        "
    test rsi, rsi
    je 2f
    cmp byte ptr [rsi], 0x63
    jne 2f
    cmp byte ptr [rsi + 1], 0x75
    jne 2f
    push rdi
    push rsi
    sub rsp, 8
    call {answer}
    add rsp, 8
    pop rsi
    pop rdi
    test rax, rax
    je 2f
    cmp rax, 1
    jne 3f
    xor eax, eax
3:
    ret
2:
    mov rax, [rip + {real}@GOTPCREL]
    mov rax, [rax]
    test rax, rax
    jne 4f
    push rdi
    push rsi
    sub rsp, 8
    call {find}
    add rsp, 8
    pop rsi
    pop rdi
4:
    jmp rax
"
    };
}

/// AAPCS64: `x0` handle, `x1` name, return address in `x30`. The jump goes through `x16`: where the
/// C library is built with branch protection, only that register (and `x17`) may jump to the start
/// of a function.
#[doc(hidden)]
#[macro_export]
macro_rules! __dlsym_aarch64 {
    () => {
        "
    cbz x1, 2f
    ldrb w9, [x1]
    cmp w9, #0x63
    b.ne 2f
    ldrb w9, [x1, #1]
    cmp w9, #0x75
    b.ne 2f
    stp x0, x1, [sp, #-32]!
    str x30, [sp, #16]
    bl {answer}
    mov x9, x0
    ldr x30, [sp, #16]
    ldp x0, x1, [sp], #32
    cbz x9, 2f
    cmp x9, #1
    csel x0, xzr, x9, eq
    ret
2:
    adrp x16, :got:{real}
    ldr x16, [x16, :got_lo12:{real}]
    ldr x16, [x16]
    cbnz x16, 4f
    stp x0, x1, [sp, #-32]!
    str x30, [sp, #16]
    bl {find}
    mov x16, x0
    ldr x30, [sp, #16]
    ldp x0, x1, [sp], #32
4:
    br x16
"
    };
}

/// The text for x86-64.
pub const X86_64: &str = __dlsym_x86_64!();
/// The text for aarch64.
pub const AARCH64: &str = __dlsym_aarch64!();
