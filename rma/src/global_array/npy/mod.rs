//! Arrays in files of NumPy's format `.npy`: one file per array, of which each rank writes or reads its own part.

mod header;
mod runs;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, Team, located};
use tempfile::NamedTempFile;

use super::agreement::{agree, agree_on_outcome};
use super::distribution::{Format, near_aspect};
use super::{GlobalArray, LocalView};
use header::{Header, malformed};
use runs::for_each_run;

/// An element type that has an equivalent in NumPy, so that arrays of it can be saved and loaded.
///
/// ```
/// use farside_rma::global_array::NpyElement;
///
/// /// A user-defined type that NumPy sees as `f4`.
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(transparent)]
/// struct Kelvin(f32);
///
/// impl NpyElement for Kelvin {
///     const KIND: char = 'f';
/// }
/// ```
pub trait NpyElement: Pod {
    /// NumPy's letter for the kind of type, which determines the type together with the size: `i` and `u` for signed
    /// and unsigned integers, `f` for real and `c` for complex numbers.
    const KIND: char;
}

macro_rules! elements {
    ($($kind:literal: $($t:ty),*;)*) => {
        $($(impl NpyElement for $t {
            const KIND: char = $kind;
        })*)*
    };
}

elements! {
    'i': i8, i16, i32, i64, isize;
    'u': u8, u16, u32, u64, usize;
    'f': f32, f64;
    // A complex number consists of the real and the imaginary part.
    'c': [f32; 2], [f64; 2];
}

/// The order of the bytes of a number of several bytes on this machine.
const BYTE_ORDER: char = if cfg!(target_endian = "big") { '>' } else { '<' };

const SAVE: &str = "save a global array";
const LOAD: &str = "load a global array";

/// The directory of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An error of the operating system, with the path of the file.
fn failed(operation: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::system(operation, e).cause(format!("{}:", path.display()))
}

impl<T: NpyElement, const D: usize> GlobalArray<T, D> {
    /// Saves the array as a `.npy` file, which `numpy.load` reads: version 1.0 of the format, in C order. Collective.
    /// Each rank writes its own elements to their places in the file, with one system call for each run of elements
    /// that are consecutive in it. A part of whole rows takes a single call, cyclic columns one call for each element;
    /// it is then faster to redistribute the array into rows first ([`redistribute_into`](Self::redistribute_into)).
    /// Three allgathers.
    ///
    /// All ranks name the same file, in a file system that they share; a relative path is relative to the working
    /// directory of each rank. On return at any rank the file is complete and on stable storage. It is written under
    /// another name in the same directory and then renamed (a symbolic link is replaced, and not followed): a save that
    /// fails leaves neither a part of a file nor the earlier file changed.
    ///
    /// ```
    /// use farside_rma::global_array::Format;
    /// use farside_rma::prelude::*;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("table.npy");
    /// Job::threads(3, {
    ///     let path = path.clone();
    ///     move |job| {
    ///         let array = GlobalArray::<f64, 2>::new(&job.world()?, [4, 5])?;
    ///         array.map(|[i, j], _| (10 * i + j) as f64)?;
    ///         array.save(&path)?;
    ///         array.free()
    ///     }
    /// })?;
    /// // Another job, with another distribution.
    /// Job::threads(2, move |job| {
    ///     let array = GlobalArray::<f64, 2>::load(&job.world()?, &path, [Format::Whole, Format::Cyclic(1)])?;
    ///     assert_eq!((array.shape(), array.get_element([3, 2])?), ([4, 5], 32.0));
    ///     array.free()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All ranks fail if one does: `System` for a file that cannot be written, `WrongEpoch` inside
    /// [`with_local`](Self::with_local), and `Aborted` for such an error of another rank; `PeerLost`.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        located(|| self.save_as(path.as_ref()))
    }

    fn save_as(&self, path: &Path) -> Result<()> {
        let team = self.team();
        let made = self.check_not_borrowed(SAVE).and_then(|()| (team.rank() == 0).then(|| self.make(path)).transpose());
        let name = made.as_ref().ok().and_then(|made| made.as_ref()?.path().file_name());
        // The barrier also waits for puts of other ranks into this array.
        let first = agree(team, SAVE, made.is_ok(), name.map_or(&[], OsStr::as_bytes));
        let made = made?;
        let first = first?.swap_remove(0);
        let part = path.with_file_name(OsStr::from_bytes(&first));
        agree_on_outcome(team, SAVE, self.with_local(|own| self.write(&own, &part).map_err(failed(SAVE, &part))))?;
        let renamed = made.map_or(Ok(()), |file| {
            file.persist(path).map_err(|e| e.error)?;
            File::open(folder_of(path))?.sync_all()
        });
        agree_on_outcome(team, SAVE, renamed.map_err(failed(SAVE, path)))
    }

    /// Creates, with its header, the temporary file that will replace the one at `path`. Dropping it removes the file.
    fn make(&self, path: &Path) -> Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        // The file has the permissions of the file that it replaces, or those of a new file under the process's umask.
        let permissions = std::fs::metadata(path).map_or(Permissions::from_mode(0o666), |old| old.permissions());
        builder.prefix(".").suffix(".npy.part").permissions(permissions);
        let mut file = builder.tempfile_in(folder_of(path)).map_err(failed(SAVE, path))?;
        file.write_all(&self.header()).map_err(failed(SAVE, path))?;
        Ok(file)
    }

    fn header(&self) -> Vec<u8> {
        let order = if size_of::<T>() == 1 { '|' } else { BYTE_ORDER };
        let descr = format!("{order}{}{}", T::KIND, size_of::<T>());
        Header { descr, fortran_order: false, shape: self.shape().to_vec() }.bytes()
    }

    /// Writes this rank's elements.
    fn write(&self, own: &LocalView<'_, T, D>, path: &Path) -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let (data, mut rest) = (self.header().len() as u64, bytemuck::cast_slice::<T, u8>(own.elements()));
        for_each_run(&self.distribution, self.team().rank(), |at, len| {
            let run = rest.split_off(..len * size_of::<T>()).unwrap_or_default();
            file.write_all_at(run, data + (at * size_of::<T>()) as u64)
        })
        // Some file systems report a lack of space only at this call.
        .and_then(|()| file.sync_all())
    }

    /// Loads an array from a `.npy` file, whose shape it has, in the given formats over a grid of ranks near its aspect
    /// ratio. Collective. Each rank reads its own elements, with one system call for each run of elements that are
    /// consecutive in the file: see [`save`](Self::save), also for the path. Three allgathers, and those of
    /// [`distributed`](Self::distributed). On return all ranks have read their elements.
    ///
    /// # Errors
    /// All ranks fail if one does: `System` for a file that cannot be read; `BadArgument` for one that is not in the
    /// format, is too short, or has other elements or another number of dimensions; `Unsupported` for bytes in the
    /// other order and for Fortran order (`numpy.ascontiguousarray` makes an array in C order); `Mismatch` if ranks
    /// have opened different files; `Aborted` for such an error of another rank; those of
    /// [`distributed`](Self::distributed).
    #[track_caller]
    pub fn load(team: &Team, path: impl AsRef<Path>, formats: [Format; D]) -> Result<Self> {
        located(|| Self::load_on(team, path.as_ref(), formats, |shape| near_aspect(shape, formats, team.size())))
    }

    /// [`load`](Self::load) over a given grid of ranks, numbered row-major.
    ///
    /// # Errors
    /// Those of [`load`](Self::load) and of [`on_grid`](Self::on_grid).
    #[track_caller]
    pub fn load_on_grid(team: &Team, path: impl AsRef<Path>, formats: [Format; D], grid: [usize; D]) -> Result<Self> {
        located(|| Self::load_on(team, path.as_ref(), formats, |_| grid))
    }

    fn load_on(
        team: &Team,
        path: &Path,
        formats: [Format; D],
        grid: impl FnOnce([usize; D]) -> [usize; D],
    ) -> Result<Self> {
        let (file, shape, data) = agree_on_outcome(team, LOAD, open::<T, D>(path))?;
        same_at_all(team, path, &file)?;
        let array = Self::on_grid(team, shape, formats, grid(shape))?;
        let read = array.with_local(|own| array.read(own, &file, data).map_err(failed(LOAD, path)));
        match agree_on_outcome(team, LOAD, read) {
            Ok(()) => Ok(array),
            Err(e) => {
                // All ranks reach this point, so they free the array together. The first error counts.
                let _ = array.free();
                Err(e)
            }
        }
    }

    /// Reads this rank's elements from a file whose data begin at byte `data`.
    fn read(&self, mut own: LocalView<'_, T, D>, file: &File, data: u64) -> std::io::Result<()> {
        let mut rest = bytemuck::cast_slice_mut::<T, u8>(own.elements_mut());
        for_each_run(&self.distribution, self.team().rank(), |at, len| {
            let run = rest.split_off_mut(..len * size_of::<T>()).unwrap_or_default();
            file.read_exact_at(run, data + (at * size_of::<T>()) as u64)
        })
    }
}

/// Checks that all ranks have opened the same version of a file, since a save replaces the file.
fn same_at_all(team: &Team, path: &Path, file: &File) -> Result<()> {
    let version = |m: std::fs::Metadata| [m.ino(), m.len(), m.mtime().cast_unsigned(), m.mtime_nsec().cast_unsigned()];
    let own = file.metadata().map(version).map_err(failed(LOAD, path));
    let bytes = own.as_ref().map(|own| bytemuck::cast_slice(own).to_vec()).unwrap_or_default();
    let all = agree(team, LOAD, own.is_ok(), &bytes);
    own?;
    let all = all?;
    match all.iter().position(|one| *one != all[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::new(ErrorKind::Mismatch, LOAD)
            .rank(team.job().rank())
            .peer(team.members()[rank])
            .cause(format!("{}: ranks have opened different files", path.display()))
            .remedy("name one file of a file system that all ranks share, and load it when no save is in progress")),
    }
}

/// Opens a file of an array of `T` in `D` dimensions: the file, the shape, and where the data begin.
fn open<T: NpyElement, const D: usize>(path: &Path) -> Result<(File, [usize; D], u64)> {
    let file = File::open(path).map_err(failed(LOAD, path))?;
    let (header, data) = Header::read(path, BufReader::new(&file))?;
    let refused = |kind, cause| Error::new(kind, LOAD).cause(format!("{}: {cause}", path.display()));
    let (order, own) = (header.descr.chars().next(), format!("{}{}", T::KIND, size_of::<T>()));
    if order.map_or("", |order| &header.descr[order.len_utf8()..]) != own {
        let cause = format!("the file has elements of type {:.40?}, but the array has {own}", header.descr);
        return Err(refused(ErrorKind::BadArgument, cause).remedy("load an array of the file's type, see `NpyElement`"));
    }
    if size_of::<T>() > 1 && ![Some(BYTE_ORDER), Some('=')].contains(&order) {
        return Err(refused(
            ErrorKind::Unsupported,
            format!("the file's type {:.40?} has the other byte order", header.descr),
        )
        .remedy("convert the array with `astype` before saving it"));
    }
    let shape: [usize; D] = header.shape.try_into().map_err(|shape: Vec<usize>| {
        refused(ErrorKind::BadArgument, format!("the file's array has {} dimensions, but this one {D}", shape.len()))
            .remedy("load an array of as many dimensions as the file has")
    })?;
    // The orders differ only if two dimensions have more than one index.
    if header.fortran_order && shape.iter().filter(|n| **n > 1).count() > 1 {
        return Err(refused(ErrorKind::Unsupported, "the file's array is in Fortran order".into())
            .remedy("save it in C order: `numpy.save(path, numpy.ascontiguousarray(array))`"));
    }
    let bytes = shape.iter().try_fold(size_of::<T>() as u64, |bytes, n| bytes.checked_mul(*n as u64));
    let len = file.metadata().map_err(failed(LOAD, path))?.len();
    if bytes.is_none_or(|bytes| bytes > len - data.min(len)) {
        return Err(malformed(path, format!("the file's {len} bytes are too few for shape {shape:?}")));
    }
    Ok((file, shape, data))
}
