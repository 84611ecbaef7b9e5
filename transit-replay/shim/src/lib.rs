//! `libtransit_replay.so`: follows a plan inside the job and issues its steps. The hooks are
//! `transit-hook`'s, the recording of a replayed run is `transit-capture`'s; what lies between is
//! here. Preloaded by `transit-replay`; inert until the process' first successful `cuInit`.

mod card;
mod director;
mod entry;
mod follow;
mod guarded;
mod issue;
mod load;
mod placed;
mod prepare;
mod rebase;
mod session;
mod tally;
