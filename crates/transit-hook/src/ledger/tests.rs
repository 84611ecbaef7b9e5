//! What frees, look-ups and counters promise, also while other threads edit.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const MIB: u64 = 1 << 20;

fn managed(address: u64, bytes: u64) -> Allocation {
    Allocation {
        address,
        bytes,
        converted: true,
        managed: true,
        ..Allocation::default()
    }
}

/// With room for all of the table, without the cells of 64 bits, and for the slots alone.
fn every_kind() -> [Ledger; 3] {
    let mut short = Ledger::new(true).unwrap();
    short.table.whole = None;
    [
        Ledger::new(true).unwrap(),
        short,
        Ledger::new(false).unwrap(),
    ]
}

#[test]
fn an_address_is_found_from_the_first_to_the_last_byte() {
    for ledger in every_kind() {
        let base = 0x7f00_0020_0000;
        let (made, _) = ledger.insert(managed(base, 5 * MIB));
        for offset in [0, 1, 2 * MIB, 4 * MIB, 5 * MIB - 1] {
            let found = ledger.find(base + offset).unwrap();
            assert_eq!(
                (found.alloc, found.base, found.offset),
                (made.id, base, offset)
            );
            assert_eq!(ledger.locate(base + offset), Some((made.id, offset)));
        }
        for elsewhere in [base - 1, base + 5 * MIB, u64::MAX, 0] {
            assert_eq!(ledger.find(elsewhere), None);
            assert_eq!(ledger.locate(elsewhere), None);
        }
    }
}

#[test]
fn neighbours_in_one_granule_are_told_apart_whatever_the_order_of_frees() {
    for ledger in every_kind() {
        let base = 0x7f00_0000_0000;
        let small = 64 << 10;
        for place in 0..32 {
            ledger.insert(managed(base + place * small, small));
        }
        // One that begins in the same granule and ends two further on.
        ledger.insert(managed(
            base + 32 * small - small / 2 + small,
            4 * MIB - small,
        ));
        for place in (0..32).step_by(3) {
            assert!(ledger.remove(base + place * small).is_some());
        }
        for place in 0..32 {
            let found = ledger.find(base + place * small + 5);
            assert_eq!(found.is_some(), place % 3 != 0, "{place}");
            let located = ledger.locate(base + place * small + 5);
            assert_eq!(located, found.map(|found| (found.alloc, 5)));
        }
        assert!(ledger.find(base + 4 * MIB).is_some());
        assert!(ledger.locate(base + 4 * MIB).is_some());
    }
}

#[test]
fn unconverted_memory_is_counted_but_not_found() {
    let ledger = Ledger::new(true).unwrap();
    let plain = Allocation {
        address: 0x1000,
        bytes: 512,
        ..Allocation::default()
    };
    ledger.insert(plain);
    assert_eq!(ledger.find(0x1000), None);
    assert_eq!(ledger.counters().unconverted_bytes, 512);
    assert_eq!(ledger.remove(0x1000).unwrap().bytes, 512);
    assert_eq!(ledger.counters().unconverted_bytes, 0);
    assert_eq!(ledger.counters().unconverted_peak_bytes, 512);
}

// Field report 26: a free of memory never seen made a counter wrap.
#[test]
fn a_free_of_something_unknown_changes_no_sum() {
    let ledger = Ledger::new(true).unwrap();
    assert!(ledger.remove(0xdead_0000).is_none());
    ledger.unknown_free();
    ledger.other_device_bytes().sub(1 << 40);
    let counters = ledger.counters();
    assert_eq!((counters.unknown_frees, counters.unconverted_bytes), (1, 0));
}

#[test]
fn an_address_given_again_belongs_to_the_new_allocation() {
    for ledger in every_kind() {
        given_again(&ledger);
    }
}

fn given_again(ledger: &Ledger) {
    let base = 0x7f12_0000_0000;
    let (first, _) = ledger.insert(managed(base, 8 * MIB));
    // The free was not seen.
    let (second, stale) = ledger.insert(managed(base, 2 * MIB));
    let stale: Vec<AllocId> = stale.iter().map(|stale| stale.id).collect();
    assert_eq!(stale, [first.id], "to be given back to the ceiling");
    assert_ne!(first.id, second.id);
    assert_eq!(ledger.find(base).unwrap().alloc, second.id);
    assert_eq!(ledger.locate(base), Some((second.id, 0)));
    assert_eq!(ledger.find(base + 4 * MIB), None);
    assert_eq!(ledger.locate(base + 4 * MIB), None);
    assert_eq!(ledger.counters().converted_bytes, 2 * MIB);
    // Its free failed: entered again, it is another allocation.
    let gone = ledger.remove(base).unwrap();
    let (again, stale) = ledger.insert(gone);
    assert!(stale.is_empty() && again.id != second.id);
    assert_eq!(ledger.find(base).unwrap().alloc, again.id);
    assert_eq!(ledger.counters().converted_bytes, 2 * MIB);
}

#[test]
fn what_lay_where_another_allocation_is_now_is_gone_whatever_it_shared_with_it() {
    for ledger in every_kind() {
        let base = 0x7f12_0000_0000;
        let next = base + 10 * MIB;
        // Their frees were not seen: the new one ends within one granule of the old, begins within the
        // old, ends within it, holds it, or holds two of them.
        for (new, bytes) in [(0, 1), (2, 1), (2, 8), (3, 1), (7, 5), (0, 20), (1, 2)] {
            let (old, _) = ledger.insert(managed(base, 8 * MIB));
            let (other, _) = ledger.insert(managed(next, 8 * MIB));
            let (made, stale) = ledger.insert(managed(base + new * MIB, bytes * MIB));
            for at in (0..20 * MIB).step_by(1 << 19) {
                let inside = (new * MIB..(new + bytes) * MIB).contains(&at);
                let beside = (10 * MIB..18 * MIB).contains(&at) && new + bytes <= 10;
                let expected = match (inside, beside) {
                    (true, _) => Some((made.id, at - new * MIB)),
                    (false, true) => Some((other.id, at - 10 * MIB)),
                    (false, false) => None,
                };
                assert_eq!(ledger.locate(base + at), expected, "{new} {bytes} {at}");
                let found = ledger.find(base + at);
                assert_eq!(found.map(|found| (found.alloc, found.offset)), expected);
            }
            let mut gone = vec![old.id];
            gone.extend((new + bytes > 10).then_some(other.id));
            let stale: Vec<AllocId> = stale.iter().map(|stale| stale.id).collect();
            assert_eq!(stale, gone, "{new} {bytes}");
            for base in [base, base + new * MIB, next] {
                ledger.remove(base);
            }
            assert_eq!(ledger.counters().converted_bytes, 0);
        }
    }
}

#[test]
fn what_a_context_held_goes_with_it_and_nothing_else() {
    let ledger = Ledger::new(true).unwrap();
    let bases = [0x7f13_0000_0000, 0x7f14_0000_0000, 0x7f15_0000_0000];
    for (base, context) in bases.into_iter().zip([7, 8, 7]) {
        let allocation = Allocation {
            context,
            ..managed(base, 4 * MIB)
        };
        ledger.insert(allocation);
    }
    assert!(ledger.remove_of(0).is_empty() && ledger.remove_of(9).is_empty());
    let gone = ledger.remove_of(7);
    assert_eq!(
        gone.iter().map(|a| a.address).collect::<Vec<_>>(),
        [bases[0], bases[2]]
    );
    assert_eq!(ledger.find(bases[0]), None);
    assert!(ledger.find(bases[1]).is_some());
    assert_eq!(ledger.counters().converted_bytes, 4 * MIB);
}

#[test]
fn readers_see_whole_allocations_while_others_come_and_go() {
    let ledger = Ledger::new(true).unwrap();
    let stop = AtomicBool::new(false);
    let steady = 0x7f50_0000_0000;
    let (made, _) = ledger.insert(managed(steady, 2 * MIB + 4096));
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let ledger = &ledger;
            let stop = &stop;
            scope.spawn(move || {
                // Its granules are shared with the steady one on one side.
                let base = steady + 2 * MIB + 8192 + thread * 0x1000_0000;
                for turn in 0..3000 {
                    ledger.insert(managed(base, (1 + turn % 7) * MIB));
                    let found = ledger.find(base + 17).unwrap();
                    assert_eq!((found.base, found.offset), (base, 17));
                    ledger.remove(base);
                }
                stop.store(true, Ordering::Release);
            });
        }
        while !stop.load(Ordering::Acquire) {
            for address in [steady, steady + 2 * MIB + 4095, steady + 2 * MIB + 9000] {
                if let Some(found) = ledger.find(address) {
                    assert!(found.offset < found.bytes);
                    assert_eq!(found.base + found.offset, address);
                    assert_eq!(found.base == steady, found.alloc == made.id);
                }
                if let Some((alloc, offset)) = ledger.locate(address) {
                    let here = (made.id, address - steady);
                    assert_eq!(alloc == made.id, (alloc, offset) == here);
                }
            }
            assert!(
                ledger.find(steady).is_some(),
                "the steady one is always there"
            );
        }
    });
    assert_eq!(ledger.counters().converted_bytes, made.bytes);
}
