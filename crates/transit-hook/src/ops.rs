//! One op through a hook: numbered, described, told to the observer, issued, told again. This is
//! the launch path: no lock, no allocation and no formatting once a function, a stream and a
//! caller are known.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use transit_format::ids::FunctionId;
use transit_format::trace::model::OpKind;

use crate::driver::{Driver, Handle};
use crate::ledger::Ledger;
use crate::observer::{DeviceRecords, OpCall};
use crate::scan::Pointers;
use crate::{callers, guard, state, streams};

/// Where an op goes and who issues it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The stream as the job gave it.
    pub(crate) stream: Handle,
    /// The entry point has a per-thread suffix.
    pub(crate) per_thread: bool,
    /// Return address of the call, 0 if unknown.
    pub(crate) caller: usize,
}

/// Grid, block and shared memory of a kernel; what there is in their place for others.
pub(crate) type Shape = [u32; 7];

/// The shape of a copy or set of so many bytes.
pub(crate) fn shape_of_bytes(bytes: u64) -> Shape {
    let [a, b, c, d, e, f, g, h] = bytes.to_le_bytes();
    let (low, high) = ([a, b, c, d], [e, f, g, h]);
    let (low, high) = (u32::from_le_bytes(low), u32::from_le_bytes(high));
    [low, high, 0, 0, 0, 0, 0]
}

/// What an op is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    pub(crate) kind: OpKind,
    pub(crate) function: FunctionId,
    pub(crate) hash: u64,
    pub(crate) shape: Shape,
    pub(crate) records: DeviceRecords,
    /// Bytes a memset or memcpy writes, else 0.
    pub(crate) payload_bytes: u64,
}

/// Runs `call` as an op. `describe` fills in the pointers and answers `None` for a call that is
/// no op (a copy that touches no managed memory).
#[inline]
pub(crate) fn run(
    site: Site,
    describe: impl FnOnce(&'static Driver, &'static Ledger, &mut Pointers) -> Option<Described>,
    call: impl FnOnce() -> u32,
) -> u32 {
    let Some((_guard, live)) = guard::enter() else {
        return call();
    };
    let mut pointers = Pointers::new();
    let mut op = None;
    let (pointers, place) = (&mut pointers, &mut op);
    let word = guard::protect(move || {
        let described = describe(live.driver, live.ledger, pointers)?;
        let stream = streams::of(live.driver, site.stream, site.per_thread);
        let capturing = streams::captured(live.driver, stream.handle);
        let (seq, shape) = if live.writes_down {
            (state::number_op(capturing), hash_of(&described.shape))
        } else {
            Default::default()
        };
        // Built where it stays: moving it costs as much as finding a pointer.
        let op = place.insert(OpCall {
            seq,
            kind: described.kind,
            stream: stream.id,
            stream_handle: stream.handle,
            device: stream.device,
            function: described.function,
            name_hash: described.hash,
            shape,
            records: described.records,
            payload_bytes: described.payload_bytes,
            pointers: pointers.as_slice(),
            capturing,
            excluded: callers::excluded(site.caller),
        });
        live.observer.before_op(op)
    });
    let result = call();
    if let (Some(Some(word)), Some(op)) = (word, &op) {
        let _ = guard::protect(|| live.observer.after_op(op, word, result));
    }
    result
}

static PASSED: AtomicU64 = AtomicU64::new(0);

/// Counts a memset or copy that touches no managed memory and so is no op.
pub(crate) fn pass_transfer() {
    PASSED.fetch_add(1, Ordering::Relaxed);
}

/// Memsets and copies that were no ops because they touched no managed memory. The device reports
/// activity for them all the same.
#[must_use]
pub fn passed_transfers() -> u64 {
    PASSED.load(Ordering::Relaxed)
}

/// A hash of an op's shape, two numbers at a time.
#[inline]
fn hash_of(shape: &Shape) -> u32 {
    let hash = shape
        .chunks(2)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, two| {
            let word = |place: usize| two.get(place).map_or(0, |part| u64::from(*part));
            (hash ^ word(0) ^ (word(1) << 32)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    // The upper half is the better mixed one.
    u32::try_from(hash >> 32).unwrap_or(0)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live local of the type asked for.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec.cast_unsigned())
}

/// Runs a hook that is no op: `work` with the guard held, or `plain` straight through.
#[inline]
pub(crate) fn hooked(
    plain: impl Fn() -> u32,
    work: impl FnOnce(&'static Driver, &'static Ledger, &dyn Fn() -> u32) -> u32,
) -> u32 {
    let Some((_guard, live)) = guard::enter() else {
        return plain();
    };
    // The real call must happen exactly once, whatever happens around it.
    let done: Cell<Option<u32>> = Cell::new(None);
    let once = || {
        let result = plain();
        done.set(Some(result));
        result
    };
    match guard::protect(|| work(live.driver, live.ledger, &once)) {
        Some(result) => result,
        None => done.get().unwrap_or_else(plain),
    }
}
