#![allow(unsafe_code)]
//! Invalid input: each kind yields a specific error and leaves the window usable.

use farside_datatype::{Datatype, DatatypeErrorKind, Named, TypeMap};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Error, ErrorKind, Job, LockWindow, Op, Result, Selection, Window};

use crate::checks::config;

fn message(datatype: &Datatype) -> TypeMap {
    datatype.message(1).unwrap()
}

fn ints(count: u64) -> TypeMap {
    Datatype::from(Named::Int).message(count).unwrap()
}

fn vector(count: u64, block: u64, stride: i64) -> TypeMap {
    message(&Datatype::vector(count, block, stride, &Named::Int.into()).unwrap())
}

/// Checks the kind and the text of an error.
fn says(result: Result<()>, kind: ErrorKind, words: &[&str]) {
    let e = result.expect_err("an error");
    let text = e.to_string();
    assert_eq!(e.kind(), kind, "{text}");
    words.iter().for_each(|w| assert!(text.contains(w), "{w:?} is not in: {text}"));
}

/// Runs `f` over every configuration, inside a fence epoch of one rank, its own target, on a window of 400 bytes.
fn inside(f: impl Fn(&RawWindow, *mut u8) -> Result<()> + Sync) {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        config
            .run(2, |team| {
                let window = RawWindow::allocate(team, 400, Options { locks: false })?;
                let mut buffer = vec![1u8; 4096];
                window.fence(Assert::NOPRECEDE)?;
                f(&window, buffer.as_mut_ptr())?;
                window.fence(Assert::NOSUCCEED)?;
                // The window is still usable.
                window.fence(Assert::NOPRECEDE)?;
                // SAFETY: the layout is inside the buffer, which outlives the fence.
                unsafe { window.put_typed(buffer.as_ptr(), &vector(4, 1, 2), 0, 0, &ints(4)) }?;
                window.fence(Assert::NOSUCCEED)?;
                window.free()
            })
            .unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

#[test]
fn overlapping_local_receiving_blocks_are_refused_and_others_are_not() {
    inside(|w, b| {
        let twice = vector(4, 2, 1);
        let mixed = message(&Datatype::indexed(&[2, 2], &[1, 0], &Named::Int.into()).unwrap());
        // SAFETY: the layout is inside the buffer.
        unsafe {
            says(
                w.get_typed(b, &twice, 0, 0, &ints(8)),
                ErrorKind::BadArgument,
                &["get", "origin", "overlap at byte 4"],
            );
            says(w.get_typed(b, &mixed, 0, 0, &ints(4)), ErrorKind::BadArgument, &["overlap at byte 4"]);
            let old = Some((b.add(1000), &twice));
            let result = w.accumulate_typed(Op::Sum, (b, &ints(8)), old, 0, 0, &ints(8));
            says(result, ErrorKind::BadArgument, &["accumulate", "result", "overlap"]);
            w.put_typed(b, &twice, 0, 0, &ints(8))?;
            w.put_typed(b, &ints(8), 0, 0, &twice)?;
            w.accumulate_typed(Op::Sum, (b, &ints(8)), None, 0, 0, &twice)
        }
    });
}

#[test]
fn negative_strides_are_fine_inside_the_window_and_refused_outside() {
    inside(|w, b| {
        // Elements 0, -2, -4, ...: the first byte is 36 in front of the displacement.
        let backwards = vector(10, 1, -1);
        // SAFETY: the layout is inside the buffer.
        unsafe {
            w.put_typed(b, &ints(10), 0, 36, &backwards)?;
            w.get_typed(b.add(36), &backwards, 0, 0, &ints(10))?;
            let words = ["bytes -4 to 36", "window of 400"];
            says(w.put_typed(b, &ints(10), 0, 32, &backwards), ErrorKind::OutOfRange, &words);
            says(w.put_typed(b, &ints(10), 0, 400, &backwards), ErrorKind::OutOfRange, &["bytes 364 to 404"]);
        }
        Ok(())
    });
}

#[test]
fn types_out_of_range_of_the_window_are_refused_whatever_their_numbers() {
    inside(|w, b| {
        let far = vector(1 << 40, 1, 2);
        let reach = message(&Datatype::hvector(2, 1, i64::MAX - 20, &Named::Int.into()).unwrap());
        let end = i64::MAX - 4;
        let late = message(&Datatype::hindexed(&[1], &[end], &Named::Int.into()).unwrap());
        let early = message(&Datatype::hindexed(&[1], &[i64::MIN], &Named::Int.into()).unwrap());
        // SAFETY: the operation is refused before any memory is accessed.
        unsafe {
            says(w.put_typed(b, &vector(101, 1, 1), 0, 0, &ints(101)), ErrorKind::OutOfRange, &["bytes 0 to 404"]);
            says(w.put_typed(b, &ints(100), 0, 4, &ints(100)), ErrorKind::OutOfRange, &["bytes 4 to 404"]);
            says(w.put_typed(b, &far, 0, 0, &far), ErrorKind::OutOfRange, &["8796093022204"]);
            says(w.get_typed(b, &far, 0, 0, &ints(1 << 40)), ErrorKind::OutOfRange, &["4398046511104"]);
            says(w.put_typed(b, &ints(2), 0, 0, &reach), ErrorKind::OutOfRange, &["window of 400"]);
            for (offset, map) in
                [(usize::MAX, &late), (usize::MAX, &ints(1)), (0, &late), (0, &early), (usize::MAX, &early)]
            {
                says(w.put_typed(b, &ints(1), 0, offset, map), ErrorKind::OutOfRange, &["window of 400"]);
            }
            let result = w.accumulate_typed(Op::Sum, (b, &ints(101)), None, 0, 0, &ints(101));
            says(result, ErrorKind::OutOfRange, &["accumulate", "bytes 0 to 404"]);
            says(w.put_typed(b, &ints(1), 2, 0, &ints(1)), ErrorKind::NoSuchRank, &["2 ranks"]);
        }
        Ok(())
    });
    // A type whose extent overflows cannot be constructed.
    let int = Named::Int.into();
    for e in [
        Datatype::vector(1 << 40, 1, 1 << 40, &int).unwrap_err(),
        Datatype::hvector(3, 1, i64::MAX / 2, &int).unwrap_err(),
        Datatype::contiguous(1 << 62, &int).unwrap_err(),
    ] {
        assert_eq!(e.kind(), DatatypeErrorKind::Overflow, "{e}");
    }
}

#[test]
fn sides_with_different_elements_are_refused_and_both_named() {
    inside(|w, b| {
        let floats = Datatype::from(Named::Float).message(4).unwrap();
        // SAFETY: the operation is refused before any memory is accessed.
        unsafe {
            let words = ["4 elements (16 bytes) at the origin", "5 elements (20 bytes) at the target"];
            says(w.put_typed(b, &ints(4), 0, 0, &ints(5)), ErrorKind::BadArgument, &words);
            says(w.get_typed(b, &floats, 0, 0, &ints(4)), ErrorKind::BadArgument, &["different types"]);
            says(w.put_typed(b, &TypeMap::EMPTY, 0, 0, &ints(1)), ErrorKind::BadArgument, &["0 elements"]);
            let result = w.accumulate_typed(Op::Sum, (b, &ints(4)), Some((b.add(99), &ints(3))), 0, 0, &ints(4));
            says(result, ErrorKind::BadArgument, &["result"]);
        }
        Ok(())
    });
}

#[test]
fn accumulate_of_what_has_no_such_operation_is_refused() {
    inside(|w, b| {
        let pair = Datatype::from(Named::DoubleInt).message(2).unwrap();
        let complex = Datatype::from(Named::CFloatComplex).message(2).unwrap();
        let long = Datatype::from(Named::LongDouble).message(2).unwrap();
        let floats = Datatype::from(Named::Float).message(2).unwrap();
        // SAFETY: the operation is refused before any memory is accessed.
        unsafe {
            let add = |op, map: &TypeMap| w.accumulate_typed(op, (b, map), None, 0, 0, map);
            says(add(Op::Sum, &pair), ErrorKind::Unsupported, &["several predefined types"]);
            says(add(Op::Sum, &complex), ErrorKind::Unsupported, &["MPI_C_FLOAT_COMPLEX"]);
            says(add(Op::Replace, &long), ErrorKind::Unsupported, &["MPI_LONG_DOUBLE"]);
            says(add(Op::Bxor, &floats), ErrorKind::Unsupported, &["bxor", "f32"]);
        }
        Ok(())
    });
}

#[test]
fn misaligned_accumulate_is_refused() {
    for config in config::these(&[config::MAPPED]) {
        let result = config.run(1, |team| {
            let window = LockWindow::<u8>::allocate(team, 64)?;
            window.lock_all(Assert::empty(), |e| {
                let bytes = Selection::<u8>::contiguous(8)?;
                e.accumulate_selected(Op::Sum, &[1; 8], &bytes, 0, 3, &bytes)
            })?;
            let raw = RawWindow::allocate(team, 64, Options::default())?;
            raw.lock_all(Assert::empty())?;
            let data = [1i32; 2];
            // SAFETY: the data outlives the epoch, which is abandoned if the operation fails later.
            let added =
                unsafe { raw.accumulate_typed(Op::Sum, (data.as_ptr().cast(), &ints(2)), None, 0, 2, &ints(2)) };
            let result = added.and_then(|()| raw.flush(0));
            raw.abandon();
            says(result, ErrorKind::Misaligned, &["accumulate"]);
            raw.release()?;
            window.free()
        });
        result.unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// Types without bytes change nothing and send nothing, but the epoch is still checked.
#[test]
fn empty_types_do_nothing_inside_an_epoch_and_are_refused_outside() {
    inside(|w, b| {
        let empty = vector(0, 3, 5);
        let before = w.job().stats();
        // SAFETY: no memory is accessed.
        unsafe {
            for offset in [0, 400, usize::MAX] {
                w.put_typed(b, &empty, 0, offset, &TypeMap::EMPTY)?;
                w.get_typed(std::ptr::null_mut(), &TypeMap::EMPTY, 1, offset, &empty)?;
                let old = Some((b, &empty));
                w.accumulate_typed(Op::Sum, (b, &empty), old, 0, offset, &empty)?;
            }
            says(w.put_typed(b, &empty, 2, 0, &empty), ErrorKind::NoSuchRank, &["2 ranks"]);
        }
        assert_eq!((w.job().stats() - before).messages(), 0);
        Ok(())
    });
    let outside = Job::threads(1, |job| {
        let window = RawWindow::allocate(&job.world()?, 8, Options::default())?;
        let put = |map: &TypeMap| {
            // SAFETY: the operation is refused before any memory is accessed.
            unsafe { window.put_typed(std::ptr::null(), map, 0, 0, map) }
        };
        says(put(&TypeMap::EMPTY), ErrorKind::WrongEpoch, &["no access epoch"]);
        says(put(&ints(1)), ErrorKind::WrongEpoch, &["no access epoch"]);
        window.start(&[], Assert::empty())?;
        says(put(&TypeMap::EMPTY), ErrorKind::WrongEpoch, &["group of start"]);
        window.complete()?;
        window.free()?;
        says(put(&TypeMap::EMPTY), ErrorKind::Freed, &["put"]);
        Ok(())
    });
    outside.unwrap();
}

#[test]
fn selections_outside_their_buffer_are_refused() {
    let refused = |e: Result<()>| says(e, ErrorKind::BadArgument, &["bytes 0 to 80", "buffer has 72"]);
    Job::threads(1, |job| {
        let mut window = Window::<u64>::allocate(&job.world()?, 20)?;
        let ten = Selection::<u64>::contiguous(10)?;
        let (short, mut into) = (vec![0; 9], vec![0; 9]);
        let mut enough = vec![0; 10];
        window.fence(Assert::empty(), |e| {
            refused(e.put_selected(&short, &ten, 0, 0, &ten));
            refused(e.accumulate_selected(Op::Sum, &short, &ten, 0, 0, &ten));
            refused(e.get_accumulate_selected(Op::Sum, &short, &mut enough, &ten, 0, 0, &ten));
            refused(e.get_selected(&mut into, &ten, 0, 0, &ten));
            let e = e.put_selected(&[0; 10], &ten, 0, usize::MAX / 4, &ten).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}");
            Ok(())
        })?;
        // These elements are before the first one.
        let backwards = Datatype::vector(3, 1, -1, &Selection::<u64>::element()).unwrap();
        let backwards = Selection::<u64>::from_type_map(message(&backwards))?;
        let three = Selection::<u64>::contiguous(3)?;
        window.fence(Assert::empty(), |e| {
            let result = e.put_selected(&short, &backwards, 0, 0, &three);
            says(result, ErrorKind::BadArgument, &["bytes -16 to 8"]);
            e.put_selected(&short, &three, 0, 2, &backwards)
        })?;
        window.free()
    })
    .unwrap();
}

#[test]
fn selections_of_other_elements_or_indices_are_refused() {
    let bad = |e: std::result::Result<(), Error>, words: &[&str]| says(e, ErrorKind::BadArgument, words);
    let float = message(&Named::Float.into());
    bad(Selection::<u32>::from_type_map(float).map(|_| ()), &["MPI_FLOAT", "MPI_UINT32_T"]);
    let pair = message(&Named::DoubleInt.into());
    bad(Selection::<f64>::from_type_map(pair).map(|_| ()), &["several types"]);
    bad(Selection::<u8>::subarray([4, 4], [0..4, 2..5]).map(|_| ()), &[]);
    bad(Selection::<u64>::contiguous(usize::MAX).map(|_| ()), &[]);
    bad(Selection::<u64>::vector(1 << 40, 1, 1 << 40).map(|_| ()), &[]);
    assert!(Selection::<u8>::subarray([4, 0], [1..3, 0..0]).unwrap().is_empty());
    assert!(Selection::<u8>::subarray([4, 3], [2..2, 0..3]).unwrap().is_empty());
}
