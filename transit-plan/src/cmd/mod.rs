//! One module per verb, each with its `Args` and `run`. `run` returns the exit code: 0 fine, 1 a
//! negative finding; an error is exit code 2.

pub mod build;
pub mod cut;
pub mod files;
pub mod inspect;
pub mod plot;
pub mod plot_heatmap;
pub mod plot_sizes;
pub mod report;
pub mod windows;
