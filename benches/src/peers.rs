//! Runs the peers: starts `benches/peers/run`, which keeps the time limit itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use farside_core::error::{Error, ErrorKind, Result};

use crate::record::{Library, Record};
pub use crate::run::Note;
use crate::run::run_of;

/// How long a run of one peer may take.
pub const LIMIT: Duration = Duration::from_secs(300);
/// What the wrapper, which keeps the limit itself, gets on top of it before it is killed.
const GRACE: Duration = Duration::from_secs(15);

/// Where the peers are.
#[derive(Clone, Debug)]
pub struct Peers {
    wrapper: PathBuf,
    directory: Option<PathBuf>,
    limit: Duration,
}

impl Peers {
    /// The wrapper of this source tree. `directory` is where `ci/peers` has put the libraries; without it, the
    /// wrapper looks at `FARSIDE_PEERS` and then in `target/peers`.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] if the source tree, from which this was built, is gone.
    pub fn locate(directory: Option<&Path>) -> Result<Self> {
        let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
        if !wrapper.is_file() {
            return Err(Error::new(ErrorKind::BadArgument, "find the peers")
                .cause(format!("{} does not exist", wrapper.display()))
                .remedy("run this from the source tree that it was built from"));
        }
        Ok(Self::with_wrapper(wrapper, directory))
    }

    /// Any program that takes `LIBRARY RANKS [ARGUMENT...]` and writes records.
    #[must_use]
    pub fn with_wrapper(wrapper: PathBuf, directory: Option<&Path>) -> Self {
        Self { wrapper, directory: directory.map(Path::to_owned), limit: LIMIT }
    }

    /// Changes how long a run of one peer may take.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Measures `library` with `ranks` ranks; `arguments` are those of [`crate::plan::Plan::peer_arguments`].
    /// `on_record` sees each record as it arrives.
    ///
    /// Never fails: a peer that is missing, breaks off, hangs or writes nonsense gives the records so far and notes.
    pub fn run(
        &self,
        library: Library,
        ranks: u32,
        arguments: &[String],
        on_record: impl FnMut(&Record),
    ) -> (Vec<Record>, Vec<Note>) {
        run_of(self.command(library, ranks, arguments), library, ranks, self.limit, GRACE, on_record)
    }

    fn command(&self, library: Library, ranks: u32, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.wrapper);
        command.arg(library.name()).arg(ranks.to_string()).args(arguments);
        command.env("FARSIDE_PEERS_LIMIT_S", self.limit.as_secs().max(1).to_string());
        if let Some(directory) = &self.directory {
            command.env("FARSIDE_PEERS", directory);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LINE: &str = r#"{"library":"mpich","version":"5","suite":"barrier","window":"none","sync":"none","op":"barrier","bytes":0,"ranks":2,"iterations":7,"us_median":0.5,"us_min":0.25}"#;

    /// Runs a wrapper with this shell text; returns the number of records, and the notes.
    fn run(script: &str, limit: Duration) -> (usize, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = directory.path().join("run");
        std::fs::write(&wrapper, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut seen = 0;
        let peers = Peers::with_wrapper(wrapper, None).limit(limit);
        let (records, notes) = peers.run(Library::Mpich, 2, &["--quick".to_owned()], |_| seen += 1);
        assert_eq!(seen, records.len());
        (records.len(), notes.iter().map(Note::to_string).collect())
    }

    #[test]
    fn run_good_peer_gives_records_without_notes() {
        let script = format!(
            r#"test "$1 $2 $3 $FARSIDE_PEERS_LIMIT_S" = "mpich 2 --quick 60" && echo '{LINE}' && echo '{LINE}'"#
        );
        assert_eq!(run(&script, Duration::from_secs(60)), (2, vec![]));
    }

    #[test]
    fn run_failing_peer_keeps_records_and_says_why() {
        let script = format!("echo '{LINE}'; echo one >&2; echo >&2; echo wrong data >&2; exit 3");
        let (records, notes) = run(&script, LIMIT);
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: stopped, because data arrived wrong, after 1 records: one / wrong data"]);
        let (_, notes) = run("kill -9 $$", LIMIT);
        assert!(notes[0].contains("broke off (signal: 9"), "{notes:?}");
        let (_, notes) = run("exit 127", LIMIT);
        assert!(notes[0].contains("not installed"), "{notes:?}");
    }

    #[test]
    fn run_peer_with_foreign_lines_counts_them() {
        let four = LINE.replace("\"ranks\":2", "\"ranks\":4");
        let other = LINE.replace("mpich", "openmpi");
        let (records, notes) = run(&format!("echo hello; echo '{four}'; echo '{other}'; echo '{LINE}'"), LIMIT);
        assert_eq!(records, 1);
        assert_eq!(notes, ["MPICH, 2 ranks: 3 lines of its output are no records of this run"]);
        let (_, notes) = run("true", LIMIT);
        assert_eq!(notes, ["MPICH, 2 ranks: ended well but measured nothing"]);
    }

    #[test]
    fn run_peer_with_endless_line_ends() {
        let (records, notes) = run(&format!("head -c 100000 /dev/zero; echo; echo '{LINE}'"), LIMIT);
        assert_eq!((records, notes.len()), (1, 1));
    }

    #[test]
    fn run_missing_wrapper_is_a_note() {
        let peers = Peers::with_wrapper("/nonexistent/run".into(), None);
        let (records, notes) = peers.run(Library::OpenMpi, 4, &[], |_| {});
        assert!(records.is_empty());
        assert!(
            notes[0].to_string().starts_with("Open MPI, 4 ranks: not measured: start a measuring program"),
            "{notes:?}"
        );
    }
}
