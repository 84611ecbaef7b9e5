//! Ops: every argument reaches the driver, every managed pointer the observer.

use std::ffi::c_void;
use std::time::Instant;

use transit_format::plan::name_hash;
use transit_format::trace::model::OpKind;
use transit_hook::{DeviceRecords, PointerArg, ops_issued, wrappers};

use crate::counting;
use crate::driver::{Op, Sync, Told, Turn, call, turn};

type Launch = unsafe extern "C" fn(
    usize,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    usize,
    *const *const c_void,
    *const *const c_void,
) -> u32;

/// Arguments of the fake's kernels: a pointer, a structure of three words, an int.
struct Arguments {
    first: u64,
    second: [u64; 3],
    third: u32,
}

impl Arguments {
    fn pointers(&self) -> [*const c_void; 3] {
        [
            (&raw const self.first).cast(),
            (&raw const self.second).cast(),
            (&raw const self.third).cast(),
        ]
    }
}

fn launch(
    wrapper: unsafe extern "C" fn(),
    function: usize,
    stream: usize,
    args: &Arguments,
) -> u32 {
    let call: Launch = call(wrapper);
    let pointers = args.pointers();
    // SAFETY: the fake's kernels have these three parameters.
    unsafe {
        call(
            function,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            stream,
            pointers.as_ptr(),
            core::ptr::null(),
        )
    }
}

fn ops_of(told: &[Told]) -> Vec<&Op> {
    told.iter()
        .filter_map(|told| match told {
            Told::Before(op) => Some(op),
            _ => None,
        })
        .collect()
}

fn one_op(turn: &Turn) -> Op {
    let told = turn.told();
    let ops = ops_of(&told);
    assert_eq!(ops.len(), 1, "{told:?}");
    ops[0].clone()
}

#[test]
fn a_launch_reaches_the_driver_whole_and_the_observer_with_its_pointers() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    turn.told();
    let args = Arguments {
        first: address + 64,
        second: [1, address, 2],
        third: 9,
    };
    for (wrapper, per_thread) in [
        (wrappers::cuLaunchKernel as unsafe extern "C" fn(), false),
        (wrappers::cuLaunchCooperativeKernel, false),
        (wrappers::cuLaunchKernel_ptsz, true),
    ] {
        let seq = ops_issued();
        assert_eq!(
            launch(wrapper, 0x400, if per_thread { 0 } else { 0x800 }, &args),
            0
        );
        let op = one_op(&turn);
        assert_eq!((op.seq, op.capturing), (seq.0, false));
        assert_eq!(op.records, DeviceRecords::one(OpKind::Kernel));
        assert_eq!(op.name_hash, name_hash(b"kernel_a"));
        assert_eq!(op.stream_handle, if per_thread { 2 } else { 0x800 });
        let offsets: Vec<u64> = op.pointers.iter().map(|pointer| pointer.offset).collect();
        assert_eq!(offsets, [64, 0]);
        if !per_thread {
            let seen: Vec<u64> = (0..9).map(|index| turn.last(index)).collect();
            assert_eq!(seen, [0x400, 1, 2, 3, 4, 5, 6, 7, 0x800]);
            assert_ne!(turn.last(9), 0);
        }
    }
    turn.free(address);
}

#[test]
fn an_extended_launch_carries_its_stream_in_its_configuration() {
    #[repr(C)]
    struct Config {
        shape: [u32; 7],
        stream: usize,
        attributes: usize,
        count: u32,
    }
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    turn.told();
    let args = Arguments {
        first: 0,
        second: [0, 0, address + 8],
        third: 0,
    };
    let config = Config {
        shape: [1; 7],
        stream: 0x880,
        attributes: 0,
        count: 0,
    };
    let call: unsafe extern "C" fn(
        *const c_void,
        usize,
        *const *const c_void,
        *const *const c_void,
    ) -> u32 = call(wrappers::cuLaunchKernelEx);
    let place: *const c_void = (&raw const config).cast();
    let pointers = args.pointers();
    // SAFETY: the fake's kernels have these three parameters.
    let result = unsafe { call(place, 0x500, pointers.as_ptr(), core::ptr::null()) };
    assert_eq!(result, 0);
    assert_eq!(turn.last(0), place.addr() as u64);
    let op = one_op(&turn);
    assert_eq!(op.stream_handle, 0x880);
    assert_eq!(
        op.name_hash,
        name_hash(b"as_kernel"),
        "the handle is a CUkernel"
    );
    assert_eq!(op.pointers.len(), 1);
    turn.free(address);
}

#[test]
fn a_failed_launch_is_an_op_with_the_drivers_answer() {
    let turn = turn();
    turn.set_int(c"fake_result", 719);
    let args = Arguments {
        first: 0,
        second: [0; 3],
        third: 0,
    };
    let seq = ops_issued();
    assert_eq!(launch(wrappers::cuLaunchKernel, 0x400, 0x800, &args), 719);
    assert!(turn.told().contains(&Told::After(seq.0, 719)));
    assert_eq!(ops_issued().0, seq.0 + 1);
}

#[test]
fn the_driver_is_asked_about_a_function_once_until_a_module_is_unloaded() {
    let turn = turn();
    let args = Arguments {
        first: 0,
        second: [0; 3],
        third: 0,
    };
    launch(wrappers::cuLaunchKernel, 0x600, 0x800, &args);
    assert!(turn.told().contains(&Told::Function("other".to_owned(), 3)));
    let asked = turn.get_int(c"fake_info_calls");
    for _ in 0..10 {
        launch(wrappers::cuLaunchKernel, 0x600, 0x800, &args);
    }
    assert_eq!(turn.get_int(c"fake_info_calls"), asked);
    let unload: Sync = call(wrappers::cuModuleUnload);
    // SAFETY: the fake takes any handle.
    unsafe { unload(1) };
    turn.told();
    launch(wrappers::cuLaunchKernel, 0x600, 0x800, &args);
    assert!(turn.get_int(c"fake_info_calls") > asked);
    assert!(
        !turn
            .told()
            .iter()
            .any(|told| matches!(told, Told::Function(..))),
        "told once"
    );
}

#[test]
fn a_handle_given_again_for_a_function_with_one_more_number_is_another_function() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    let args = Arguments {
        first: address,
        second: [0, address + 8, 0],
        third: 0,
    };
    launch(wrappers::cuLaunchKernel, 0x1400, 0x800, &args);
    let told = turn.told();
    assert!(told.contains(&Told::Function("kernel_b".to_owned(), 3)));
    // No address fits in it, so the words looked at are the same.
    turn.set_int(c"fake_more_params", 1);
    let unload: Sync = call(wrappers::cuModuleUnload);
    // SAFETY: the fake takes any handle.
    unsafe { unload(1) };
    launch(wrappers::cuLaunchKernel, 0x1400, 0x800, &args);
    turn.set_int(c"fake_more_params", 0);
    // SAFETY: as above.
    unsafe { unload(1) };
    let told = turn.told();
    assert!(told.contains(&Told::Function("kernel_b".to_owned(), 4)));
    assert_eq!(ops_of(&told)[0].pointers.len(), 2);
    turn.free(address);
}

#[test]
fn a_memset_is_an_op_only_where_it_touches_managed_memory() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    turn.told();
    let set: unsafe extern "C" fn(u64, u8, usize, usize) -> u32 = call(wrappers::cuMemsetD8Async);
    let calls = turn.get(c"fake_calls");
    // SAFETY: the fake touches no memory.
    assert_eq!(unsafe { set(0x1000, 1, 64, 0) }, 0);
    assert!(turn.told().is_empty());
    // SAFETY: as above.
    assert_eq!(unsafe { set(address + 4096, 0xab, 64, 0) }, 0);
    assert_eq!(turn.get(c"fake_calls"), calls + 2);
    assert_eq!(turn.last(1), 0xab);
    let op = one_op(&turn);
    assert_eq!(
        (op.kind.as_str(), op.name_hash),
        ("Memset", name_hash(b"memset"))
    );
    assert_eq!((op.pointers[0].offset, op.pointers[0].bytes), (4096, 64));
    let wide: unsafe extern "C" fn(u64, usize, u32, usize, usize, usize) -> u32 =
        call(wrappers::cuMemsetD2D32Async);
    // SAFETY: as above.
    assert_eq!(unsafe { wide(address, 1024, 7, 16, 3, 0x900) }, 0);
    assert_eq!(
        (turn.last(0), turn.last(2), turn.last(5)),
        (address, 7, 0x900)
    );
    assert_eq!(one_op(&turn).pointers[0].bytes, 2 * 1024 + 64);
    turn.free(address);
}

#[test]
fn a_copy_names_both_sides() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    turn.told();
    let copy: unsafe extern "C" fn(u64, u64, usize, usize) -> u32 =
        call(wrappers::cuMemcpyDtoDAsync_v2);
    // SAFETY: the fake touches no memory.
    assert_eq!(unsafe { copy(address, address + (4 << 20), 512, 0x800) }, 0);
    let op = one_op(&turn);
    let places: Vec<(u64, u64)> = op
        .pointers
        .iter()
        .map(|pointer| (pointer.offset, pointer.bytes))
        .collect();
    assert_eq!(places, [(0, 512), (4 << 20, 512)]);
    turn.free(address);
}

#[test]
fn captured_ops_are_marked_and_take_no_number() {
    let turn = turn();
    let begin: unsafe extern "C" fn(usize, i32) -> u32 = call(wrappers::cuStreamBeginCapture_v2);
    let end: unsafe extern "C" fn(usize, *mut usize) -> u32 = call(wrappers::cuStreamEndCapture);
    let args = Arguments {
        first: 0,
        second: [0; 3],
        third: 0,
    };
    let before = ops_issued();
    // SAFETY: the fake takes any stream.
    assert_eq!(unsafe { begin(0x800, 0) }, 0);
    assert!(transit_hook::any_capture());
    launch(wrappers::cuLaunchKernel, 0x400, 0x800, &args);
    let mut graph = 0;
    // SAFETY: a live local for the answer.
    assert_eq!(unsafe { end(0x800, &raw mut graph) }, 0);
    assert!(!transit_hook::any_capture());
    let told = turn.told();
    assert!(ops_of(&told)[0].capturing);
    assert!(told.contains(&Told::Capturing(true)) && told.contains(&Told::Capturing(false)));
    assert_eq!(ops_issued(), before);
    launch(wrappers::cuLaunchKernel, 0x400, 0x800, &args);
    assert!(!one_op(&turn).capturing);
}

#[test]
fn a_capture_ends_with_its_stream() {
    let turn = turn();
    let begin: unsafe extern "C" fn(usize, i32) -> u32 = call(wrappers::cuStreamBeginCapture_v2);
    let destroy: Sync = call(wrappers::cuStreamDestroy_v2);
    // SAFETY: the fake takes any stream.
    assert_eq!(unsafe { begin(0xcc0, 0) }, 0);
    assert!(transit_hook::any_capture());
    // SAFETY: as above.
    assert_eq!(unsafe { destroy(0xcc0) }, 0);
    assert!(!transit_hook::any_capture());
    assert_eq!(turn.told(), [Told::Capturing(true), Told::Capturing(false)]);
}

#[test]
fn a_graph_launch_is_one_op_with_the_pointers_of_its_nodes() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    turn.set(c"fake_node_pointer", address + 128);
    let make: unsafe extern "C" fn(*mut usize, usize, u64) -> u32 =
        call(wrappers::cuGraphInstantiateWithFlags);
    let mut exec = 0;
    // SAFETY: a live local for the answer.
    assert_eq!(unsafe { make(&raw mut exec, 0x9000, 0) }, 0);
    turn.told();
    let launch: unsafe extern "C" fn(usize, usize) -> u32 = call(wrappers::cuGraphLaunch);
    // SAFETY: the fake takes any handle.
    assert_eq!(unsafe { launch(exec, 0x800) }, 0);
    let op = one_op(&turn);
    assert_eq!((op.kind.as_str(), op.records.sum()), ("Graph", 2));
    assert!(!op.records.open);
    let offsets: Vec<u64> = op.pointers.iter().map(|pointer| pointer.offset).collect();
    assert_eq!(offsets, [128, 192]);
    turn.free(address);
    // SAFETY: as above.
    assert_eq!(unsafe { launch(exec, 0x800) }, 0);
    let none: [PointerArg; 0] = [];
    let told = turn.told();
    assert_eq!(ops_of(&told)[0].pointers, none, "freed memory is not named");
}

#[test]
fn a_stream_handle_given_again_is_another_stream() {
    let turn = turn();
    let args = Arguments {
        first: 0,
        second: [0; 3],
        third: 0,
    };
    let destroy: Sync = call(wrappers::cuStreamDestroy_v2);
    let mut ids = Vec::new();
    for _ in 0..2 {
        launch(wrappers::cuLaunchKernel, 0x400, 0xbee0, &args);
        launch(wrappers::cuLaunchKernel, 0x400, 0xbee0, &args);
        // SAFETY: the fake takes any stream.
        unsafe { destroy(0xbee0) };
        for told in turn.told() {
            if let Told::Stream(id, handle) = told {
                assert_eq!(handle, 0xbee0);
                ids.push(id);
            }
        }
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn waits_are_told() {
    let turn = turn();
    let wait: Sync = call(wrappers::cuStreamSynchronize);
    // SAFETY: the fake takes any stream.
    assert_eq!(unsafe { wait(0x800) }, 0);
    assert_eq!(turn.told(), [Told::Synchronised]);
}

#[test]
fn a_launch_allocates_nothing_once_its_function_and_stream_are_known() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    let args = Arguments {
        first: address,
        second: [1, address + 8, 3],
        third: 4,
    };
    turn.quietly(true);
    for stream in [0x800, 0] {
        launch(wrappers::cuLaunchKernel, 0x400, stream, &args);
        let before = counting::made();
        for _ in 0..100 {
            launch(wrappers::cuLaunchKernel, 0x400, stream, &args);
        }
        assert_eq!(counting::made(), before);
    }
    turn.quietly(false);
    turn.free(address);
}

/// Prints what a hook costs over the real call; the budget is 60 ns in a release build. Run with
/// `cargo test -p transit-hook --release --test live -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn what_a_hook_costs() {
    let turn = turn();
    let address = turn.alloc(8 << 20).unwrap();
    let args = Arguments {
        first: address,
        second: [1, address + 8, 3],
        third: 4,
    };
    turn.quietly(true);
    let real = turn.real(c"cuLaunchKernel");
    // SAFETY: the fake's own function as a function without arguments, cast back before use.
    let real = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(real) };
    for (what, target, stream) in [
        ("real", real, 0x800),
        (
            "hook, created stream",
            wrappers::cuLaunchKernel as unsafe extern "C" fn(),
            0x800,
        ),
        ("hook, legacy stream", wrappers::cuLaunchKernel, 0),
    ] {
        let mut rounds: Vec<u128> = (0..200)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..1000 {
                    launch(target, 0x400, stream, &args);
                }
                start.elapsed().as_nanos() / 1000
            })
            .collect();
        rounds.sort_unstable();
        println!("{what}: {} ns", rounds[100]);
    }
    let start = Instant::now();
    for _ in 0..100_000 {
        std::hint::black_box(transit_hook::now_ns());
    }
    println!(
        "of it the clock: {} ns",
        start.elapsed().as_nanos() / 100_000
    );
    turn.quietly(false);
    turn.free(address);
}
