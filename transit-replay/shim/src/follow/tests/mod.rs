//! The follower on invented programs: what it matches, what it hands out, and what it never does.

mod binding;
mod experts;
pub(crate) mod launch_path;
mod matching;
mod noise;
mod programs;
mod states;
