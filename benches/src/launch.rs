//! Starts ranks of a program of this crate with `farside run`.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use farside_core::error::{Error, ErrorKind, Result};

use crate::record::{Library, Record};
use crate::run::{Note, run_of};

/// What `farside run`, which keeps the time limit itself, gets on top of it before it is killed.
const GRACE: Duration = Duration::from_secs(15);

/// The `farside` command and this very program.
#[derive(Clone, Debug)]
pub struct Launcher {
    farside: PathBuf,
    program: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl Launcher {
    /// The command `farside` beside this program, or in a folder of `PATH`.
    ///
    /// # Errors
    /// [`ErrorKind::Launcher`] if it is in neither.
    pub fn locate() -> Result<Self> {
        const OP: &str = "find the farside command";
        let program = env::current_exe().map_err(|error| Error::system(OP, error))?;
        let beside = program.parent().map(Path::to_owned);
        let path = env::var_os("PATH").unwrap_or_default();
        let farside = find(beside.into_iter().chain(env::split_paths(&path))).ok_or_else(|| {
            Error::new(ErrorKind::Launcher, OP)
                .cause(format!("no `farside` beside {} or in PATH", program.display()))
                .remedy("build it: cargo build --release -p farside-launch")
        })?;
        Ok(Self { farside, program, settings: Vec::new() })
    }

    /// The same, with a setting for the ranks.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// This program as `ranks` ranks with these arguments, ended after `limit`.
    #[must_use]
    pub fn command(&self, ranks: u32, limit: Duration, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.farside);
        command.args(["run", "-n", &ranks.to_string(), "--timeout", &limit.as_secs().max(1).to_string()]);
        command.arg(&self.program).args(arguments).envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs this program as `ranks` ranks that measure Farside, and limits and loops beside it, as
    /// [`crate::peers::Peers::run`] does with a peer.
    pub fn measure(
        &self,
        ranks: u32,
        limit: Duration,
        arguments: &[impl AsRef<OsStr>],
        on_record: impl FnMut(&Record),
    ) -> (Vec<Record>, Vec<Note>) {
        run_of(self.command(ranks, limit, arguments), Library::Farside, ranks, limit, GRACE, on_record)
    }
}

fn find(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join("farside")).filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_takes_the_first_folder_with_the_command() {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let paths = || folders.iter().map(|folder| folder.path().to_owned());
        assert_eq!(find(paths()), None);
        std::fs::create_dir(folders[0].path().join("farside")).unwrap();
        for folder in &folders[1..] {
            std::fs::write(folder.path().join("farside"), "").unwrap();
        }
        assert_eq!(find(paths()), Some(folders[1].path().join("farside")));
    }

    #[test]
    fn command_names_ranks_limit_program_and_arguments() {
        let launcher = Launcher { farside: "/a/farside".into(), program: "/b/bench".into(), settings: vec![] };
        let launcher = launcher.with("FARSIDE_A", "b");
        let command = launcher.command(4, Duration::from_secs(9), &["--worker"]);
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words, ["run", "-n", "4", "--timeout", "9", "/b/bench", "--worker"]);
        assert!(command.get_envs().eq([("FARSIDE_A".as_ref(), Some("b".as_ref()))]));
    }
}
