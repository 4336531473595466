//! The file of measured quantities: in the user's cache folder, one for each machine and version; and its publication to the
//! ranks of a job.
//!
//! Its text is untrusted input. A file that is damaged, of another machine, or not readable counts as absent; so does a
//! file, or a whole folder, that another user could have written ([`check`]). A job that holds a lock replaces the file
//! by a rename, so that jobs that start at the same time read either the old or the new file. Values that were measured
//! on a loaded machine are not stored.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};
use crate::load::Load;
use crate::settings::{CacheFolder, Settings};

/// The name of the file that is locked while a file in the same folder is rewritten.
const LOCK: &str = "lock";
/// Maximum number of tries to get the lock, and the time between two tries: a process that holds the lock for longer is
/// assumed to be stopped.
const TRIES: (u32, Duration) = (200, Duration::from_millis(10));

/// The first line of a file, and the beginning of its name.
const FORMAT: &str = "farside measured 1";
const NAME: &str = "measured";
/// Maximum length of a file in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// Measured quantities by name: lines of text, with the processor load under which they were measured. As text, each
/// quantity is a line `[NAME] load LOAD` followed by its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(BTreeMap<String, (Load, String)>);

impl Table {
    /// The lines of a quantity, if `parse` accepts them.
    pub(crate) fn get<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        parse(&self.0.get(name)?.1)
    }

    /// Replaces the lines of each quantity by those that `change` returns, or removes them.
    pub(crate) fn changed(self, change: impl Fn(&str, String) -> Option<String>) -> Self {
        let changed = |(name, (load, lines)): (String, (Load, String))| Some((change(&name, lines)?, name, load));
        Self(self.0.into_iter().filter_map(changed).map(|(lines, name, load)| (name, (load, lines))).collect())
    }

    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|(name, (load, lines))| format!("[{name}] load {load}\n{lines}")).collect()
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut table = Self::default();
        let mut last = None;
        for line in text.split_inclusive('\n') {
            line.ends_with('\n').then_some(())?;
            if let Some((name, load)) = line.trim_end().strip_prefix('[').and_then(|rest| rest.split_once("] load ")) {
                let (_, lines) = table.0.entry(name.to_owned()).or_insert((Load::parse(load)?, String::new()));
                lines.is_empty().then_some(())?;
                last = Some(name.to_owned());
            } else {
                table.0.get_mut(last.as_ref()?)?.1 += line;
            }
        }
        Some(table)
    }
}

/// The data that a rank has published: its table, and whether it can store more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) table: Table,
    pub(crate) keeps: bool,
}

fn key(rank: u32) -> String {
    format!("measured.{rank}")
}

impl Published {
    /// Publishes this rank's data, or that it has no file. The other ranks see it after a fence.
    pub(crate) fn put(of: Option<&Self>, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        let text = of.map_or(String::new(), |of| format!("{}\n{}", u8::from(of.keeps), of.table.text()));
        bootstrap.put(&key(bootstrap.rank()), text.as_bytes())
    }

    /// The data that a rank has published; `None` if it has no file.
    ///
    /// # Errors
    /// `Launcher`; `Protocol` for a malformed table.
    pub(crate) fn get(rank: u32, bootstrap: &mut dyn Bootstrap) -> Result<Option<Self>> {
        let bytes = bootstrap.get(&key(rank))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let text = std::str::from_utf8(&bytes).ok().and_then(|text| text.split_once('\n'));
        let published = text.and_then(|(keeps, text)| Some(Self { table: Table::parse(text)?, keeps: keeps == "1" }));
        let malformed = || Error::new(ErrorKind::Protocol, "read measured values").peer(rank);
        published.map(Some).ok_or_else(|| malformed().cause("rank 0 sent malformed measured values"))
    }
}

/// A file, and the line in it that identifies the machine.
#[derive(Clone, Debug)]
pub(crate) struct CacheFile {
    file: PathBuf,
    identity: String,
    /// Whether this rank logs a warning if the file is refused.
    reports: bool,
}

/// Why a file or folder may have been written by another user; `None` if only this user and the administrator could.
fn refusal(of: &Metadata) -> Option<String> {
    let (owner, others) = (of.uid(), of.mode() & 0o022);
    match owner {
        _ if owner != 0 && owner != geteuid().as_raw() => Some(format!("the file belongs to user {owner}")),
        _ if others != 0 => {
            Some(format!("other users may write the file (mode {:03o}): run `chmod go-w` on it", of.mode() & 0o777))
        }
        _ => None,
    }
}

/// Turns files of measured values off for this rank if another user may write their folder; rank 0 logs it.
pub(crate) fn check(settings: &mut Settings, rank: u32) {
    let folder = folder(&settings.calibration);
    let found = folder.and_then(|folder| Some((refusal(&fs::metadata(&folder).ok()?)?, folder)));
    let Some((why, folder)) = found else { return };
    if rank == 0 {
        tracing::warn!("the calibration directory is not used: {}: {why}", folder.display());
    }
    settings.without_cache();
}

/// The folder of the files; `None` if the setting turns them off, or the user has no home.
fn folder(setting: &CacheFolder) -> Option<PathBuf> {
    match setting {
        CacheFolder::Off => None,
        CacheFolder::Auto => Some(users_cache()?.join("farside")),
        CacheFolder::At(folder) => Some(PathBuf::from(folder)),
    }
}

impl CacheFile {
    /// The file of this machine. `None` if the setting turns it off, or the user has no home.
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        // The cost of a long message within a node depends on how ranks may access each other's memory.
        let identity = format!("{} {:?}", machine(), settings.shm_user_memory);
        Some(Self::of(&folder(&settings.calibration)?, identity))
    }

    pub(crate) fn of(folder: &Path, identity: String) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        identity.hash(&mut hasher);
        let file = folder.join(format!("{NAME}-{:016x}", hasher.finish()));
        Self { file, identity, reports: true }
    }

    /// Sets whether this rank logs a warning if the file is refused: only one of the ranks that read the file should.
    pub(crate) fn reports(self, reports: bool) -> Self {
        Self { reports, ..self }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The line that identifies the machine.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// The quantities in the file, if it is whole and of this machine.
    pub(crate) fn read(&self) -> Option<Table> {
        let refused = |why: String| {
            if self.reports {
                tracing::warn!("the calibration file is not read: {}: {why}", self.file.display());
            }
        };
        // If the file is a pipe, opening it does not wait for a writer.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&self.file);
        if open.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ELOOP)) {
            refused("the path is a symbolic link".into());
        }
        let file = open.ok()?;
        let of = file.metadata().ok().filter(Metadata::is_file)?;
        if let Some(why) = refusal(&of) {
            refused(why);
            return None;
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        self.parse(&text)
    }

    fn parse(&self, text: &str) -> Option<Table> {
        Table::parse(text.strip_prefix(FORMAT)?.strip_prefix('\n')?.strip_prefix(&*self.identity)?.strip_prefix('\n')?)
    }

    /// Begins to replace the file; fails if the file cannot be replaced.
    pub(crate) fn replace(&self) -> io::Result<Replacement> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        if !folder.exists() {
            DirBuilder::new().recursive(true).create(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
        if let Some(why) = refusal(&fs::metadata(folder)?) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let beside = self.file.with_extension(format!("{:016x}", rand::random::<u64>()));
        let file = private(OpenOptions::new().write(true).create_new(true), &beside)?;
        Ok(Replacement { cache: self.clone(), file, beside })
    }
}

/// Opens a file that only this user can read, whatever the user's mask of modes (`umask`).
fn private(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    let opened = options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(file)?;
    opened.set_permissions(Permissions::from_mode(0o600))?;
    Ok(opened)
}

/// Locks a file until the result is dropped. File systems without locks lock nothing.
fn lock(path: PathBuf) -> io::Result<File> {
    let file = private(OpenOptions::new().write(true).create(true).truncate(false), &path)?;
    let (tries, pause) = TRIES;
    for _ in 0..tries {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(pause),
            Err(Errno::INTR) => {}
            _ => return Ok(file),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, format!("another job has locked {}", path.display())))
}

/// A new file next to the old one; it is removed unless it has replaced that one.
pub(crate) struct Replacement {
    cache: CacheFile,
    file: File,
    beside: PathBuf,
}

impl Replacement {
    /// Replaces the old file by the new one. `change` maps the quantity's old lines to its new ones; nothing is stored
    /// if `change` returns `None`. No other job replaces the file meanwhile. The stored load is the higher of the old
    /// lines' load and `load`.
    ///
    /// # Errors
    /// `ResourceBusy` if the new lines were measured on a loaded machine; those of the file system.
    pub(crate) fn set(
        mut self,
        name: &str,
        load: Load,
        change: impl FnOnce(Option<&str>) -> Option<String>,
    ) -> io::Result<()> {
        let _locked = lock(self.cache.file.with_file_name(LOCK))?;
        let mut table = self.cache.read().unwrap_or_default();
        let (before, old) = table.0.get(name).map(|(load, lines)| (*load, &lines[..])).unzip();
        let Some(lines) = change(old) else { return Ok(()) };
        if load.is_heavy() {
            let why = format!(
                "the processors were loaded: a measuring rank spent {load} of the time waiting for a processor"
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        table.0.insert(name.to_owned(), (load.max(before.unwrap_or_default()), lines));
        self.file.write_all(format!("{FORMAT}\n{}\n{}", self.cache.identity, table.text()).as_bytes())?;
        fs::rename(&self.beside, &self.cache.file)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // The new file's own name is free after the rename.
        let _ = fs::remove_file(&self.beside);
    }
}

/// The folder for caches of this user, according to the XDG Base Directory Specification, which ignores relative paths.
fn users_cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// One line that identifies the machine, its processor, its kernel and this version.
fn machine() -> String {
    let read = |path: &str| {
        let mut text = String::new();
        // The first kilobytes of `cpuinfo` describe the first processor; the kernel generates the rest only if it is
        // read.
        let read = File::open(path).and_then(|file| file.take(4096).read_to_string(&mut text));
        read.map_or_else(|_| String::new(), |_| text)
    };
    let cpuinfo = read("/proc/cpuinfo");
    let processor = cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"));
    let processor = processor.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name);
    let parts = [
        env!("CARGO_PKG_VERSION").to_owned(),
        read("/etc/machine-id"),
        processor.to_owned(),
        read("/proc/sys/kernel/osrelease"),
    ];
    parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(folder: &Path) -> CacheFile {
        CacheFile::of(folder, machine())
    }

    fn number(lines: &str) -> Option<u64> {
        lines.strip_suffix('\n')?.parse().ok()
    }

    fn read(cache: &CacheFile) -> Option<u64> {
        cache.read()?.get("number", number)
    }

    fn written(folder: &Path, value: u64) {
        cache(folder).replace().unwrap().set("number", Load::default(), |_| Some(format!("{value}\n"))).unwrap();
    }

    #[test]
    fn values_round_trip_through_a_file_that_only_the_user_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("not/there");
        assert_eq!(read(&cache(&folder)), None);
        written(&folder, 7);
        assert_eq!(read(&cache(&folder)), Some(7));
        let mode = cache(&folder).file.metadata().unwrap().permissions().mode();
        assert_eq!((mode & 0o777, fs::read_dir(&folder).unwrap().count()), (0o600, 2));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_known_before_anything_is_measured() {
        assert!(cache(Path::new("/proc/farside")).replace().is_err());
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(cache(&dir.path().join("file")).replace().is_err());
        // A measurement that is abandoned leaves no file.
        drop(cache(dir.path()).replace().unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_are_damaged_or_of_another_machine_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        written(dir.path(), 7);
        cache.replace().unwrap().set("number", Load::of(20), |_| Some("7\n".into())).unwrap();
        let good = fs::read_to_string(&cache.file).unwrap();
        assert_eq!(cache.parse(&good), cache.read());
        let whole = |end: usize| good[..end].ends_with('\n') && good[..end].contains(&*machine());
        for end in 0..good.len() {
            let number = cache.parse(&good[..end]).and_then(|table| table.get("number", number));
            assert_eq!(number, None, "the first {end} bytes");
            assert_eq!(cache.parse(&good[..end]).is_some(), whole(end), "the first {end} bytes");
        }
        let other = [
            good.replace("measured 1", "measured 2"),
            good.replace(&machine(), "another machine"),
            good.replace("load 0.020", "load light"),
            good.replace("[number]", "number"),
            format!("{good}[number] load unknown\n8\n"),
            format!("{good}8"),
        ];
        for text in other {
            assert!(text != good && cache.parse(&text).is_none(), "{text}");
        }
        fs::write(&cache.file, b"farside\xff").unwrap();
        assert_eq!(read(&cache), None);
        fs::write(&cache.file, good + &"\n".repeat(1 << 20)).unwrap();
        assert_eq!(read(&cache), None);
        fs::remove_file(&cache.file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &cache.file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(read(&cache), None, "a pipe");
        fs::remove_file(&cache.file).unwrap();
        fs::create_dir(&cache.file).unwrap();
        assert_eq!(read(&cache), None, "a folder");
    }

    #[test]
    fn what_others_may_have_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        written(dir.path(), 7);
        let file = cache(dir.path()).file;
        for open in [0o620, 0o602, 0o666] {
            mode(&file, open);
            assert_eq!(read(&cache(dir.path())), None, "{open:o}");
        }
        mode(&file, 0o644);
        assert_eq!(read(&cache(dir.path())), Some(7));
        // Only an administrator can change the owner of a file.
        if std::os::unix::fs::chown(&file, Some(1), None).is_ok() {
            assert_eq!(read(&cache(dir.path())), None);
            std::os::unix::fs::chown(&file, Some(geteuid().as_raw()), None).unwrap();
        }
        let setting = |folder: &Path| {
            let folder = |name: &str| (name == "FARSIDE_CALIBRATION").then(|| folder.to_str().unwrap().to_owned());
            let mut settings = Settings::from_lookup(folder).unwrap();
            check(&mut settings, 0);
            settings.calibration.clone()
        };
        assert_ne!(setting(dir.path()), CacheFolder::Off);
        mode(dir.path(), 0o770);
        assert_eq!(setting(dir.path()), CacheFolder::Off);
        assert!(cache(dir.path()).replace().is_err());
        mode(dir.path(), 0o700);
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert_eq!(read(&cache(dir.path())), None, "a link");
    }

    #[test]
    fn values_of_a_loaded_machine_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let set = |load, value: &str| {
            let value = format!("{value}\n");
            cache(dir.path()).replace().unwrap().set("number", Load::of(load), |_| Some(value))
        };
        let keep = |load| set(load, "7");
        let e = keep(400).unwrap_err();
        assert!(e.to_string().contains("0.400 of the time") && read(&cache(dir.path())).is_none(), "{e}");
        keep(40).unwrap();
        let text = fs::read_to_string(cache(dir.path()).file).unwrap();
        assert!(text.contains("\n[number] load 0.040\n"), "{text}");
        set(10, "8").unwrap();
        let text = fs::read_to_string(cache(dir.path()).file).unwrap();
        assert!(text.ends_with("\n[number] load 0.040\n8\n"), "the heavier load: {text}");
    }

    #[test]
    fn jobs_that_add_at_the_same_time_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let add = || {
            let lines = |old: Option<&str>| Some(format!("{}\n", old.and_then(number).unwrap_or(0) + 1));
            (0..50).for_each(|_| cache(dir.path()).replace().unwrap().set("number", Load::default(), lines).unwrap());
        };
        std::thread::scope(|threads| {
            (0..4).for_each(|_| drop(threads.spawn(add)));
            threads
                .spawn(|| cache(dir.path()).replace().unwrap().set("other", Load::default(), |_| Some("5\n".into())));
        });
        assert_eq!(read(&cache(dir.path())), Some(200));
        assert_eq!(cache(dir.path()).read().unwrap().get("other", number), Some(5));
    }

    #[test]
    fn readers_see_a_whole_file_while_others_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let values = [1, u64::MAX];
        written(folder, 1);
        std::thread::scope(|threads| {
            for value in values {
                threads.spawn(move || (0..200).for_each(|_| written(folder, value)));
            }
            for _ in 0..2000 {
                let read = read(&cache(folder));
                assert!(read.is_some_and(|value| values.contains(&value)), "{read:?}");
            }
        });
        // The folder contains the file and the lock.
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
    }

    #[test]
    fn tables_round_trip_through_text() {
        let table = Table(
            [("a b", 3), ("c", 0)].map(|(name, load)| (name.to_owned(), (Load::of(load), "1\n2\n".to_owned()))).into(),
        );
        assert_eq!(Table::parse(&table.text()), Some(table.clone()));
        let only = table.changed(|name, lines| (name == "c").then_some(lines));
        assert_eq!(only.text(), "[c] load 0.000\n1\n2\n");
        assert_eq!(Table::parse("1\n"), None);
    }
}
