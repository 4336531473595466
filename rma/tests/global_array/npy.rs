//! Arrays in files of NumPy's format.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use farside_harness::skip;
use farside_rma::global_array::{Format, NpyElement};
use farside_rma::prelude::*;

use super::{as_processes, distributed_pairs, everywhere, names};
use crate::checks::config::quick;

/// An array of 2 rows and 2 columns of `f4`, as saved by NumPy 2.4.
const BY_NUMPY: &[u8] = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\
    \x20                                                         \n\x00\x00\xc0?\x00\x00\x00\xc0\x00\x00@@\x00\x00\x80@";

fn value([i, j]: [usize; 2]) -> u32 {
    (100 * i + j + 1) as u32
}

/// Arrays saved in every distribution over 1 to 4 ranks are loaded in every distribution, over the same or another
/// number of ranks.
#[test]
fn every_distribution_is_saved_and_loaded() {
    let all = distributed_pairs(&[Format::Block, Format::Cyclic(1), Format::Cyclic(3), Format::Whole]);
    let counts: &[usize] = if quick() { &[3] } else { &[1, 2, 3, 4] };
    let folder = tempfile::tempdir().unwrap();
    let path = |ranks, number| folder.path().join(format!("{ranks}-{number}.npy"));
    let mut first = None;
    for ranks in counts.iter().copied() {
        Job::threads(ranks, |job| {
            for (number, formats) in all.iter().enumerate() {
                let array = GlobalArray::<u32, 2>::distributed(&job.world()?, [11, 7], *formats)?;
                array.map(|index, _| value(index))?;
                array.save(path(ranks, number))?;
                assert_eq!(fs::metadata(path(ranks, number)).unwrap().len(), 128 + 4 * 77, "complete on return");
                array.free()?;
            }
            Ok(())
        })
        .unwrap();
        // All files are identical.
        for (number, formats) in all.iter().enumerate() {
            let bytes = fs::read(path(ranks, number)).unwrap();
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{formats:?} on {ranks} ranks");
        }
    }
    for ranks in [1, 2, 3, 4] {
        Job::threads(ranks, |job| {
            let team = job.world()?;
            for formats in &all {
                let array = GlobalArray::<u32, 2>::load(&team, path(counts[0], 0), *formats)?;
                assert_eq!((array.shape(), array.formats()), ([11, 7], *formats));
                array.for_each(|index, x| assert_eq!(*x, value(index), "{formats:?} on {ranks} ranks"))?;
                array.free()?;
            }
            let grid = [1, team.size()];
            let array = GlobalArray::<u32, 2>::load_on_grid(&team, path(counts[0], 0), [Format::Block; 2], grid)?;
            assert_eq!(array.grid(), grid);
            array.for_each(|index, x| assert_eq!(*x, value(index)))?;
            array.free()
        })
        .unwrap();
    }
    let files = counts.len() * all.len();
    assert_eq!(names(folder.path()).len(), files, "no other file remains");
}

#[test]
fn files_on_every_device() {
    everywhere(&[1, 3], |team, config| {
        let name = format!("farside-{}-{}-{}.npy", std::process::id(), config.name, team.size());
        let path = std::env::temp_dir().join(name.replace(' ', ""));
        let array = GlobalArray::<[f64; 2], 3>::new(team, [3, 4, 2])?;
        array.map(|[i, j, k], _| [(10 * i + j) as f64, k as f64])?;
        array.save(&path)?;
        let formats = [Format::Whole, Format::Whole, Format::Cyclic(1)];
        let loaded = GlobalArray::<[f64; 2], 3>::load(team, &path, formats)?;
        loaded.for_each(|[i, j, k], x| assert_eq!(*x, [(10 * i + j) as f64, k as f64]))?;
        // The array is saved to the same file again.
        loaded.map(|_, [x, y]| [-x, y])?;
        loaded.save(&path)?;
        let again = GlobalArray::<[f64; 2], 3>::load(team, &path, formats)?;
        again.for_each(|[i, j, k], x| assert_eq!(*x, [-((10 * i + j) as f64), k as f64]))?;
        team.barrier()?;
        if team.rank() == 0 {
            fs::remove_file(&path).unwrap();
        }
        again.free()?;
        loaded.free()?;
        array.free()
    });
}

/// Round trip of an element type whose file contains `descr`.
fn element<T: NpyElement + PartialEq>(folder: &Path, descr: &str, make: fn(usize) -> T) {
    let path = &folder.join("element.npy");
    Job::threads(2, |job| {
        for n in [0, 1, 7] {
            let array = GlobalArray::<T, 1>::new(&job.world()?, [n])?;
            array.map(|[i], _| make(i))?;
            array.save(path)?;
            let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
            assert!(text.contains(&format!("'descr': '{descr}'")) && text.contains(&format!("({n},)")), "{text}");
            let loaded = GlobalArray::<T, 1>::load(&job.world()?, path, [Format::Cyclic(2)])?;
            loaded.for_each(|[i], x| assert!(*x == make(i)))?;
            loaded.free()?;
            array.free()?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn every_element_type() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    element::<i8>(folder, "|i1", |i| -(i as i8));
    element::<i16>(folder, "<i2", |i| -(i as i16));
    element::<i32>(folder, "<i4", |i| -(i as i32));
    element::<i64>(folder, "<i8", |i| -(i as i64));
    element::<u8>(folder, "|u1", |i| i as u8);
    element::<u16>(folder, "<u2", |i| 300 * i as u16);
    element::<u32>(folder, "<u4", |i| 70_000 * i as u32);
    element::<u64>(folder, "<u8", |i| u64::MAX - i as u64);
    element::<usize>(folder, "<u8", |i| i);
    element::<f32>(folder, "<f4", |i| i as f32 / 2.0);
    element::<f64>(folder, "<f8", |i| i as f64 / 3.0);
    element::<[f32; 2]>(folder, "<c8", |i| [i as f32, -1.5]);
    element::<[f64; 2]>(folder, "<c16", |i| [i as f64, -1.5]);
}

#[test]
fn a_file_of_numpy() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("theirs.npy"), folder.path().join("ours.npy"));
    fs::write(&theirs, BY_NUMPY).unwrap();
    Job::threads(3, |job| {
        let array = GlobalArray::<f32, 2>::load(&job.world()?, &theirs, [Format::Block, Format::Cyclic(1)])?;
        let mut all = [0.0; 4];
        array.get((0..2, 0..2), &mut all)?;
        assert_eq!(all, [1.5, -2.0, 3.0, 4.0]);
        array.save(&ours)?;
        array.free()
    })
    .unwrap();
    assert_eq!(fs::read(&ours).unwrap(), BY_NUMPY, "the same bytes");
}

/// NumPy reads saved arrays, and arrays that NumPy saved are loaded.
#[test]
fn numpy_itself() {
    let folder = tempfile::tempdir().unwrap();
    let python = |program: &str| {
        Command::new("python3")
            .args(["-c", program])
            .current_dir(folder.path())
            .output()
            .map(|o| (o.status.success(), o))
    };
    if !python("import numpy").is_ok_and(|(works, _)| works) {
        return skip("numpy_itself", "there is no python3 with numpy");
    }
    let run = |program: &str| {
        let (works, output) = python(program).unwrap();
        assert!(works, "{output:?}");
    };
    run("import numpy as n
n.save('a.npy', n.arange(60, dtype='<i8').reshape(3, 4, 5))
n.save('b.npy', n.arange(6, dtype='<i8').reshape(2, 3).T)
n.save('c.npy', n.arange(6, dtype='>i8'))
n.save('d.npy', n.arange(6, dtype='<i8').reshape(1, 6).T)
n.save('e.npy', n.array([1 - 2j, 3j]))");
    let path = |name: &str| folder.path().join(name);
    Job::threads(4, |job| {
        let team = job.world()?;
        let formats = [Format::Cyclic(1), Format::Block, Format::Cyclic(2)];
        let a = GlobalArray::<i64, 3>::load(&team, path("a.npy"), formats)?;
        a.for_each(|[i, j, k], x| assert_eq!(*x, (20 * i + 5 * j + k) as i64))?;
        let kind =
            |name| GlobalArray::<i64, 2>::load(&team, path(name), [Format::Block; 2]).map(drop).unwrap_err().kind();
        assert_eq!(kind("b.npy"), ErrorKind::Unsupported);
        assert_eq!(kind("a.npy"), ErrorKind::BadArgument);
        let c = GlobalArray::<i64, 1>::load(&team, path("c.npy"), [Format::Block]).map(drop);
        assert_eq!(c.unwrap_err().kind(), ErrorKind::Unsupported);
        // An array of one row or column is both in C and in Fortran order.
        let d = GlobalArray::<i64, 2>::load(&team, path("d.npy"), [Format::Block; 2])?;
        d.for_each(|[i, _], x| assert_eq!(*x, i as i64))?;
        let e = GlobalArray::<[f64; 2], 1>::load(&team, path("e.npy"), [Format::Block])?;
        assert_eq!(e.gather(&[[0], [1]])?, [[1.0, -2.0], [0.0, 3.0]]);
        a.map(|_, x| -x)?;
        a.save(path("negative.npy"))?;
        e.save(path("complex.npy"))?;
        e.free()?;
        d.free()?;
        a.free()
    })
    .unwrap();
    run("import numpy as n
assert (n.load('negative.npy') == -n.arange(60).reshape(3, 4, 5)).all()
assert (n.load('complex.npy') == n.array([1 - 2j, 3j])).all()");
}

#[test]
fn files_that_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let text = |text: &str, data: usize| {
        let len = (text.len() as u16).to_le_bytes();
        [&b"\x93NUMPY\x01\x00"[..], &len, text.as_bytes(), &vec![0; data]].concat()
    };
    let files: [(&str, Vec<u8>, ErrorKind, &str); 9] = [
        ("empty", vec![], ErrorKind::BadArgument, "ends inside its header"),
        ("cut", BY_NUMPY[..BY_NUMPY.len() - 1].to_vec(), ErrorKind::BadArgument, "143 bytes are too few"),
        ("other", b"PK\x03\x04and so on".to_vec(), ErrorKind::BadArgument, "does not begin"),
        (
            "huge",
            text("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 2), }", 16),
            ErrorKind::BadArgument,
            "too few",
        ),
        // The array has no bytes, but more indices than an address space.
        (
            "none",
            text("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 18446744073709551615), }", 0),
            ErrorKind::BadArgument,
            "of shape",
        ),
        (
            "kind",
            text("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }", 16),
            ErrorKind::BadArgument,
            "<i4",
        ),
        (
            "odd",
            text("{'descr': '', 'fortran_order': False, 'shape': (2, 2), }", 16),
            ErrorKind::BadArgument,
            "but the array has f4",
        ),
        (
            "line",
            text("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 16),
            ErrorKind::BadArgument,
            "1 dimensions",
        ),
        (
            "fortran",
            text("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16),
            ErrorKind::Unsupported,
            "Fortran",
        ),
    ];
    for (name, bytes, ..) in &files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    Job::threads(3, |job| {
        let team = job.world()?;
        let load = |path: PathBuf| {
            let result = GlobalArray::<f32, 2>::load(&team, path, [Format::Block; 2]);
            result.map(GlobalArray::free).map(drop)
        };
        for (name, _, kind, part) in &files {
            let e = load(folder.path().join(name)).unwrap_err();
            assert!(e.kind() == *kind && e.to_string().contains(part), "{name}: {e}");
            assert!(!e.to_string().contains("ranks disagree"), "all ranks have loaded the same file: {e}");
        }
        for (path, part) in [(folder.path().join("missing"), "missing"), (folder.path().to_owned(), "directory")] {
            let e = load(path).unwrap_err();
            assert!(e.kind() == ErrorKind::System && e.to_string().contains(part), "{e}");
        }
        // One rank fails, so all ranks get an error, and the array is freed.
        if team.rank() == 0 {
            fs::write(folder.path().join("good"), BY_NUMPY).unwrap();
        }
        team.barrier()?;
        let last = team.rank() == 2;
        let e = load(folder.path().join(if last { "cut" } else { "good" })).unwrap_err();
        assert_eq!(e.kind(), if last { ErrorKind::BadArgument } else { ErrorKind::Aborted });
        load(folder.path().join("good"))?;
        let rank_formats = if last { [Format::Whole, Format::Block] } else { [Format::Block, Format::Whole] };
        let e = GlobalArray::<f32, 2>::load(&team, folder.path().join("good"), rank_formats).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Mismatch);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_failed_save_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (old, elsewhere) = (folder.path().join("old.npy"), folder.path().join("elsewhere"));
    fs::write(&old, "old").unwrap();
    fs::create_dir(&elsewhere).unwrap();
    Job::threads(3, |job| {
        let team = job.world()?;
        let array = GlobalArray::<u64, 1>::new(&team, [10])?;
        let last = team.rank() == 2;
        let kind = |result: Result<()>| result.unwrap_err().kind();
        let aborted = |kind, own: bool| if own { kind } else { ErrorKind::Aborted };
        // The folder does not exist, which the first rank detects.
        let result = array.save(folder.path().join("none/a.npy"));
        assert_eq!(kind(result), aborted(ErrorKind::System, team.rank() == 0));
        // One rank uses another path, as if the file system were not shared.
        let result = array.save(if last { elsewhere.join("old.npy") } else { old.clone() });
        assert_eq!(kind(result), aborted(ErrorKind::System, last));
        // One rank is inside `with_local`.
        let result = if last { array.with_local(|_| array.save(&old)) } else { array.save(&old) };
        assert_eq!(kind(result), aborted(ErrorKind::WrongEpoch, last));
        // A folder is not replaced.
        assert_eq!(kind(array.save(&elsewhere)), aborted(ErrorKind::System, team.rank() == 0));
        team.barrier()?;
        assert_eq!(
            (names(folder.path()), fs::read(&old).unwrap()),
            (vec!["elsewhere".into(), "old.npy".into()], b"old".to_vec())
        );
        team.barrier()?;
        array.save(&old)?;
        assert_eq!(fs::metadata(&old).unwrap().len(), 128 + 80);
        array.free()
    })
    .unwrap();
}

/// Ranks that are processes save and load, by a path relative to their working directory.
/// A file that is replaced keeps its permissions, and a load from files of different versions is refused.
#[test]
fn permissions_stay_and_versions_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one.npy", "two.npy"].map(|name| folder.path().join(name));
    Job::threads(2, |job| {
        let team = job.world()?;
        let array = GlobalArray::<u8, 1>::new(&team, [10])?;
        paths.iter().try_for_each(|path| array.save(path))?;
        if team.rank() == 0 {
            fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o600)).unwrap();
        }
        array.save(&paths[0])?;
        assert_eq!(fs::metadata(&paths[0]).unwrap().permissions().mode() & 0o777, 0o600);
        let e = GlobalArray::<u8, 1>::load(&team, &paths[team.rank()], [Format::Block]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
        assert!(e.caller().is_some_and(|caller| caller.file().ends_with("npy.rs")), "{e}");
        array.free()
    })
    .unwrap();
}

#[test]
fn between_processes() {
    let left = as_processes(&farside_harness::itself!("between_processes"), 3, |team| {
        let array = GlobalArray::<u32, 2>::distributed(team, [11, 7], [Format::Cyclic(2), Format::Whole])?;
        array.map(|index, _| value(index))?;
        array.save("by-ranks.npy")?;
        let loaded = GlobalArray::<u32, 2>::load(team, "by-ranks.npy", [Format::Whole, Format::Block])?;
        loaded.for_each(|index, x| assert_eq!(*x, value(index)))?;
        loaded.free()?;
        array.free()
    });
    assert!(left.is_none_or(|left| left == ["by-ranks.npy"]));
}
