//! How many iterations a recording holds so far: an estimate that only decides when a window ends.
//! The planner finds iterations properly, offline.
//!
//! An iteration does the same work on the same memory, so the same op (function, shape and
//! pointers) comes back once in each. Layers within an iteration look alike too, but touch other
//! weights. The estimate is the median of how often each distinct op has come. Where kernels are
//! named after an optimizer, only those count: they run once per iteration however many
//! micro-batches it has. Without such names micro-batches count as iterations.

use std::collections::HashMap;

use transit_format::trace::model::{OpKind, Pointer};

/// Distinct ops remembered; more are ignored, which delays the end of the window and no more.
const MOST_KEYS: usize = 1 << 16;

const OPTIMIZERS: [&str; 9] = [
    "adam",
    "adagrad",
    "adafactor",
    "lamb",
    "lion",
    "rmsprop",
    "sgd",
    "muon",
    "optimizer",
];

/// Whether a kernel's name says that it updates parameters.
pub(crate) fn names_an_optimizer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OPTIMIZERS.iter().any(|optimizer| name.contains(optimizer))
}

/// Counts how often ops come back.
#[derive(Debug, Default)]
pub(crate) struct Iterations {
    optimizer: HashMap<u64, u32>,
    any: HashMap<u64, u32>,
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

impl Iterations {
    /// An op was issued. `function` is any number that tells functions apart.
    pub(crate) fn see(
        &mut self,
        optimizer: bool,
        kind: OpKind,
        function: u64,
        shape: u32,
        pointers: &[Pointer],
    ) {
        if kind == OpKind::Memset || kind == OpKind::Memcpy {
            return;
        }
        // Parameters lie still; gradients may be allocated anew each time.
        let counted = if optimizer {
            pointers.get(..1).unwrap_or(&[])
        } else {
            pointers
        };
        let mut key = mix(mix(1, function), u64::from(shape));
        for pointer in counted {
            key = mix(mix(key, u64::from(pointer.alloc.0)), pointer.offset);
        }
        let counts = if optimizer {
            &mut self.optimizer
        } else {
            &mut self.any
        };
        if let Some(count) = counts.get_mut(&key) {
            *count += 1;
        } else if counts.len() < MOST_KEYS {
            counts.insert(key, 1);
        }
    }

    /// Iterations begun so far.
    pub(crate) fn estimate(&self) -> u32 {
        let counts = if self.optimizer.is_empty() {
            &self.any
        } else {
            &self.optimizer
        };
        let mut counts: Vec<u32> = counts.values().copied().collect();
        let middle = counts.len() / 2;
        if counts.is_empty() {
            return 0;
        }
        *counts.select_nth_unstable(middle).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transit_format::ids::AllocId;

    fn at(alloc: u32) -> [Pointer; 1] {
        [Pointer {
            alloc: AllocId(alloc),
            offset: 0,
            bytes: 0,
        }]
    }

    fn step(counter: &mut Iterations, micro_batches: u32, named: bool) {
        for _ in 0..micro_batches {
            for layer in 0..24 {
                counter.see(false, OpKind::Kernel, 1, 0, &at(layer));
                counter.see(false, OpKind::Kernel, 2, 0, &at(layer));
            }
        }
        for layer in 0..24 {
            counter.see(named, OpKind::Kernel, 3, 0, &at(layer));
        }
    }

    #[test]
    fn layers_are_no_iterations_and_accumulation_steps_are_none_beside_an_optimizer() {
        let mut counter = Iterations::default();
        assert_eq!(counter.estimate(), 0);
        for n in 1..5 {
            step(&mut counter, 1, false);
            assert_eq!(counter.estimate(), n);
        }
        let mut counter = Iterations::default();
        for n in 1..5 {
            step(&mut counter, 8, true);
            assert_eq!(counter.estimate(), n);
        }
    }

    #[test]
    fn optimizers_are_known_by_their_kernels_names() {
        assert!(names_an_optimizer("_ZN2at6native12FusedAdamMathFunctor"));
        assert!(names_an_optimizer("multi_adam"));
        assert!(!names_an_optimizer("ampere_bf16_s16816gemm"));
    }
}
