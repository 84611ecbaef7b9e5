//! Base: the driver's own faults and evictions. On an emulated card the plan holds the evictions
//! that the driver would have made, since the real card has room and makes none.

use super::walk::Walk;
use super::{Inputs, Outcome};

pub(super) fn plan(inputs: &Inputs<'_>) -> Outcome {
    Walk::new(inputs).run(step)
}

/// One op under Base.
pub(super) fn step(walk: &mut Walk<'_>, place: usize) {
    let touches = walk.inputs.touches;
    let touched = touches.touched(place);
    if walk.inputs.emulate {
        walk.mark(touched);
        let frames = walk.new_frames(touched);
        walk.make_room(place, frames);
    }
    walk.fault_in(touched);
}
