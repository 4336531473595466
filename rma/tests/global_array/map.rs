//! Elementwise functions, and a rank's own elements as an `ndarray` array.

use farside_rma::core::stats::Kind;
use farside_rma::global_array::Format;
use farside_rma::prelude::*;

use super::everywhere;

#[test]
fn maps_in_place_and_into_another_array() {
    everywhere(&[1, 2, 4], |team, _| {
        let formats = [Format::Cyclic(2), Format::Block, Format::Whole];
        let a = GlobalArray::<u16, 3>::distributed(team, [5, 4, 3], formats)?;
        let b = GlobalArray::<f64, 3>::distributed(team, [5, 4, 3], formats)?;
        let value = |[i, j, k]: [usize; 3]| (100 * i + 10 * j + k) as u16;
        a.map(|index, old| old + value(index))?;
        team.barrier()?;
        let before = team.job().stats();
        a.map(|_, old| old + 1)?;
        a.map_into(&b, |index, x| {
            assert_eq!(x, value(index) + 1);
            f64::from(x) / 2.0
        })?;
        a.for_each_with(&b, |_, x, half| *x += (2.0 * half) as u16)?;
        let made = team.job().stats() - before;
        // Only this rank's lock is taken.
        assert_eq!(made.messages(), made.count(Kind::FetchAdd), "{made:?}");
        a.for_each(|index, x| assert_eq!(*x, 2 * (value(index) + 1)))?;
        b.for_each(|index, x| assert_eq!(*x, f64::from(value(index) + 1) / 2.0))?;
        // Cyclic blocks of the same size as the blocks of BLOCK.
        let same = GlobalArray::<u8, 3>::on_grid(team, [5, 4, 3], formats, a.grid())?;
        a.map_into(&same, |[i, _, _], _| i as u8)?;
        assert_eq!(same.reduce(Op::Max)?, Some(4));
        same.free()?;
        b.free()?;
        a.free()
    });
}

#[test]
fn arrays_that_cannot_be_combined() {
    everywhere(&[2], |team, _| {
        let a = GlobalArray::<i32, 1>::new(team, [6])?;
        let kind = |result: Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(a.for_each_with(&a, |_, x, y| *x += y)), ErrorKind::WrongEpoch);
        for (shape, format) in [(7, Format::Block), (6, Format::Cyclic(1))] {
            let b = GlobalArray::<i64, 1>::distributed(team, [shape], [format])?;
            assert_eq!(kind(a.map_into(&b, |_, x| x.into())), ErrorKind::BadArgument);
            b.free()?;
        }
        // A format with the same elements at every rank.
        let b = GlobalArray::<i64, 1>::distributed(team, [6], [Format::Cyclic(3)])?;
        a.map_into(&b, |[i], _| i as i64)?;
        assert_eq!(b.reduce(Op::Sum)?, Some(15));
        assert_eq!(kind(b.with_local(|_| a.map_into(&b, |_, x| x.into()))), ErrorKind::WrongEpoch);
        let other = team.split(Some(0), 0)?.ok_or(()).expect("every rank is in it");
        let c = GlobalArray::<i64, 1>::new(&other, [6])?;
        assert_eq!(kind(a.map_into(&c, |_, x| x.into())), ErrorKind::BadArgument);
        c.free()?;
        b.free()?;
        a.free()
    });
}

#[cfg(feature = "ndarray")]
#[test]
fn own_elements_as_an_array_of_ndarray() {
    everywhere(&[1, 3, 4], |team, _| {
        for formats in [[Format::Block, Format::Cyclic(2)], [Format::Cyclic(1), Format::Whole], [Format::Block; 2]] {
            for shape in [[7, 5], [2, 9], [0, 3], [1, 1]] {
                let array = GlobalArray::<i64, 2>::distributed(team, shape, formats)?;
                array.with_local(|mut local| {
                    let mut view = local.view_mut();
                    view.indexed_iter_mut().for_each(|((i, j), x)| *x = (10 * i + j) as i64);
                    let (shape, width) = (local.shape(), local.shape()[1].max(1));
                    assert_eq!(local.view().shape(), shape);
                    assert!(local.view().is_standard_layout());
                    assert_eq!(local.view().iter().copied().collect::<Vec<_>>(), local.elements());
                    let mut all = local.elements().iter().enumerate();
                    assert!(all.all(|(at, x)| *x == (10 * (at / width) + at % width) as i64));
                    assert_eq!(local.view().into_dyn().ndim(), 2);
                    Ok::<(), Error>(())
                })?;
                array.free()?;
            }
        }
        let line = GlobalArray::<u8, 1>::new(team, [9])?;
        line.with_local(|mut local| {
            local.view_mut().fill(2);
            Ok::<(), Error>(())
        })?;
        assert_eq!(line.reduce(Op::Sum)?, Some(18));
        line.free()
    });
}
