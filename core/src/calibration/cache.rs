//! The file of fitted values: in the user's cache folder, one for each machine and version.
//!
//! Its text is trusted as little as any input. A file that is damaged, of another machine, or not readable counts as
//! absent. It is replaced by a rename, so that jobs that start at the same time read one of the whole files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Fitted, QUANTITIES};
use crate::settings::{CacheFolder, Settings};

/// The first line of a file.
const FORMAT: &str = "farside cut-offs 2";
/// Maximum length of a file in bytes.
const LONGEST: u64 = 4096;

/// The file, and what identifies the machine in it.
#[derive(Debug)]
pub(super) struct Cache {
    file: PathBuf,
    machine: String,
}

impl Cache {
    /// `None` if the setting turns it off, or the user has no home.
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        let folder = match &settings.calibration {
            CacheFolder::Off => return None,
            CacheFolder::Auto => users_cache()?.join("farside"),
            CacheFolder::At(folder) => PathBuf::from(folder),
        };
        // What a read costs depends on how ranks may access each other's memory.
        Some(Self::of(&folder, format!("{} {:?}", machine(), settings.shm_user_memory)))
    }

    pub(super) fn of(folder: &Path, machine: String) -> Self {
        let mut hasher = rustc_hash::FxHasher::default();
        machine.hash(&mut hasher);
        Self { file: folder.join(format!("cut-offs-{:016x}", hasher.finish())), machine }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The values in the file, if it is whole, of this machine, and within bounds.
    pub(super) fn read(&self) -> Option<Fitted> {
        // Does not wait for a writer of a pipe of that name.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.file).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        self.parse(&text)
    }

    fn parse(&self, text: &str) -> Option<Fitted> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        (lines.next()? == FORMAT && lines.next()? == self.machine).then_some(())?;
        let mut number = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<usize>().ok();
        let most = number("most")?;
        let mut values = [0; QUANTITIES.len()];
        for (value, quantity) in values.iter_mut().zip(&QUANTITIES) {
            *value = number(quantity.name)?;
        }
        if lines.next().is_some() { None } else { Fitted::new(most, values) }
    }

    fn text(&self, fitted: &Fitted) -> String {
        let rows = QUANTITIES.iter().zip(fitted.values).map(|(quantity, value)| format!("{} {value}\n", quantity.name));
        format!("{FORMAT}\n{}\nmost {}\n{}", self.machine, fitted.most, rows.collect::<String>())
    }

    /// Begins to replace the file, which shows whether that is possible.
    pub(super) fn replace(self) -> io::Result<Replacement> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let beside = self.file.with_extension(format!("{:016x}", rand::random::<u64>()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        Ok(Replacement { cache: self, file, beside })
    }
}

/// A new file beside the old one; removed unless it has taken its place.
#[derive(Debug)]
pub(super) struct Replacement {
    cache: Cache,
    file: File,
    beside: PathBuf,
}

impl Replacement {
    /// Puts the new file in place of the old one.
    pub(super) fn finish(mut self, fitted: &Fitted) -> io::Result<()> {
        self.file.write_all(self.cache.text(fitted).as_bytes())?;
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
        let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
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
    use super::super::LEAST;
    use super::*;
    use proptest::prelude::*;

    const FITTED: Fitted = Fitted { most: 32 << 10, values: [16 << 10, 9 << 10] };

    fn cache(folder: &Path) -> Cache {
        Cache::of(folder, machine())
    }

    fn written(folder: &Path, fitted: &Fitted) {
        cache(folder).replace().unwrap().finish(fitted).unwrap();
    }

    #[test]
    fn values_come_back_from_a_file_that_only_the_user_can_read() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("not/there");
        assert_eq!(cache(&folder).read(), None);
        written(&folder, &FITTED);
        assert_eq!(cache(&folder).read(), Some(FITTED));
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
        let good = cache.text(&FITTED);
        assert_eq!(cache.parse(&good), Some(FITTED));
        for end in 0..good.len() {
            assert_eq!(cache.parse(&good[..end]), None, "the first {end} bytes");
        }
        let eager = format!("eager {}", FITTED.values[0]);
        let wrong = [
            good.replace("cut-offs 2", "cut-offs 3"),
            good.replace(&machine(), "another machine"),
            good.replace(&eager, "eager -1"),
            good.replace(&eager, "eager 99999999999999999999"),
            good.replace(&eager, &format!("eager {}", LEAST - 1)),
            good.replace(&eager, &format!("eager {}", FITTED.most + 1)),
            good.replace("read-intra", "read-inter"),
            format!("{good}\n"),
            format!("{good}eager 9000\n"),
        ];
        for text in wrong {
            assert!(text != good && cache.parse(&text).is_none(), "{text}");
        }
        fs::write(&cache.file, b"farside\xff").unwrap();
        assert_eq!(cache.read(), None);
        fs::write(&cache.file, good + &"\n".repeat(1 << 20)).unwrap();
        assert_eq!(cache.read(), None);
        fs::remove_file(&cache.file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &cache.file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(cache.read(), None, "a pipe");
        fs::remove_file(&cache.file).unwrap();
        fs::create_dir(&cache.file).unwrap();
        assert_eq!(cache.read(), None, "a folder");
    }

    #[test]
    fn readers_see_a_whole_file_while_others_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let other = Fitted { most: 1 << 20, values: [1 << 20, 1 << 20] };
        written(folder, &FITTED);
        std::thread::scope(|threads| {
            for fitted in [FITTED, other] {
                threads.spawn(move || (0..200).for_each(|_| written(folder, &fitted)));
            }
            for _ in 0..2000 {
                let read = cache(folder).read();
                assert!(read == Some(FITTED) || read == Some(other), "{read:?}");
            }
        });
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_within_bounds(most in any::<usize>(), values in any::<[usize; 2]>()) {
            let cache = Cache::of(Path::new("/"), "here".into());
            match cache.parse(&cache.text(&Fitted { most, values })) {
                Some(fitted) => prop_assert_eq!(Fitted::new(most, values), Some(fitted)),
                None => prop_assert_eq!(Fitted::new(most, values), None),
            }
        }
    }
}
