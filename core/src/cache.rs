//! Files of measured values: in the user's cache folder, one for each machine and version, with the load under which the
//! values were measured.
//!
//! Their text is trusted as little as any input. A file that is damaged, of another machine, or not readable counts as
//! absent; so does one that another user could have written, or a whole folder of that kind ([`check`]). A file is replaced
//! by a rename, so that jobs that start at the same time read one of the whole files; a job that adds to a file holds a
//! lock meanwhile. Values that were measured on a loaded machine are not kept.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::Split;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::load::Load;
use crate::settings::{CacheFolder, Settings};

/// The name of the file that is locked while a file of the same folder is rewritten.
const LOCK: &str = "lock";
/// Number of tries to get the lock, and the time between two of them: a process that holds it for longer is stopped.
const TRIES: (u32, Duration) = (200, Duration::from_millis(10));

/// Maximum length of a file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A kind of file.
#[derive(Debug)]
pub(crate) struct Format {
    /// The beginning of its name.
    pub(crate) name: &'static str,
    /// The first line of a file.
    pub(crate) line: &'static str,
}

/// A file, and what identifies the machine in it.
#[derive(Debug)]
pub(crate) struct CacheFile {
    format: &'static Format,
    file: PathBuf,
    identity: String,
    /// Whether this rank logs that the file is refused.
    reports: bool,
}

/// Why a file or folder may have been written by another user; `None` if only this user and the administrator could.
fn refusal(of: &Metadata) -> Option<String> {
    let (owner, others) = (of.uid(), of.mode() & 0o022);
    match owner {
        _ if owner != 0 && owner != geteuid().as_raw() => Some(format!("it belongs to user {owner}")),
        _ if others != 0 => {
            Some(format!("others may write it (mode {:03o}; `chmod go-w` fixes that)", of.mode() & 0o777))
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
        tracing::warn!("measured values are neither read nor kept: {}: {why}", folder.display());
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
    /// The file of this machine; `more` is one line that also identifies its values. `None` if the setting turns it off,
    /// or the user has no home.
    pub(crate) fn new(settings: &Settings, format: &'static Format, more: &str) -> Option<Self> {
        Some(Self::of(&folder(&settings.calibration)?, format, format!("{} {more}", machine())))
    }

    pub(crate) fn of(folder: &Path, format: &'static Format, identity: String) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        identity.hash(&mut hasher);
        let file = folder.join(format!("{}-{:016x}", format.name, hasher.finish()));
        Self { format, file, identity, reports: true }
    }

    /// Has this rank log that the file is refused only if `reports`: several ranks read it.
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

    /// The values in the file, if it is whole and of this machine, and `parse` takes all of its lines.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(&mut Split<'_, char>) -> Option<T>) -> Option<T> {
        self.read_loaded(parse).map(|(value, _)| value)
    }

    /// The values in the file and their load.
    fn read_loaded<T>(&self, parse: impl FnOnce(&mut Split<'_, char>) -> Option<T>) -> Option<(T, Load)> {
        let refused = |why: String| {
            if self.reports {
                tracing::warn!("measured values are not read: {}: {why}", self.file.display());
            }
        };
        // Does not wait for a writer of a pipe of that name.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&self.file);
        if open.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ELOOP)) {
            refused("it is a symbolic link".into());
        }
        let file = open.ok()?;
        let of = file.metadata().ok().filter(Metadata::is_file)?;
        if let Some(why) = refusal(&of) {
            refused(why);
            return None;
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        self.parse(&text, parse)
    }

    /// The values and their load in the text of a file.
    pub(crate) fn parse<T>(
        &self,
        text: &str,
        parse: impl FnOnce(&mut Split<'_, char>) -> Option<T>,
    ) -> Option<(T, Load)> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        (lines.next()? == self.format.line && lines.next()? == self.identity).then_some(())?;
        let load = Load::parse(lines.next()?.strip_prefix("load ")?)?;
        let value = parse(&mut lines)?;
        lines.next().is_none().then_some((value, load))
    }

    /// The text of a file with these lines, each of which ends with a line feed.
    pub(crate) fn text(&self, load: Load, lines: &str) -> String {
        format!("{}\n{}\nload {load}\n{lines}", self.format.line, self.identity)
    }

    /// Begins to replace the file, which shows whether that is possible.
    pub(crate) fn replace(self) -> io::Result<Replacement> {
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
        Ok(Replacement { cache: self, file, beside })
    }

    /// Rewrites the file, unless `lines` returns `None` for the values that it has. No other job does so meanwhile. Its load
    /// is the heavier one of that of the old values and of `load`, that of the new ones.
    pub(crate) fn update<T>(
        self,
        load: Load,
        parse: impl FnOnce(&mut Split<'_, char>) -> Option<T>,
        lines: impl FnOnce(Option<T>) -> Option<String>,
    ) -> io::Result<()> {
        let replacement = self.replace()?;
        let _locked = lock(replacement.cache.file.with_file_name(LOCK))?;
        let (old, before) = replacement.cache.read_loaded(parse).unzip();
        match lines(old) {
            Some(lines) => replacement.finish(load.max(before.unwrap_or_default()), &lines),
            None => Ok(()),
        }
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
    Err(io::Error::new(io::ErrorKind::WouldBlock, format!("another job holds {}", path.display())))
}

/// A new file beside the old one; removed unless it has taken its place.
#[derive(Debug)]
pub(crate) struct Replacement {
    cache: CacheFile,
    file: File,
    beside: PathBuf,
}

impl Replacement {
    /// Puts the new file, with these lines, in place of the old one, unless they were measured on a loaded machine.
    pub(crate) fn finish(mut self, load: Load, lines: &str) -> io::Result<()> {
        if load.is_heavy() {
            let why = format!("the processors were loaded: a measuring rank waited for one for {load} of the time");
            return Err(io::Error::other(why));
        }
        self.file.write_all(self.cache.text(load, lines).as_bytes())?;
        fs::rename(&self.beside, &self.cache.file)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Absent after the rename.
        let _ = fs::remove_file(&self.beside);
    }
}

/// The folder for caches of this user, by the XDG Base Directory Specification, which ignores relative paths.
fn users_cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// One line that identifies the machine, its processor, its kernel and this version.
fn machine() -> String {
    let read = |path: &str| {
        let mut text = String::new();
        // The first kilobytes of `cpuinfo` describe the first processor; the kernel makes the rest only if it is read.
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

    const FORMAT: Format = Format { name: "values", line: "farside values 1" };

    fn cache(folder: &Path) -> CacheFile {
        CacheFile::of(folder, &FORMAT, machine())
    }

    fn number(lines: &mut Split<'_, char>) -> Option<u64> {
        lines.next()?.parse().ok()
    }

    fn read(cache: &CacheFile) -> Option<u64> {
        cache.read(number)
    }

    fn written(folder: &Path, value: u64) {
        cache(folder).replace().unwrap().finish(Load::default(), &format!("{value}\n")).unwrap();
    }

    #[test]
    fn values_come_back_from_a_file_that_only_the_user_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("not/there");
        assert_eq!(read(&cache(&folder)), None);
        written(&folder, 7);
        assert_eq!(read(&cache(&folder)), Some(7));
        let mode = cache(&folder).file.metadata().unwrap().permissions().mode();
        assert_eq!((mode & 0o777, fs::read_dir(&folder).unwrap().count()), (0o600, 1));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_known_before_anything_is_measured() {
        assert!(cache(Path::new("/proc/farside")).replace().is_err());
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(cache(&dir.path().join("file")).replace().is_err());
        // A measurement that is given up leaves no file.
        drop(cache(dir.path()).replace().unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_are_damaged_or_of_another_machine_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let good = cache.text(Load::of(20), "7\n");
        assert_eq!(cache.parse(&good, number), Some((7, Load::of(20))));
        for end in 0..good.len() {
            assert_eq!(cache.parse(&good[..end], number), None, "the first {end} bytes");
        }
        let other = [
            good.replace("values 1", "values 2"),
            good.replace(&machine(), "another machine"),
            good.replace("load 0.020", "load light"),
        ];
        for text in other.into_iter().chain([format!("{good}\n"), format!("{good}7\n")]) {
            assert!(text != good && cache.parse(&text, number).is_none(), "{text}");
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
        // Only an administrator can give files away.
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
        let keep = |load| cache(dir.path()).replace().unwrap().finish(Load::of(load), "7\n");
        let e = keep(400).unwrap_err();
        assert!(e.to_string().contains("0.400 of the time") && read(&cache(dir.path())).is_none(), "{e}");
        keep(40).unwrap();
        let text = fs::read_to_string(cache(dir.path()).file).unwrap();
        assert!(text.contains("\nload 0.040\n"), "{text}");
        cache(dir.path()).update(Load::of(10), number, |old| Some(format!("{}\n", old.unwrap() + 1))).unwrap();
        assert_eq!(cache(dir.path()).read_loaded(number), Some((8, Load::of(40))), "the heavier load");
    }

    #[test]
    fn jobs_that_add_at_the_same_time_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let add = || {
            let lines = |old: Option<u64>| Some(format!("{}\n", old.unwrap_or(0) + 1));
            (0..50).for_each(|_| cache(dir.path()).update(Load::default(), number, lines).unwrap());
        };
        std::thread::scope(|threads| {
            (0..4).for_each(|_| drop(threads.spawn(add)));
        });
        assert_eq!(read(&cache(dir.path())), Some(200));
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
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }
}
