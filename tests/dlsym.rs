//! The exported `dlsym`, instruction by instruction as the shims have it, on this processor and on
//! aarch64 under qemu: names are looked up as if the caller had asked the C library itself, also by
//! a library that asks for the next one of its own name.

use std::path::{Path, PathBuf};
use std::process::Command;

use transit_harness::workspace;
use transit_hook::dlsym_text;

/// A processor: its compiler, what runs its programs, and the text for it.
struct Processor {
    compiler: &'static str,
    runner: &'static [&'static str],
    head: &'static str,
    text: &'static str,
}

const X86_64: Processor = Processor {
    compiler: "gcc",
    runner: &[],
    head: ".intel_syntax noprefix",
    text: dlsym_text::X86_64,
};
const AARCH64: Processor = Processor {
    compiler: "aarch64-linux-gnu-gcc",
    runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    head: "",
    text: dlsym_text::AARCH64,
};

fn there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn compile(processor: &Processor, out: &Path, arguments: &[&str], sources: &[&Path]) {
    let mut command = Command::new(processor.compiler);
    command
        .args(["-O1", "-o"])
        .arg(out)
        .args(arguments)
        .args(sources)
        .arg("-ldl");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What `dlsym_rule.c` prints with a preload whose `dlsym` has the instructions `text`.
fn asked(processor: &Processor, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let hazard =
        |name: &str| -> PathBuf { workspace().join("fixtures/programs/hazards").join(name) };
    let body = text
        .replace("{answer}", "answer")
        .replace("{find}", "find")
        .replace("{real}", "real_dlsym");
    let whole = format!(
        "{}\n.text\n.globl dlsym\n.type dlsym, %function\ndlsym:\n{body}\n\
         .size dlsym, .-dlsym\n.section .note.GNU-stack,\"\",%progbits\n",
        processor.head
    );
    std::fs::write(at("dlsym.s"), whole).unwrap();
    let shared = ["-shared", "-fPIC", "-Wl,-Bsymbolic-functions"];
    compile(
        processor,
        &at("shim.so"),
        &shared,
        &[&at("dlsym.s"), &hazard("dlsym_shim.c")],
    );
    compile(
        processor,
        &at("libwrapper.so"),
        &shared[..2],
        &[&hazard("wrapper.c")],
    );
    compile(
        processor,
        &at("rule"),
        &[],
        &[&hazard("dlsym_rule.c"), &at("libwrapper.so")],
    );
    let preload = format!("LD_PRELOAD={}", at("shim.so").display());
    let mut command = match processor.runner {
        [] => {
            let mut command = Command::new("env");
            command.arg(&preload);
            command
        }
        [runner, options @ ..] => {
            let mut command = Command::new(runner);
            command.args(options).arg("-E").arg(&preload);
            command
        }
    };
    let output = command
        .arg(at("rule"))
        .env("HAZARD", "seen")
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        output.status
    )
}

const RIGHT: &str = "getenv seen\nagain seen\nknown 7\nabsent 0\nother 0\nerror 1\nown 1\n\
                     exit status: 0";

#[test]
fn field_report_1_the_next_symbol_is_the_callers_next_on_x86_64() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("not tried: this machine is no x86-64");
        return;
    }
    assert_eq!(asked(&X86_64, X86_64.text), RIGHT);
    // Called instead of jumped to, the C library sees the shim as the caller.
    let wrong = X86_64
        .text
        .replace("jmp rax", "sub rsp, 8\n call rax\n add rsp, 8\n ret");
    assert_ne!(asked(&X86_64, &wrong), RIGHT, "this test would not notice");
}

#[test]
fn field_reports_1_and_6_the_next_symbol_is_the_callers_next_on_aarch64() {
    if !there(AARCH64.compiler) || !there("qemu-aarch64") {
        eprintln!("not tried: aarch64-linux-gnu-gcc or qemu-aarch64 is not installed");
        return;
    }
    assert_eq!(asked(&AARCH64, AARCH64.text), RIGHT);
    let called = "str x30, [sp, #-16]!\n blr x16\n ldr x30, [sp], #16\n ret";
    let wrong = AARCH64.text.replace("br x16", called);
    assert_ne!(asked(&AARCH64, &wrong), RIGHT, "this test would not notice");
}
