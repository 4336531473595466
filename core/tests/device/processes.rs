//! Ranks as processes: this test binary is started once per rank, with files in a directory as the bootstrap.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use farside_core::bootstrap::Bootstrap;
use farside_core::settings::Settings;
use farside_core::{Error, ErrorKind, Job, Result};

const SPEC: &str = "FARSIDE_TEST_RANK";
/// Exceeds the duration of any test; a hang becomes a failure.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The parameters that a child gets from its environment.
pub(crate) struct Rank {
    pub config: usize,
    rank: u32,
    size: u32,
    dir: PathBuf,
}

impl Rank {
    /// The parameters of this process; `None` if it is not a rank.
    pub(crate) fn from_env() -> Option<Self> {
        let spec = std::env::var(SPEC).ok()?;
        let mut fields = spec.splitn(4, ',');
        let mut number = || fields.next()?.parse::<u32>().ok();
        let (config, rank, size) = (number()? as usize, number()?, number()?);
        Some(Self { config, rank, size, dir: fields.next()?.into() })
    }

    /// Runs `body` as this rank; a failure fails the test, and with it the process.
    pub(crate) fn run(self, settings: &Settings, body: impl FnOnce(&Job) -> Result<()>) {
        let bootstrap = Files { rank: self.rank, size: self.size, dir: self.dir, fences: 0 };
        let job = Job::start(Box::new(bootstrap), settings.clone()).unwrap();
        body(&job).and_then(|()| job.finalize()).unwrap();
    }
}

/// Starts `size` ranks of test `test` and waits until all have ended.
pub(crate) fn run(test: &str, config: usize, size: u32) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let spec = |rank| format!("{config},{rank},{size},{}", dir.path().display());
    let log = |rank: u32| dir.path().join(format!("log.{rank}"));
    let mut ranks: Vec<_> = (0..size)
        .map(|r| {
            let output = File::create(log(r)).unwrap();
            let mut command = itself(test);
            command.env(SPEC, spec(r)).stderr(output.try_clone().unwrap()).stdout(output);
            command.spawn().unwrap()
        })
        .collect();
    let start = Instant::now();
    let mut ends: Vec<Option<ExitStatus>> = vec![None; ranks.len()];
    while ends.iter().any(Option::is_none) {
        for (end, rank) in ends.iter_mut().zip(&mut ranks) {
            *end = end.or(rank.try_wait().unwrap());
        }
        if start.elapsed() > WATCHDOG {
            ranks.iter_mut().for_each(|r| drop(r.kill()));
            ranks.iter_mut().for_each(|r| drop(r.wait()));
            return Err(format!("still running after {WATCHDOG:?}: {ends:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if ends.iter().flatten().all(ExitStatus::success) {
        return Ok(());
    }
    let logs: String = (0..size).map(|r| format!("\n-- rank {r}\n{}", fs::read_to_string(log(r)).unwrap())).collect();
    Err(format!("{ends:?}{logs}"))
}

/// A command that runs one test of this binary; `test` starts with the name of the crate.
pub(crate) fn itself(test: &str) -> Command {
    let (_, path) = test.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", path, "--nocapture", "--test-threads=1"]);
    command
}

/// A bootstrap in files: one file per key, and one per rank for each fence.
struct Files {
    rank: u32,
    size: u32,
    dir: PathBuf,
    fences: u32,
}

impl Files {
    fn write(&self, name: &str, value: &[u8]) {
        let hidden = self.dir.join(format!("{name}.new"));
        fs::write(&hidden, value).unwrap();
        fs::rename(hidden, self.dir.join(name)).unwrap();
    }
}

impl Bootstrap for Files {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.write(&format!("key.{key}"), value);
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.fences += 1;
        self.write(&format!("fence.{}.{}", self.fences, self.rank), &[]);
        let start = Instant::now();
        let here = |r: u32| self.dir.join(format!("fence.{}.{r}", self.fences)).exists();
        while !(0..self.size).all(here) {
            if start.elapsed() > WATCHDOG {
                return Err(Error::new(ErrorKind::Timeout, "fence"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        fs::read(self.dir.join(format!("key.{key}"))).map_err(|e| Error::system("get", e))
    }

    fn finalize(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, _: i32, _: &str) {}
}
