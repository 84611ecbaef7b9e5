//! libtransit_replay.so: follows a plan inside the job and issues its steps. Preloaded by
//! `transit-replay`; inert until the process' first successful `cuInit`.

mod card;
mod director;
mod follow;
mod guarded;
mod issue;
mod load;
mod placed;
mod session;
mod tally;

use director::{Director, PREFIX};
use transit_hook::settings::Settings;

static DIRECTOR: Director = Director::new();

/// Runs once, at the first look-up of a driver function or the first `cuInit`.
fn set_up() {
    let settings = Settings::from_env(PREFIX);
    DIRECTOR.configure(settings.clone());
    transit_hook::install(&DIRECTOR, settings);
}

transit_hook::export_all!(set_up);
