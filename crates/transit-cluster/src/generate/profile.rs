//! What is published of each cluster besides its curves (AcmeTrace's summary table, treemaps and box
//! plots), and what is not published and therefore assumed (how jobs arrive).

use serde::Serialize;

/// Which of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cluster {
    /// 286 nodes of 8 GPUs, 450,590 GPU jobs in 184 days.
    Seren,
    /// 302 nodes of 8 GPUs, 19,907 GPU jobs in 91 days.
    Kalos,
}

/// A type of job.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in the trace.
    pub name: &'static str,
    /// Share of jobs (area in the published treemap).
    pub share: f64,
    /// GPUs of a job: lower whisker, quartiles, upper whisker.
    pub gpus: [u32; 5],
    /// Jobs of one batch, on average. Assumed: evaluations are submitted in batches.
    pub batch: f64,
    /// Jobs that follow one another, each once the one before has ended. Assumed: a failed or
    /// cancelled training job is submitted again.
    pub chain: f64,
}

/// What is known of a cluster's jobs.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The name in the curves' files.
    pub name: &'static str,
    /// GPU jobs in the public trace.
    pub jobs: u32,
    /// GPU hours in the public trace.
    pub gpu_hours: f64,
    /// Days from the first submission to the last.
    pub days: f64,
    /// Racks of 32 GPUs, as in the paper.
    pub racks: f64,
    /// The types.
    pub kinds: &'static [Kind],
    /// Share of jobs that completed, were cancelled, failed.
    pub states: [f64; 3],
    /// Share of GPU time of those.
    pub state_time: [f64; 3],
}

const fn kind(name: &'static str, share: f64, gpus: [u32; 5], batch: f64, chain: f64) -> Kind {
    Kind {
        name,
        share,
        gpus,
        batch,
        chain,
    }
}

static SEREN: Profile = Profile {
    name: "seren",
    jobs: 450_590,
    gpu_hours: 5_626_520.0,
    days: 184.0,
    racks: 72.0,
    kinds: &[
        kind("Eval", 0.649, [1, 1, 1, 4, 8], 20.0, 1.0),
        kind("SFT", 0.149, [1, 2, 8, 8, 16], 3.0, 1.0),
        kind("Other", 0.146, [1, 1, 1, 8, 16], 3.0, 1.0),
        kind("MLLM", 0.029, [1, 1, 2, 8, 16], 1.0, 4.0),
        kind("Debug", 0.019, [8, 8, 8, 8, 8], 1.0, 2.0),
        kind("Pretrain", 0.009, [40, 64, 128, 256, 512], 1.0, 8.0),
    ],
    states: [0.497, 0.075, 0.428],
    state_time: [0.212, 0.664, 0.124],
};

static KALOS: Profile = Profile {
    name: "kalos",
    jobs: 19_907,
    gpu_hours: 1_481_439.0,
    days: 91.18,
    racks: 76.0,
    kinds: &[
        kind("Eval", 0.928, [1, 1, 1, 1, 1], 20.0, 1.0),
        kind("Pretrain", 0.032, [96, 256, 512, 512, 512], 1.0, 8.0),
        kind("Debug", 0.027, [1, 32, 128, 512, 1024], 1.0, 2.0),
        kind("Other", 0.013, [1, 2, 8, 32, 64], 1.0, 2.0),
    ],
    states: [0.541, 0.062, 0.397],
    state_time: [0.313, 0.607, 0.08],
};

impl Cluster {
    /// What is known of it.
    #[must_use]
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::Seren => &SEREN,
            Self::Kalos => &KALOS,
        }
    }
}
