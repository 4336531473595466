//! Files of measured values: in the user's cache folder, one for each machine and version.
//!
//! Their text is trusted as little as any input. A file that is damaged, of another machine, or not readable counts as
//! absent. It is replaced by a rename, so that jobs that start at the same time read one of the whole files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::Split;

use crate::settings::{CacheFolder, Settings};

/// Maximum length of a file in bytes.
const LONGEST: u64 = 64 << 10;

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
}

impl CacheFile {
    /// The file of this machine; `more` is one line that also identifies its values. `None` if the setting turns it off,
    /// or the user has no home.
    pub(crate) fn new(settings: &Settings, format: &'static Format, more: &str) -> Option<Self> {
        let folder = match &settings.calibration {
            CacheFolder::Off => return None,
            CacheFolder::Auto => users_cache()?.join("farside"),
            CacheFolder::At(folder) => PathBuf::from(folder),
        };
        Some(Self::of(&folder, format, format!("{} {more}", machine())))
    }

    pub(crate) fn of(folder: &Path, format: &'static Format, identity: String) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        identity.hash(&mut hasher);
        Self { format, file: folder.join(format!("{}-{:016x}", format.name, hasher.finish())), identity }
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
        // Does not wait for a writer of a pipe of that name.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.file).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        self.parse(&text, parse)
    }

    pub(crate) fn parse<T>(&self, text: &str, parse: impl FnOnce(&mut Split<'_, char>) -> Option<T>) -> Option<T> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        (lines.next()? == self.format.line && lines.next()? == self.identity).then_some(())?;
        let value = parse(&mut lines)?;
        lines.next().is_none().then_some(value)
    }

    /// The text of a file with these lines, each of which ends with a line feed.
    pub(crate) fn text(&self, lines: &str) -> String {
        format!("{}\n{}\n{lines}", self.format.line, self.identity)
    }

    /// Begins to replace the file, which shows whether that is possible.
    pub(crate) fn replace(self) -> io::Result<Replacement> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let beside = self.file.with_extension(format!("{:016x}", rand::random::<u64>()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        Ok(Replacement { cache: self, file, beside })
    }
}

/// A new file beside the old one; removed unless it has taken its place.
#[derive(Debug)]
pub(crate) struct Replacement {
    cache: CacheFile,
    file: File,
    beside: PathBuf,
}

impl Replacement {
    /// Puts the new file, with these lines, in place of the old one.
    pub(crate) fn finish(mut self, lines: &str) -> io::Result<()> {
        self.file.write_all(self.cache.text(lines).as_bytes())?;
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
        cache(folder).replace().unwrap().finish(&format!("{value}\n")).unwrap();
    }

    #[test]
    fn values_come_back_from_a_file_that_only_the_user_can_read() {
        use std::os::unix::fs::PermissionsExt;
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
        let good = cache.text("7\n");
        assert_eq!(cache.parse(&good, number), Some(7));
        for end in 0..good.len() {
            assert_eq!(cache.parse(&good[..end], number), None, "the first {end} bytes");
        }
        let other = [good.replace("values 1", "values 2"), good.replace(&machine(), "another machine")];
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
