//! The job: started with the shim preloaded, waited for, its end passed on.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::{Duration, Instant, SystemTime};

use crate::{Failure, program, signals, template};

/// Environment variable that tells shims when the launcher started, in nanoseconds since the Unix
/// epoch: a file younger than that belongs to another process of the same job.
pub const LAUNCHED_NS: &str = "TRANSIT_LAUNCHED_NS";

/// A job to start under a shim.
#[derive(Debug)]
pub struct Job {
    program: PathBuf,
    command: Vec<OsString>,
    shim: Option<PathBuf>,
    settings: Vec<(OsString, OsString)>,
    since: SystemTime,
}

/// Longer than a tick of any kernel's file clock (10 ms at 100 Hz).
const LONGEST_TICK: Duration = Duration::from_millis(50);

/// The time as files get it: their clock ticks a hundred to a thousand times a second and lags
/// behind the precise one, so that a file made just after a launch would look older than it by that.
/// By the files' own clock what came before is older, but for a file of the very same tick
/// ([`Job::writes`]).
fn file_time() -> SystemTime {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live local of the type asked for.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It exited with this status.
    Exited(u8),
    /// A signal killed it.
    Killed(i32),
}

impl Job {
    /// Prepares `command` (program and arguments, passed on untouched).
    ///
    /// # Errors
    /// 125 for an empty command, 126 or 127 if it cannot be executed or found.
    pub fn new(command: &[OsString]) -> Result<Self, Failure> {
        let name = command.first().ok_or_else(|| {
            Failure::own("no command given; write it after `--`, as in `-- python train.py`")
        })?;
        let program = program::find(name)?;
        let since = file_time();
        Ok(Self {
            program,
            command: command.to_vec(),
            shim: None,
            settings: Vec::new(),
            since,
        })
    }

    /// What the job writes under `template`'s names is told apart by age from what earlier jobs left
    /// there: waits until the files' clock has passed the youngest of those, a few milliseconds at
    /// most. One from the future (another host's clock) is waited for no longer.
    #[must_use]
    pub fn writes(mut self, template: &str) -> Self {
        let there = template::written(template, self.since);
        let times = there.iter().filter_map(|path| path.metadata().ok());
        let youngest = times.filter_map(|metadata| metadata.modified().ok()).max();
        let end = Instant::now() + LONGEST_TICK;
        while youngest.is_some_and(|at| at >= self.since) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            self.since = file_time();
        }
        self
    }

    /// No file of the job is older than this; for [`crate::template::written`].
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Preloads `shim`, before whatever `LD_PRELOAD` holds already.
    #[must_use]
    pub fn preload(mut self, shim: &Path) -> Self {
        self.shim = Some(shim.to_owned());
        self
    }

    /// Sets an environment variable of the job.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.settings.push((name.into(), value.as_ref().into()));
        self
    }

    /// Runs the job to its end. Signals sent to this process meanwhile go to the job.
    ///
    /// # Errors
    /// If the job could not be started.
    pub fn run(&self) -> Result<Outcome, Failure> {
        let (name, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| Failure::own("no command given"))?;
        let mut command = Command::new(&self.program);
        command.arg0(name).args(arguments);
        if let Some(shim) = &self.shim {
            command.env(
                "LD_PRELOAD",
                preload_list(shim, env::var_os("LD_PRELOAD").as_deref()),
            );
        }
        let launched_ns = self
            .since
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_nanos());
        command.env(LAUNCHED_NS, launched_ns.to_string());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        signals::install();
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        signals::announce(child.id());
        let status = child.wait();
        signals::retire();
        let status =
            status.map_err(|error| Failure::own(format!("lost sight of the job: {error}")))?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Outcome::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Outcome::Killed(signal),
            (None, None) => Outcome::Exited(u8::MAX),
        })
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let text = format!("{}: {error}", self.program.display());
        match error.kind() {
            // The file was there a moment ago: it is its interpreter that is missing.
            io::ErrorKind::NotFound => {
                Failure::not_executable(format!("{text} (is the interpreter it names installed?)"))
            }
            io::ErrorKind::OutOfMemory => Failure::own(text),
            _ => Failure::not_executable(text),
        }
    }
}

fn preload_list(shim: &Path, existing: Option<&OsStr>) -> OsString {
    let mut list = shim.as_os_str().to_owned();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        list.push(":");
        list.push(existing);
    }
    list
}

impl Outcome {
    /// Ends this process the way the job ended: same status, or same signal (without a core).
    pub fn leave(self) -> ! {
        match self {
            Self::Exited(code) => process::exit(i32::from(code)),
            Self::Killed(signal) => {
                signals::die_by(signal);
                process::exit(128 + signal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_file_is_older_than_a_launch_only_if_it_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let time = |text: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::metadata(&path).unwrap().modified().unwrap()
        };
        // Most of these are launched within the tick of the file's last change.
        for _ in 0..20 {
            let before = time("before");
            let job = Job::new(&words(&["true"])).unwrap();
            let since = job.writes(path.to_str().unwrap()).since();
            assert!(before < since && since <= time("after"));
        }
    }

    #[test]
    fn a_file_from_the_future_is_not_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hour = SystemTime::now() + Duration::from_secs(3600);
        file.as_file().set_modified(hour).unwrap();
        let job = Job::new(&words(&["true"])).unwrap();
        assert!(job.writes(file.path().to_str().unwrap()).since() < hour);
    }

    #[test]
    fn status_and_signal_of_the_job_are_told_apart() {
        let run = |script: &str| {
            Job::new(&words(&["sh", "-c", script]))
                .unwrap()
                .run()
                .unwrap()
        };
        assert_eq!(run("exit 0"), Outcome::Exited(0));
        assert_eq!(run("exit 137"), Outcome::Exited(137));
        assert_eq!(run("kill -9 $$"), Outcome::Killed(9));
    }

    #[test]
    fn settings_and_arguments_reach_the_job_untouched() {
        let script = "test \"$1\" = '--help' && test \"$2\" = 'a b' && test \"$X\" = y";
        let command = words(&["sh", "-c", script, "sh", "--help", "a b"]);
        let outcome = Job::new(&command).unwrap().setting("X", "y").run().unwrap();
        assert_eq!(outcome, Outcome::Exited(0));
    }

    #[test]
    fn a_script_without_its_interpreter_is_not_executable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job");
        std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let failure = Job::new(&[path.into_os_string()])
            .unwrap()
            .run()
            .unwrap_err();
        assert_eq!(failure.code, 126);
        assert!(failure.message.contains("interpreter"));
    }

    #[test]
    fn an_existing_preload_is_kept_behind_ours() {
        let list = |existing| preload_list(Path::new("/a.so"), existing);
        assert_eq!(list(None), "/a.so");
        assert_eq!(list(Some(OsStr::new(""))), "/a.so");
        assert_eq!(list(Some(OsStr::new("/b.so /c.so"))), "/a.so:/b.so /c.so");
    }
}
