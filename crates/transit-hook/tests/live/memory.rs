//! Conversion, ceiling, frees and pointer answers.

use std::ffi::{c_int, c_void};

use transit_hook::{birth, ledger, wrappers};

use crate::driver::{Told, Turn, call, turn};

const MIB: usize = 1 << 20;

#[test]
fn two_mib_and_more_become_managed_memory_and_smaller_requests_do_not() {
    let turn = turn();
    let (managed, plain) = (turn.get(c"fake_managed"), turn.get(c"fake_plain"));
    let before = ledger::counters();
    let large = turn.alloc(2 * MIB).unwrap();
    let small = turn.alloc(2 * MIB - 1).unwrap();
    assert_eq!(turn.get(c"fake_managed"), managed + 1);
    assert_eq!(turn.get(c"fake_plain"), plain + 1);
    let now = ledger::counters();
    assert_eq!(now.converted_bytes - before.converted_bytes, 2 * MIB as u64);
    assert_eq!(
        now.unconverted_bytes - before.unconverted_bytes,
        2 * MIB as u64 - 1
    );
    let found = ledger::find(large + 5).unwrap();
    assert_eq!(
        (found.base, found.offset, found.converted),
        (large, 5, true)
    );
    assert_eq!(ledger::find(small), None);
    let told = turn.told();
    let caller = match told.first() {
        Some(Told::Allocated {
            converted: true,
            managed: true,
            caller,
            ..
        }) => caller,
        other => panic!("{other:?}"),
    };
    assert!(
        caller.starts_with("live"),
        "the caller is this program: {caller}"
    );
    assert_eq!(turn.free(large), 0);
    assert_eq!(turn.free(small), 0);
    assert_eq!(ledger::find(large), None);
    assert_eq!(ledger::counters().converted_bytes, before.converted_bytes);
    let freed = [
        Told::Freeing(2 * MIB as u64),
        Told::Freeing(2 * MIB as u64 - 1),
    ];
    assert_eq!(turn.told(), freed);
}

/// What the fake was last asked to prefetch: address, bytes, place, stream, capture mode.
fn prefetch(turn: &Turn) -> [u64; 5] {
    // SAFETY: the array has five entries, and no other thread writes it during a turn.
    unsafe { turn.real(c"fake_prefetch").cast::<[u64; 5]>().read() }
}

#[test]
fn what_is_converted_is_populated_where_the_job_does_not_wait_and_no_capture_is_ruined() {
    let turn = turn();
    let create: unsafe extern "C" fn(*mut usize, u32) -> u32 = call(wrappers::cuStreamCreate);
    let mut stream = 0;
    // SAFETY: a live local.
    assert_eq!(unsafe { create(&raw mut stream, 1) }, 0);
    let address = turn.alloc(2 * MIB).unwrap();
    // The legacy stream, unless another test has made a stream that waits for it.
    assert!([1, 0x5001].contains(&prefetch(&turn)[3]));
    assert_eq!(turn.free(address), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { create(&raw mut stream, 0) }, 0);
    let exchange: unsafe extern "C" fn(*mut c_int) -> u32 = {
        let real = turn.real(c"cuThreadExchangeStreamCaptureMode");
        // SAFETY: the fake's function of that signature.
        unsafe { core::mem::transmute(real) }
    };
    let (calls, before) = (turn.get(c"fake_prefetches"), birth::populated_bytes());
    for mut mode in [0, 1, 2] {
        let given = mode;
        // SAFETY: a live local, as below.
        assert_eq!(unsafe { exchange(&raw mut mode) }, 0);
        let address = turn.alloc(3 * MIB).unwrap();
        let device = 1 << 32;
        let asked = prefetch(&turn);
        assert_eq!(asked, [address, 3 * MIB as u64, device, 0x5001, 2]);
        let mut left = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { exchange(&raw mut left) }, 0);
        assert_eq!(left, given, "the job's mode is given back");
        assert_eq!(turn.free(address), 0);
    }
    let small = turn.alloc(2 * MIB - 1).unwrap();
    assert_eq!(turn.get(c"fake_prefetches"), calls + 3, "not what stays");
    assert_eq!(birth::populated_bytes() - before, 9 * MIB as u64);
    // The device has less free than our account says: others took it.
    turn.set(c"fake_free", 4 << 30);
    let tight = turn.alloc(2 * MIB).unwrap();
    turn.set(c"fake_free", 16 << 30);
    assert_eq!(
        turn.get(c"fake_prefetches"),
        calls + 3,
        "the reserve is kept"
    );
    let refused = birth::refused();
    turn.set_int(c"fake_refuses_prefetch", 1);
    let unpopulated = turn.alloc(2 * MIB).unwrap();
    turn.set_int(c"fake_refuses_prefetch", 0);
    assert_eq!(birth::refused(), refused + 1);
    assert!(ledger::find(unpopulated).is_some_and(|found| found.converted));
    for address in [small, tight, unpopulated] {
        assert_eq!(turn.free(address), 0);
    }
}

// Field report 25: the framework's retry path needs the exact error and an untouched answer.
#[test]
fn beyond_the_ceiling_the_job_gets_out_of_memory_and_the_same_story_from_memory_info() {
    let turn = turn();
    let first = turn.alloc(700 * MIB).unwrap();
    assert_eq!(turn.alloc(400 * MIB), Err(2));
    let info: unsafe extern "C" fn(*mut usize, *mut usize) -> u32 = call(wrappers::cuMemGetInfo_v2);
    let (mut free, mut total) = (0, 0);
    // SAFETY: live locals for the answers.
    assert_eq!(unsafe { info(&raw mut free, &raw mut total) }, 0);
    assert_eq!(free, 324 * MIB);
    assert!(total >= free);
    let second = turn.alloc(free).unwrap();
    assert_eq!(turn.alloc(2 * MIB), Err(2));
    assert_eq!((turn.free(first), turn.free(second)), (0, 0));
    let third = turn.alloc(1024 * MIB).unwrap();
    assert_eq!(turn.free(third), 0);
}

#[test]
fn without_managed_memory_the_job_gets_device_memory() {
    let turn = turn();
    let before = ledger::counters();
    turn.set_int(c"fake_no_managed", 1);
    let address = turn.alloc(8 * MIB).unwrap();
    let now = ledger::counters();
    assert_eq!(now.converted_bytes, before.converted_bytes);
    assert_eq!(
        now.unconverted_bytes - before.unconverted_bytes,
        8 * MIB as u64
    );
    turn.set(c"fake_free", 0);
    assert_eq!(turn.alloc(8 * MIB), Err(2), "the driver has none either");
    turn.set(c"fake_free", 16 << 30);
    turn.set_int(c"fake_no_managed", 0);
    assert_eq!(turn.free(address), 0);
    assert_eq!(
        ledger::counters().unconverted_bytes,
        before.unconverted_bytes
    );
}

#[test]
fn a_free_that_fails_leaves_the_allocation_known() {
    let turn = turn();
    let address = turn.alloc(4 * MIB).unwrap();
    turn.set_int(c"fake_result", 1);
    assert_eq!(turn.free(address), 1);
    assert!(ledger::find(address).is_some());
    assert_eq!(turn.free(address), 0);
    assert!(ledger::find(address).is_none());
    let unknown = ledger::counters().unknown_frees;
    assert_eq!(
        turn.free(0x1234_0000),
        0,
        "an unknown free is the driver's business"
    );
    assert_eq!(ledger::counters().unknown_frees, unknown + 1);
    assert_eq!(turn.free(address), 0, "and so is a second free");
    assert_eq!(ledger::counters().unknown_frees, unknown + 2);
    // Nobody was left believing that the memory went with the free that failed.
    let told: Vec<bool> = turn
        .told()
        .iter()
        .map(|told| matches!(told, Told::Freeing(_)))
        .collect();
    assert_eq!(told, [false, true, false, true]);
}

#[test]
fn pitched_memory_keeps_the_drivers_pitch() {
    let turn = turn();
    let alloc: unsafe extern "C" fn(*mut u64, *mut usize, usize, usize, u32) -> u32 =
        call(wrappers::cuMemAllocPitch_v2);
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: live locals for the answers.
    let result = unsafe { alloc(&raw mut address, &raw mut pitch, 1000, 4096, 4) };
    assert_eq!(result, 0);
    assert_eq!(pitch, 1024);
    let found = ledger::find(address).unwrap();
    assert!(found.converted);
    assert_eq!(found.bytes, 1024 * 4096);
    assert_eq!(turn.free(address), 0);
}

#[test]
fn converted_memory_is_device_memory_to_frameworks() {
    let turn = turn();
    let converted = turn.alloc(2 * MIB).unwrap();
    let one: unsafe extern "C" fn(*mut c_void, i32, u64) -> u32 =
        call(wrappers::cuPointerGetAttribute);
    let ask = |kind: i32, address: u64| {
        let mut answer = 77_u32;
        // SAFETY: a live local for the answer.
        assert_eq!(unsafe { one((&raw mut answer).cast(), kind, address) }, 0);
        answer
    };
    assert_eq!((ask(8, converted + 9), ask(2, converted)), (0, 2));
    assert_eq!(ask(8, 0x1234), 1, "other memory keeps its answer");
    let many: unsafe extern "C" fn(u32, *const i32, *const *mut c_void, u64) -> u32 =
        call(wrappers::cuPointerGetAttributes);
    let (mut managed, mut kind, mut host) = (9_u32, 9_u32, 9_u64);
    let answers: [*mut c_void; 3] = [
        (&raw mut managed).cast(),
        (&raw mut kind).cast(),
        (&raw mut host).cast(),
    ];
    // SAFETY: three kinds and three live locals.
    let result = unsafe { many(3, [8, 2, 4].as_ptr(), answers.as_ptr(), converted) };
    assert_eq!(result, 0);
    assert_eq!((managed, kind, host), (0, 2, 0));
    assert_eq!(turn.free(converted), 0);
}
