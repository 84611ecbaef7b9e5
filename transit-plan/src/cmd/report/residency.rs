//! What lay where during a run, replayed from its migrations: the peak of memory on the device,
//! and an estimate of the bytes read and written across the link without moving (zero-copy).

use transit_format::ids::AllocId;
use transit_format::trace::Trace;
use transit_format::trace::model::{Direction, FaultKind};

use crate::cmd::windows::{self, Window};

/// The driver evicts and the emulated card counts in chunks of this size.
const CHUNK_BYTES: u64 = 2 << 20;
/// Granularity of the zero-copy estimate: the driver's smallest populated group.
const GROUP_BYTES: u64 = 64 << 10;

/// Something that changes or asks what is resident, in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// An op has ended.
    Ended(usize),
    /// A migration, by its place.
    Moved(usize),
    /// A remote map, by its place among the faults.
    Mapped(usize),
    /// A free, by its place.
    Freed(usize),
    /// An op begins.
    Begins(usize),
}

/// Events by time. At equal times, transfers come after the op that ends and before the op that
/// begins then.
fn events(trace: &Trace, zero_copy: bool) -> Vec<(u64, What)> {
    let moved = trace.migrations.iter().enumerate();
    let mut list: Vec<(u64, What)> = moved
        .map(|(place, one)| (one.start_ns.0, What::Moved(place)))
        .collect();
    list.extend(
        trace
            .frees
            .iter()
            .enumerate()
            .map(|(at, one)| (one.at_ns.0, What::Freed(at))),
    );
    for (place, op) in trace.ops.iter().enumerate() {
        list.push((windows::began_ns(op), What::Begins(place)));
        if zero_copy {
            list.push((windows::ended_ns(op), What::Ended(place)));
        }
    }
    if zero_copy {
        let maps = trace.faults.iter().enumerate();
        let maps = maps.filter(|(_, fault)| fault.kind == FaultKind::RemoteMap);
        list.extend(maps.map(|(place, fault)| (fault.start_ns.0, What::Mapped(place))));
    }
    list.sort_unstable();
    list
}

/// What the replay found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Highest number of bytes in 2 MiB chunks on the device when an op began; `None` unless the
    /// card was emulated, since only then every arrival is a recorded migration.
    pub peak_chunk_bytes: Option<u64>,
    /// Zero-copy bytes of each window asked for; `None` where the run could have had none.
    pub zero_copy_bytes: Option<Vec<f64>>,
}

/// Whether the run may have read host memory in place: some policy advised it, or maps were seen.
#[must_use]
pub fn may_zero_copy(trace: &Trace) -> bool {
    let policy = trace.header.replayed_policy.as_deref().unwrap_or("base");
    !(policy.starts_with("base") || policy.starts_with("prefetch"))
        || trace
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::RemoteMap)
}

/// Replays a trace.
#[must_use]
pub fn replay(trace: &Trace, windows: &[Window]) -> Found {
    let emulated = trace.header.emulated_card_bytes.is_some();
    let zero_copy = may_zero_copy(trace);
    if !emulated && !zero_copy {
        return Found::default();
    }
    let mut chunks = Chunks::new(trace);
    let mut groups = Groups::new(trace, !emulated);
    let ends = if zero_copy {
        extents(trace)
    } else {
        Vec::new()
    };
    let mut sums = vec![0.0; windows.len()];
    for (_, what) in events(trace, zero_copy) {
        match what {
            What::Moved(place) => {
                let Some(one) = trace.migrations.get(place) else {
                    continue;
                };
                let arrives = one.direction == Direction::HtoD;
                chunks.moved(one.alloc, one.offset, one.bytes, arrives);
                groups.set(one.alloc, one.offset, one.bytes, arrives);
            }
            What::Mapped(place) => {
                let Some(one) = trace.faults.get(place) else {
                    continue;
                };
                groups.set(one.alloc, one.offset, one.value, false);
            }
            What::Freed(place) => {
                if let Some(free) = trace.frees.get(place) {
                    chunks.freed(free.alloc);
                }
            }
            What::Begins(_) => chunks.sample(),
            What::Ended(place) => {
                let window = windows.partition_point(|one| one.first_op <= place);
                let inside = window
                    .checked_sub(1)
                    .and_then(|at| windows.get(at).zip(sums.get_mut(at)));
                if let Some((_, sum)) = inside.filter(|(one, _)| place < one.end_op) {
                    *sum += touched_on_host(trace, place, &groups, &ends) as f64;
                }
            }
        }
    }
    chunks.sample();
    Found {
        peak_chunk_bytes: emulated.then_some(chunks.peak * CHUNK_BYTES),
        zero_copy_bytes: zero_copy.then_some(sums),
    }
}

/// Bytes on the device, by chunk.
struct Chunks {
    first: Vec<usize>,
    bytes: Vec<u32>,
    resident: u64,
    peak: u64,
}

impl Chunks {
    fn new(trace: &Trace) -> Self {
        let mut first = Vec::with_capacity(trace.allocs.len() + 1);
        let mut count = 0;
        for alloc in &trace.allocs {
            first.push(count);
            count += usize::try_from(alloc.bytes.div_ceil(CHUNK_BYTES)).unwrap_or(0);
        }
        first.push(count);
        Self {
            first,
            bytes: vec![0; count],
            resident: 0,
            peak: 0,
        }
    }

    fn range(&self, alloc: AllocId) -> std::ops::Range<usize> {
        let at = |index: usize| self.first.get(index).copied().unwrap_or(self.bytes.len());
        at(alloc.index())..at(alloc.index() + 1)
    }

    fn moved(&mut self, alloc: AllocId, offset: u64, bytes: u64, arrives: bool) {
        let range = self.range(alloc);
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let next = ((at / CHUNK_BYTES + 1) * CHUNK_BYTES).min(end);
            let part = u32::try_from(next - at).unwrap_or(0);
            let place = range.start + usize::try_from(at / CHUNK_BYTES).unwrap_or(usize::MAX / 2);
            at = next;
            let Some(held) = self.bytes.get_mut(place).filter(|_| place < range.end) else {
                return;
            };
            let before = *held > 0;
            // Records can be lost, so a chunk never holds less than nothing or more than itself.
            *held = if arrives {
                held.saturating_add(part).min(2 << 20)
            } else {
                held.saturating_sub(part)
            };
            match (before, *held > 0) {
                (false, true) => self.resident += 1,
                (true, false) => self.resident -= 1,
                _ => {}
            }
        }
    }

    fn freed(&mut self, alloc: AllocId) {
        let range = self.range(alloc);
        for held in self.bytes.get_mut(range).into_iter().flatten() {
            self.resident -= u64::from(*held > 0);
            *held = 0;
        }
    }

    fn sample(&mut self) {
        self.peak = self.peak.max(self.resident);
    }
}

/// Which 64 KiB groups are on the device.
struct Groups(Vec<Vec<u64>>);

impl Groups {
    fn new(trace: &Trace, on_device: bool) -> Self {
        let fill = if on_device { u64::MAX } else { 0 };
        let words = |bytes: u64| usize::try_from(bytes.div_ceil(GROUP_BYTES * 64)).unwrap_or(0);
        Self(
            trace
                .allocs
                .iter()
                .map(|alloc| vec![fill; words(alloc.bytes)])
                .collect(),
        )
    }

    fn set(&mut self, alloc: AllocId, offset: u64, bytes: u64, on_device: bool) {
        let Some(words) = self.0.get_mut(alloc.index()) else {
            return;
        };
        for (word, mask) in masks(offset, bytes) {
            if let Some(word) = words.get_mut(word) {
                *word = if on_device {
                    *word | mask
                } else {
                    *word & !mask
                };
            }
        }
    }

    /// Bytes of a stretch that are not on the device.
    fn absent_bytes(&self, alloc: AllocId, offset: u64, bytes: u64) -> u64 {
        let Some(words) = self.0.get(alloc.index()) else {
            return 0;
        };
        let absent: u64 = masks(offset, bytes)
            .filter_map(|(word, mask)| {
                words
                    .get(word)
                    .map(|word| u64::from((!word & mask).count_ones()))
            })
            .sum();
        (absent * GROUP_BYTES).min(bytes)
    }
}

/// The words and bits of the groups a stretch touches.
fn masks(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let first = offset / GROUP_BYTES;
    let end = if bytes == 0 {
        first
    } else {
        (offset + bytes).div_ceil(GROUP_BYTES)
    };
    (first / 64..end.div_ceil(64)).filter_map(move |word| {
        let from = first.max(word * 64) - word * 64;
        let to = end.min((word + 1) * 64) - word * 64;
        if from >= to {
            return None;
        }
        let mask = (u64::MAX >> (64 - (to - from))) << from;
        Some((usize::try_from(word).unwrap_or(usize::MAX), mask))
    })
}

/// Every offset any op points to, by allocation, in order: a tensor is taken to reach from its own
/// offset to the next.
fn extents(trace: &Trace) -> Vec<Vec<u64>> {
    let mut lists = vec![Vec::new(); trace.allocs.len()];
    for pointer in &trace.pointers {
        if let Some(list) = lists.get_mut(pointer.alloc.index()) {
            list.push(pointer.offset);
        }
    }
    for list in &mut lists {
        list.sort_unstable();
        list.dedup();
    }
    lists
}

fn touched_on_host(trace: &Trace, place: usize, groups: &Groups, ends: &[Vec<u64>]) -> u64 {
    let Some(op) = trace.ops.get(place) else {
        return 0;
    };
    let pointers = trace.pointers_of(op);
    let mut sum = 0;
    for (turn, pointer) in pointers.iter().enumerate() {
        if pointers.iter().take(turn).any(|before| before == pointer) {
            continue;
        }
        let end = ends
            .get(pointer.alloc.index())
            .and_then(|list| list.get(list.partition_point(|offset| *offset <= pointer.offset)))
            .copied()
            .or_else(|| {
                trace
                    .allocs
                    .get(pointer.alloc.index())
                    .map(|alloc| alloc.bytes)
            })
            .unwrap_or(pointer.offset);
        let bytes = match pointer.bytes {
            0 => end.saturating_sub(pointer.offset),
            said => said,
        };
        sum += groups.absent_bytes(pointer.alloc, pointer.offset, bytes);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Directed, Synthetic};

    #[test]
    fn masks_cover_exactly_the_groups() {
        let bits = |offset, bytes| {
            masks(offset, bytes)
                .map(|(_, mask)| mask.count_ones())
                .sum::<u32>()
        };
        assert_eq!(bits(0, 0), 0);
        assert_eq!(bits(0, 1), 1);
        assert_eq!(bits(GROUP_BYTES - 1, 2), 2);
        assert_eq!(bits(5 * GROUP_BYTES, 200 * GROUP_BYTES), 200);
    }

    #[test]
    fn the_peak_stays_on_the_emulated_card() {
        let made = Synthetic::default();
        let trace = made.trace();
        let found = replay(&trace, &[]);
        let unconverted = trace.totals.unconverted_peak_bytes;
        assert_eq!(found.peak_chunk_bytes, Some(made.card_bytes - unconverted));
        assert_eq!(found.zero_copy_bytes, None);
    }

    #[test]
    fn advised_state_on_the_host_counts_as_zero_copy() {
        let made = Synthetic {
            directed: Directed::Advise,
            ..Synthetic::default()
        };
        let trace = made.trace();
        let windows = windows::of(&trace).steady();
        let bytes = replay(&trace, &windows).zero_copy_bytes.unwrap();
        // Two states of 16 MiB per layer, touched once per step.
        let expected = f64::from(made.layers) * 2.0 * f64::from(16 << 20);
        assert!(
            bytes.iter().all(|one| (*one - expected).abs() < 1.0),
            "{bytes:?}"
        );
    }
}
