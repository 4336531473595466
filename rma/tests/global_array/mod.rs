//! Global arrays against a serial array, on ranks that are threads.

mod map;
mod npy;
mod tasks;

use crate::checks::config::{Config, Memory, quick, table, verbs, within};
use farside_harness::Marked;
use farside_rma::core::stats::Kind;
use farside_rma::global_array::Format;
use farside_rma::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Every index of a section, in row-major order.
fn indices<const D: usize>(section: Section<D>) -> Vec<[usize; D]> {
    let mut all = vec![section.start];
    for d in 0..D {
        let step = |index: [usize; D]| {
            (section.start[d]..section.end[d]).map(move |i| {
                let mut index = index;
                index[d] = i;
                index
            })
        };
        all = all.into_iter().flat_map(step).collect();
    }
    all
}

/// The reference: the whole array in local memory.
struct Serial<const D: usize> {
    shape: [usize; D],
    elements: Vec<i64>,
}

impl<const D: usize> Serial<D> {
    fn new(shape: [usize; D]) -> Self {
        Self { shape, elements: vec![0; shape.iter().product()] }
    }

    fn at(&mut self, index: [usize; D]) -> &mut i64 {
        let place = (0..D).fold(0, |place, d| place * self.shape[d] + index[d]);
        &mut self.elements[place]
    }

    fn section(&mut self, section: Section<D>) -> Vec<i64> {
        indices(section).into_iter().map(|index| *self.at(index)).collect()
    }
}

/// One step of a random program: the operation, the rank, the section (reduced to the shape), and the values.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    rank: usize,
    numbers: [usize; 4],
    seed: i64,
}

impl Step {
    fn section<const D: usize>(&self, shape: [usize; D]) -> Section<D> {
        let start: [usize; D] = std::array::from_fn(|d| self.numbers[2 * d] % (shape[d] + 1));
        Section { start, end: std::array::from_fn(|d| start[d] + self.numbers[2 * d + 1] % (shape[d] + 1 - start[d])) }
    }

    fn values(&self, count: usize) -> Vec<i64> {
        (0..count as i64).map(|i| self.seed.wrapping_mul(31).wrapping_add(i * 7 + 1)).collect()
    }
}

/// Runs `f` with the given numbers of ranks over every configuration with memory of the runtime.
fn everywhere(ranks: &[u32], f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    let allocated = table().iter().filter(|c| c.memory == Memory::Allocated || c.device.is_some());
    let most = if verbs() && quick() { 1 } else { 12 };
    for config in allocated.take(most) {
        for n in ranks.iter().copied() {
            let run = move || config.run(n, |team| f(team, config)).map(|_| ());
            let result = within(60, &format!("{} with {n} ranks", config.name), run);
            result.unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
        }
    }
}

/// Runs `f` as test `program` in ranks that are processes, in an empty folder; returns the names of the files that
/// remain there. The ranks run the same test, in which this function returns `None`.
fn as_processes(program: &[String], ranks: u32, f: impl Fn(&Team) -> Result<()>) -> Option<Vec<String>> {
    const FOLDER: &str = "FARSIDE_TEST_FOLDER";
    let Some(folder) = std::env::var_os(FOLDER) else {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Marked::run(ranks, program);
        job.command.env(FOLDER, folder.path());
        let done = job.finish();
        assert_eq!(done.code, Some(0), "{done:?}");
        return Some(names(folder.path()));
    };
    std::env::set_current_dir(folder).unwrap();
    let job = Job::init().unwrap();
    job.world().and_then(|team| f(&team)).unwrap();
    job.finalize().unwrap();
    None
}

/// Files of the folder.
fn names(folder: &std::path::Path) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// All pairs of formats that distribute an array.
fn distributed_pairs(formats: &[Format]) -> Vec<[Format; 2]> {
    let pairs = formats.iter().flat_map(|a| formats.iter().map(|b| [*a, *b]));
    pairs.filter(|pair| *pair != [Format::Whole; 2]).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..4u8, 0..6usize, [0..1000usize, 0..1000usize, 0..1000usize, 0..1000usize], -1000..1000i64);
    prop::collection::vec(step.prop_map(|(kind, rank, numbers, seed)| Step { kind, rank, numbers, seed }), 1..12)
}

type Make<const D: usize> = fn(&Team, [usize; D]) -> Result<GlobalArray<i64, D>>;

/// Runs the steps one after the other on `ranks` ranks. After each step every rank reads the changed section, and the
/// whole array in two ways.
fn same_as_serial<const D: usize>(ranks: usize, shape: [usize; D], make: Make<D>, steps: &[Step]) {
    Job::threads(ranks, |job| {
        let team = job.world()?;
        let array = make(&team, shape)?;
        let mut serial = Serial::new(shape);
        for step in steps {
            let section = step.section(shape);
            let values = step.values(section.len());
            let mine = step.rank % team.size() == team.rank();
            match step.kind {
                0 => {
                    if mine {
                        array.put(section, &values)?;
                    }
                    indices(section).into_iter().zip(&values).for_each(|(index, v)| *serial.at(index) = *v);
                }
                1 => {
                    if mine {
                        array.accumulate(Op::Sum, section, &values)?;
                    }
                    indices(section).into_iter().zip(&values).for_each(|(index, v)| *serial.at(index) += v);
                }
                2 => {
                    if let Some(index) = indices(section).pop() {
                        if mine {
                            assert_eq!(array.fetch_and_op(Op::Max, step.seed, index)?, *serial.at(index));
                        }
                        *serial.at(index) = step.seed.max(*serial.at(index));
                    }
                }
                _ => {
                    // Every rank updates its own block.
                    array.with_local(|mut view| {
                        let own: Vec<i64> = view.iter().map(|(index, _)| *serial.at(index)).collect();
                        assert_eq!(view.elements(), own);
                        assert!(view.iter().all(|(index, _)| view.section().contains(index)));
                        assert_eq!(view.rows().flatten().copied().collect::<Vec<_>>(), view.elements());
                        view.rows_mut().flatten().for_each(|element| *element ^= step.seed);
                        Ok(())
                    })?;
                    serial.elements.iter_mut().for_each(|element| *element ^= step.seed);
                }
            }
            array.sync()?;
            let mut read = vec![-1; section.len()];
            array.get(section, &mut read)?;
            assert_eq!(read, serial.section(section), "{step:?} {section}");
            let mut read = vec![-1; serial.elements.len()];
            array.get(Section::whole(shape), &mut read)?;
            assert_eq!(read, serial.elements, "{step:?}");
            for index in indices(section) {
                assert_eq!(array.get_element(index)?, *serial.at(index));
            }
            array.sync()?;
        }
        array.free()
    })
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if quick() { 4 } else { 100 }, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_dimension_same_as_serial(ranks in 1..=6usize, n in 0..40usize, steps in steps()) {
        same_as_serial(ranks, [n], GlobalArray::<i64, 1>::new, &steps);
    }

    #[test]
    fn two_dimensions_same_as_serial(ranks in 1..=6usize, rows in 0..14usize, columns in 0..14usize, steps in steps()) {
        same_as_serial(ranks, [rows, columns], GlobalArray::<i64, 2>::new, &steps);
    }
}

#[test]
fn every_format_same_as_serial() {
    let step = |kind, rank, numbers| Step { kind, rank, numbers, seed: 5 };
    let steps = [
        step(0, 0, [0, 13, 0, 13]),
        step(1, 3, [2, 7, 1, 9]),
        step(3, 0, [1, 3, 1, 3]),
        step(0, 1, [3, 1, 0, 12]),
        step(2, 2, [1, 2, 3, 4]),
    ];
    let makes: [Make<2>; 6] = [
        |team, shape| GlobalArray::distributed(team, shape, [Format::Cyclic(1), Format::Whole]),
        |team, shape| GlobalArray::distributed(team, shape, [Format::Whole, Format::Cyclic(2)]),
        |team, shape| GlobalArray::distributed(team, shape, [Format::Cyclic(3), Format::Cyclic(1)]),
        |team, shape| GlobalArray::distributed(team, shape, [Format::Block, Format::Cyclic(4)]),
        |team, shape| GlobalArray::distributed(team, shape, [Format::Whole, Format::Block]),
        |team, shape| GlobalArray::on_grid(team, shape, [Format::Cyclic(2), Format::Block], [team.size(), 1]),
    ];
    for (i, make) in makes.into_iter().enumerate() {
        for (j, shape) in [[13, 13], [1, 4], [4, 1], [0, 3], [7, 5]].into_iter().enumerate() {
            for ranks in [1, 2, 6] {
                if !quick() || (i + j) % 4 == 0 {
                    same_as_serial(ranks, shape, make, &steps);
                }
            }
        }
    }
    let line: [Make<1>; 2] = [
        |team, shape| GlobalArray::distributed(team, shape, [Format::Cyclic(1)]),
        |team, shape| GlobalArray::distributed(team, shape, [Format::Cyclic(3)]),
    ];
    line.into_iter().for_each(|make| same_as_serial(4, [29], make, &steps));
}

/// From every distribution to every other distribution, and back.
#[test]
fn redistribution_keeps_every_element() {
    let all = distributed_pairs(&[Format::Block, Format::Cyclic(1), Format::Cyclic(3), Format::Whole]);
    for ranks in if quick() { &[3usize][..] } else { &[1, 2, 4, 6] } {
        Job::threads(*ranks, |job| {
            let team = job.world()?;
            let shape = [11, 7];
            for (i, from) in all.iter().enumerate() {
                for to in all.iter().skip(i % 3).step_by(3) {
                    let a = GlobalArray::<u32, 2>::distributed(&team, shape, *from)?;
                    let b = GlobalArray::<u32, 2>::distributed(&team, shape, *to)?;
                    let value = |[row, column]: [usize; 2]| (100 * row + column + 1) as u32;
                    a.for_each(|index, element| *element = value(index))?;
                    a.redistribute_into(&b)?;
                    b.for_each(|index, element| {
                        assert_eq!(*element, value(index), "{from:?} to {to:?}");
                        *element += 7;
                    })?;
                    b.redistribute_into(&a)?;
                    a.for_each(|index, element| assert_eq!(*element, value(index) + 7, "{to:?} to {from:?}"))?;
                    assert_eq!(a.reduce(Op::Max)?, Some(value([10, 6]) + 7));
                    b.free()?;
                    a.free()?;
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn three_dimensions_lists_of_indices_and_reductions() {
    for ranks in [1, 2, 4, 6] {
        Job::threads(ranks, |job| {
            let team = job.world()?;
            let formats = [Format::Cyclic(2), Format::Block, Format::Cyclic(1)];
            let array = GlobalArray::<i64, 3>::distributed(&team, [4, 5, 6], formats)?;
            assert_eq!((array.formats(), array.shape()), (formats, [4, 5, 6]));
            let value = |[i, j, k]: [usize; 3]| (100 * i + 10 * j + k) as i64;
            array.for_each(|index, element| *element = value(index))?;
            array.sync()?;
            let mut part = [0; 2 * 2 * 3];
            array.get((1..3, 2..4, 1..4), &mut part)?;
            assert_eq!(part, [121, 122, 123, 131, 132, 133, 221, 222, 223, 231, 232, 233]);
            let indices = [[3, 4, 5], [0, 0, 0], [3, 4, 5], [1, 2, 3]];
            assert_eq!(array.gather(&indices)?, [345, 0, 345, 123]);
            array.sync()?;
            if team.rank() == 0 {
                array.scatter(&indices[1..2], &[-9])?;
                array.scatter(&[], &[])?;
            }
            array.sync()?;
            array.accumulate_at(Op::Sum, &indices, &[1, 2, 3, 4])?;
            array.sync()?;
            let p = team.size() as i64;
            assert_eq!(array.gather(&indices)?, [345 + 4 * p, 2 * p - 9, 345 + 4 * p, 123 + 4 * p]);
            assert_eq!(array.reduce(Op::Min)?, Some((2 * p - 9).min(1)));
            let e = array.gather(&[[0, 5, 0]]).unwrap_err();
            assert!(e.kind() == ErrorKind::OutOfRange && e.to_string().contains("dimension 1"), "{e}");
            assert_eq!(array.scatter(&indices, &[1]).unwrap_err().kind(), ErrorKind::BadArgument);
            let other = GlobalArray::<i64, 3>::new(&team, [4, 5, 7])?;
            assert_eq!(array.redistribute_into(&other).unwrap_err().kind(), ErrorKind::BadArgument);
            array.redistribute_into(&array)?;
            let same = GlobalArray::<i64, 3>::new(&team, [4, 5, 6])?;
            // One rank cannot make the call, so all ranks get an error.
            let into = || array.redistribute_into(&same);
            let last = team.rank() + 1 == team.size();
            let refused = if last { array.with_local(|_| into()) } else { into() };
            let kind = if last { ErrorKind::WrongEpoch } else { ErrorKind::Aborted };
            assert_eq!(refused.unwrap_err().kind(), kind);
            let sum = || array.reduce(Op::Sum).map(drop);
            let refused = if last { array.with_local(|_| sum()) } else { sum() };
            assert_eq!(refused.unwrap_err().kind(), kind);
            same.free()?;
            let none = GlobalArray::<u8, 1>::new(&team, [0])?;
            assert_eq!(none.reduce(Op::Sum)?, None);
            none.free()?;
            other.free()?;
            array.free()
        })
        .unwrap();
    }
}

#[test]
fn given_grids_same_as_serial() {
    let step = |kind, rank, numbers| Step { kind, rank, numbers, seed: 5 };
    let steps =
        [step(0, 0, [0, 13, 0, 13]), step(1, 3, [2, 7, 1, 9]), step(3, 0, [1, 3, 1, 3]), step(0, 1, [3, 1, 0, 12])];
    let grids: [Make<2>; 4] = [
        |team, shape| GlobalArray::with_grid(team, shape, [6, 1]),
        |team, shape| GlobalArray::with_grid(team, shape, [1, 6]),
        |team, shape| GlobalArray::with_grid(team, shape, [2, 3]),
        |team, shape| GlobalArray::with_grid(team, shape, [3, 2]),
    ];
    for (i, make) in grids.into_iter().enumerate() {
        for (j, shape) in [[13, 13], [1, 4], [4, 1], [0, 3], [3, 0], [0, 0]].into_iter().enumerate() {
            // A quick run has every grid and every shape, but not all combinations.
            if !quick() || (i + j) % 4 == 0 {
                same_as_serial(6, shape, make, &steps);
            }
        }
    }
}

/// Every rank concurrently adds to overlapping sections, in its own order.
fn exact_totals<const D: usize>(shape: [usize; D], make: Make<D>) {
    let turns = if quick() { 8 } else { 20 };
    for ranks in 1..=if quick() { 4 } else { 6usize } {
        Job::threads(ranks, |job| {
            let team = job.world()?;
            let array = make(&team, shape)?;
            let section = |rank: usize, turn: usize| {
                let numbers = std::array::from_fn(|i| (rank + 1) * 7919 + (turn + 1) * 104_729 * (i + 1));
                Step { kind: 1, rank, numbers, seed: 0 }.section(shape)
            };
            for turn in 0..turns {
                let section = section(team.rank(), turn);
                array.accumulate(Op::Sum, section, &vec![1 + team.rank() as i64; section.len()])?;
                array.accumulate(Op::Sum, Section::whole(shape), &vec![1000; shape.iter().product()])?;
            }
            array.sync()?;
            let mut serial = Serial::new(shape);
            for (rank, turn) in (0..team.size()).flat_map(|rank| (0..turns).map(move |turn| (rank, turn))) {
                indices(section(rank, turn)).into_iter().for_each(|index| *serial.at(index) += 1 + rank as i64);
                serial.elements.iter_mut().for_each(|element| *element += 1000);
            }
            let mut total = vec![0; serial.elements.len()];
            array.get(Section::whole(shape), &mut total)?;
            assert_eq!(total, serial.elements, "{ranks} ranks");
            array.free()
        })
        .unwrap();
    }
}

#[test]
fn accumulate_from_all_ranks_exact_totals() {
    exact_totals([23], GlobalArray::<i64, 1>::new);
    exact_totals([9, 11], GlobalArray::<i64, 2>::new);
}

#[test]
fn shape_with_fewer_elements_than_ranks() {
    Job::threads(6, |job| {
        let team = job.world()?;
        let few = GlobalArray::<u32, 1>::new(&team, [4])?;
        assert_eq!((few.shape(), few.owned(3)?, few.owned(5)?), ([4], (3..4).into(), (4..4).into()));
        assert_eq!(few.locate([3])?, (3, 0));
        assert_eq!(few.with_local(|view| Ok(view.rows().count()))?, usize::from(team.rank() < 4));
        few.put(0..4, &[1, 2, 3, 4])?;
        few.sync()?;
        assert_eq!(few.get_element([3])?, 4);
        let none = GlobalArray::<u32, 2>::new(&team, [0, 7])?;
        none.put((0..0, 2..5), &[])?;
        none.accumulate(Op::Sum, (0..0, 0..7), &[])?;
        assert_eq!(none.with_local(|view| Ok((view.elements().len(), view.rows().count())))?, (0, 0));
        assert_eq!(none.get_element([0, 0]).unwrap_err().kind(), ErrorKind::OutOfRange);
        none.free()?;
        few.free()
    })
    .unwrap();
}

#[test]
fn section_operations_per_owner() {
    // If no memory is mapped each row of a part is a message, except in a rank's own part, which is a copy.
    let unmapped = std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs" || d == "route");
    let parts = |others: u64, rows: u64| 1 + others * if unmapped { rows } else { 1 };
    Job::threads(4, |job| {
        let team = job.world()?;
        let array = GlobalArray::<u16, 2>::with_grid(&team, [8, 10], [2, 2])?;
        let rows = GlobalArray::<u16, 2>::with_grid(&team, [8, 10], [4, 1])?;
        let operations = |kind, call: &dyn Fn() -> Result<()>| -> Result<u64> {
            let before = job.stats();
            call()?;
            Ok((job.stats() - before).count(kind))
        };
        if team.rank() == 1 {
            // Each owner gets one operation: for full rows of two blocks side by side,
            assert_eq!(operations(Kind::Write, &|| array.put((1..3, 0..10), &[1; 20]))?, 2);
            // and also if one block is below the other.
            assert_eq!(operations(Kind::Write, &|| array.put((2..6, 4..6), &[1; 8]))?, parts(3, 2));
            // The whole block of one owner, and full rows of an array in bands.
            assert_eq!(operations(Kind::Read, &|| array.get((0..4, 5..10), &mut [0; 20]))?, 1);
            assert_eq!(operations(Kind::Read, &|| rows.get((1..7, 0..10), &mut [0; 60]))?, 4);
            assert_eq!(operations(Kind::Accumulate, &|| rows.accumulate(Op::Sum, (1..7, 0..10), &[1; 60]))?, 4);
            // Each index takes one operation, even if two indices have the same owner.
            let indices = [[1, 0], [1, 1], [6, 2]];
            assert_eq!(operations(Kind::Accumulate, &|| rows.accumulate_at(Op::Sum, &indices, &[1; 3]))?, 3);
            // This section is a column.
            assert_eq!(operations(Kind::Write, &|| rows.put((0..8, 3..4), &[1; 8]))?, parts(3, 2));
            // This section is empty.
            assert_eq!(operations(Kind::Write, &|| rows.put((3..3, 0..10), &[]))?, 0);
        }
        rows.free()?;
        array.free()
    })
    .unwrap();
}

#[test]
fn section_outside_names_the_dimension() {
    Job::threads(2, |job| {
        let array = GlobalArray::<i64, 2>::new(&job.world()?, [4, 6])?;
        let fails = |result: Result<()>, kind, text: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(text), "{error}");
        };
        fails(array.put((0..5, 0..6), &[0; 30]), ErrorKind::OutOfRange, "0..5 is not inside dimension 0, which has 4");
        fails(
            array.get((0..1, 5..7), &mut [0; 2]),
            ErrorKind::OutOfRange,
            "5..7 is not inside dimension 1, which has 6",
        );
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = array.accumulate(Op::Sum, (0..4, 3..2), &[]);
        fails(backwards, ErrorKind::OutOfRange, "3..2 is not inside dimension 1");
        fails(array.put((0..usize::MAX, 0..usize::MAX), &[]), ErrorKind::OutOfRange, "dimension 0");
        fails(array.put((0..2, 0..3), &[0; 5]), ErrorKind::BadArgument, "has 5 elements, but section");
        fails(array.get((0..2, 0..3), &mut [0; 7]), ErrorKind::BadArgument, "has 7 elements, but section");
        fails(array.get_element([1, 6]).map(drop), ErrorKind::OutOfRange, "index 6 is outside dimension 1");
        fails(
            array.fetch_and_op(Op::Sum, 1, [4, 0]).map(drop),
            ErrorKind::OutOfRange,
            "index 4 is outside dimension 0",
        );
        fails(array.owned(2).map(drop), ErrorKind::NoSuchRank, "2");
        array.free()?;
        let floats = GlobalArray::<f64, 1>::new(&job.world()?, [4])?;
        fails(floats.accumulate(Op::Bxor, 0..4, &[1.0; 4]), ErrorKind::Unsupported, "bxor");
        fails(floats.fetch_and_op(Op::Land, 1.0, [0]).map(drop), ErrorKind::Unsupported, "land");
        floats.free()
    })
    .unwrap();
}

#[test]
fn new_with_shapes_that_differ() {
    Job::threads(3, |job| {
        let team = job.world()?;
        let error = GlobalArray::<i64, 1>::new(&team, [5 + team.rank() / 2]).unwrap_err();
        assert_eq!((error.kind(), error.blamed()), (ErrorKind::Mismatch, Some(if team.rank() == 2 { 0 } else { 2 })));
        let error = GlobalArray::<i64, 2>::with_grid(&team, [5, 5], [2, 2]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        GlobalArray::<i64, 2>::new(&team, [5, 5])?.free()
    })
    .unwrap();
}

#[test]
fn with_local_lends_the_block_alone() {
    Job::threads(2, |job| {
        let team = job.world()?;
        let array = GlobalArray::<i64, 1>::new(&team, [8])?;
        let error = array.with_local(|_| array.get_element([0])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongEpoch);
        let error = array.with_local(|_| array.put(0..8, &[1; 8])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongEpoch);
        let error = array.with_local(|_| array.with_local(|_| Ok::<(), Error>(()))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongEpoch);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            array.with_local(|_| -> Result<()> { std::panic::panic_any("stop") })
        }));
        assert!(panicked.is_err());
        // The lock was released each time.
        array.fetch_and_op(Op::Sum, 1, [3])?;
        array.fetch_and_op(Op::Sum, 1, [7])?;
        array.sync()?;
        assert_eq!(array.with_local(|view| Ok(view.elements().to_vec()))?, [0, 0, 0, 2]);
        array.free()
    })
    .unwrap();
}

#[test]
fn arrays_of_equal_length_are_distinct() {
    Job::threads(3, |job| {
        let team = job.world()?;
        let arrays = (0..8).map(|_| GlobalArray::<i64, 1>::new(&team, [6])).collect::<Result<Vec<_>>>()?;
        // Operations see values that were stored locally, also in this rank's own block.
        for (number, array) in arrays.iter().enumerate() {
            array.with_local(|mut view| {
                view.elements_mut().fill(number as i64 * 10 + team.rank() as i64);
                Ok(())
            })?;
        }
        team.barrier()?;
        for (number, array) in arrays.iter().enumerate() {
            let mut read = [-1; 6];
            array.get(0..6, &mut read)?;
            assert_eq!(read, [0, 0, 1, 1, 2, 2].map(|rank| number as i64 * 10 + rank));
        }
        arrays.into_iter().try_for_each(GlobalArray::free)
    })
    .unwrap();
}
