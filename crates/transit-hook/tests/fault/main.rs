//! A fault of ours costs the job nothing: in a process of its own, because it ends observation.
#![allow(clippy::unwrap_used, reason = "a failed assumption is a failed test")]

#[path = "../live/driver.rs"]
mod driver;

use driver::{call, turn};
use transit_hook::wrappers;

#[test]
fn a_panic_of_the_observer_disables_the_shim_and_the_call_happens_once() {
    let turn = turn();
    let address = turn.alloc(4 << 20).unwrap();
    turn.told();
    let set: unsafe extern "C" fn(u64, u8, usize, usize) -> u32 = call(wrappers::cuMemsetD8Async);
    let calls = turn.get(c"fake_calls");
    turn.break_observer();
    for turns in 1..=3 {
        // SAFETY: the fake touches no memory.
        assert_eq!(unsafe { set(address, 1, 64, 0x800) }, 0);
        assert_eq!(turn.get(c"fake_calls"), calls + turns);
    }
    assert_eq!(
        turn.free(address),
        0,
        "converted memory is freed all the same"
    );
    let managed = turn.get(c"fake_managed");
    let plain = turn.alloc(4 << 20).unwrap();
    assert_eq!(
        turn.get(c"fake_managed"),
        managed,
        "nothing is converted any more"
    );
    assert_eq!(turn.free(plain), 0);
}
