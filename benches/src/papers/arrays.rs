//! Distributed arrays between tasks, and the pipelined Fourier transform.

use std::cell::RefCell;
use std::time::Duration;

use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::plot::{Axis, Curve, Drawn, size, time};

use super::Column::{Measured, Paper, Simulated};
use super::simulated::{parameters, simulation, sp};
use super::{Head, Here, Section, dashed, less, us};
use crate::launch;
use crate::pgas::{Meter, arrays as links, fourier};
use crate::plan::sorted;

pub(super) const ARRAYS: Head = Head {
    title: "Data-parallel tasks that exchange distributed arrays",
    source: "I. T. Foster, D. R. Kohr, R. Krishnaiyer, A. Choudhary: MPI as a Coordination Layer for \
             Communicating HPF Tasks. 1996.",
    claim: "One send moves a whole array from (BLOCK, *) in one task to (*, BLOCK) in another. Persistent \
            requests, which keep the schedule of the transfer, take 26 to 32 % less time for arrays of 4 KiB and \
            the same for 1 MiB (figure 5); a 2-D Fourier transform of two tasks in a pipeline is up to 30 % \
            faster than a data-parallel one of 128 × 128 elements (figure 6).",
};

/// Operation, number of ranks, bytes of an array or size of a picture, and microseconds.
type Figure = (String, u32, usize, f64);

/// Nanoseconds of a floating-point operation on a processor of the paper's machine (assumed: 50 Mflop/s).
const FLOP_NS: f64 = 20.0;

/// A figure of [`crate::pgas`], whose pictures are thousands a second.
fn microseconds(operation: &str, ranks: u32, number: usize, figure: f64) -> Figure {
    let us = if operation.starts_with("fourier") { 1e3 / figure } else { figure };
    (operation.to_owned(), ranks, number, us)
}

fn measured(here: &Here, ranks: u32, pictures: &[usize]) -> Result<Vec<Figure>> {
    let mut command = launch::launcher(ranks, here.limit)?;
    command.arg(launch::own_program()).args(["pgas", "--parts", "arrays,fourier", "--block-ms", here.or("1", "20")]);
    let pictures: Vec<String> = pictures.iter().map(ToString::to_string).collect();
    let output = command.arg("--pictures").arg(pictures.join(",")).output();
    let output = output.map_err(|error| Error::system("start a measuring program", error))?;
    if !output.status.success() {
        let error = Error::new(ErrorKind::Launcher, "measure arrays");
        return Err(error.cause(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figure = |line: &str| {
        let mut words = line.split(' ');
        Some(microseconds(words.next()?, ranks, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(figure).collect())
}

fn simulated(here: &Here, ranks: u32, pictures: &[usize]) -> Result<Vec<Figure>> {
    let figures = RefCell::new(Vec::new());
    let line = |operation: &str, number: usize, figure: f64| {
        figures.borrow_mut().push(microseconds(operation, ranks, number, figure));
    };
    let of_rank = |job: &Job| {
        let team = job.world()?;
        // A block is some transfers, or some pictures of a pipeline, in virtual time.
        let block = Duration::from_millis(here.or(2, 200));
        let meter = Meter { team: &team, block, line: &line, flop_ns: FLOP_NS };
        links::measure(&meter, &links::SHAPES)?;
        fourier::measure(&meter, pictures)
    };
    simulation(ranks, &sp(), &[])?.run(of_rank)?;
    Ok(figures.into_inner())
}

pub(super) fn arrays(here: &Here, section: &mut Section) -> Result<()> {
    let pictures: Vec<usize> = here.or(vec![16], vec![16, 64, 128]);
    let (few, many) = (here.or(vec![2], vec![2, 4]), here.or(vec![4], vec![2, 4, 8, 16]));
    let own = few.iter().map(|ranks| measured(here, *ranks, &pictures)).collect::<Result<Vec<_>>>()?.concat();
    let sim = many.iter().map(|ranks| simulated(here, *ranks, &pictures)).collect::<Result<Vec<_>>>()?.concat();
    let of = |figures: &[Figure], operation: &str, ranks: u32, number: usize| {
        figures.iter().find(|(o, r, n, _)| (o.as_str(), *r, *n) == (operation, ranks, number)).map(|figure| figure.3)
    };
    let [short, long] = links::SHAPES.map(|[rows, columns]| 8 * rows * columns);
    let (links, tasks) = (["array_link", "array_new_link"], ["fourier_two_tasks", "fourier_one_task"]);
    let numbers = [short, long].map(|bytes| (links, bytes)).into_iter().chain(pictures.iter().map(|n| (tasks, *n)));
    let (mut of_links, mut of_tasks) = (Vec::new(), 0.0f64);
    for ((names, number), ranks) in
        numbers.flat_map(|case| sorted([&few[..], &many].concat()).into_iter().map(move |p| (case, p)))
    {
        let gain = |figures: &[Figure]| {
            let [after, before] = names.map(|name| of(figures, name, ranks, number));
            after.map_or_else(String::new, |_| format!("{} ({} for {})", less(after, before), us(after), us(before)))
        };
        let [after, before] = names.map(|name| of(&sim, name, ranks, number));
        let saved = after.zip(before).map(|(after, before)| 1.0 - after / before);
        let p = f64::from(ranks / 2);
        let (what, paper) = match number {
            // The paper's fit.
            _ if number == short && names == links => {
                of_links.extend(saved);
                let [after, before] = [60.0 * p + 827.0, 85.3 * p + 1290.0].map(|us| time(1e3 * us));
                (
                    format!("4 KiB, {p} + {p} ranks: a persistent transfer takes less"),
                    format!("26 to 32 % ({after} for {before})"),
                )
            }
            _ if names == links => (format!("1 MiB, {p} + {p} ranks"), "negligible".to_owned()),
            n => {
                of_tasks = of_tasks.max(saved.unwrap_or(0.0));
                let paper = if n == 128 { "up to 30 % faster" } else { "" };
                (format!("FFT of {n} × {n}, {ranks} ranks: two tasks take less time than one"), paper.to_owned())
            }
        };
        section.row(what, [(Paper, paper), (Measured, gain(&own)), (Simulated, gain(&sim))]);
    }
    let network = format!("the network of the paper's IBM SP: {}", parameters(&sp()));
    let network = format!("{network}; a floating-point operation takes {FLOP_NS} ns (assumed).");
    let here_about = "over shared memory; more ranks than cores if there are fewer.".to_owned();
    for (from, figures, about) in [(Measured, &own, here_about), (Simulated, &sim, network)] {
        let curves = |of_arrays: bool| -> Vec<Curve> {
            let mut curves: Vec<Curve> = Vec::new();
            for (name, ranks, number, us) in figures.iter().filter(|figure| figure.0.starts_with("array") == of_arrays)
            {
                let size = if of_arrays { size(*number as u64) } else { format!("{number} × {number}") };
                let (name, point) = (
                    format!("{size}, {}", name.split_once('_').map_or("", |(_, name)| name)),
                    (f64::from(*ranks), 1e3 * us),
                );
                match curves.iter_mut().find(|curve| curve.name == name.replace('_', " ")) {
                    Some(curve) => curve.points.push(point),
                    None => curves.push(Curve {
                        drawn: Drawn::Line,
                        ..dashed(name.replace('_', " "), curves.len(), vec![point])
                    }),
                }
            }
            curves
        };
        section.plot(from, "an array one way", Axis::Powers("ranks of both tasks"), curves(true), &about);
        section.plot(from, "time of a picture's 2-D FFT", Axis::Powers("ranks"), curves(false), &about);
    }
    let mean = 100.0 * of_links.iter().sum::<f64>() / of_links.len().max(1) as f64;
    let finding = format!(
        "Simulated on the paper's network, a persistent transfer of 4 KiB takes {mean:.0} % less time on \
         average, and two tasks take up to {:.0} % less time for a picture than one. Arrays go without packing \
         here.",
        100.0 * of_tasks
    );
    section.find(&finding, mean > 10.0 && of_tasks > 0.0);
    section.note(
        "The one task redistributes by a collective call that is complete at all ranks and computes its layouts each \
         time; it is slower than the transpose of the paper's compiler as ranks grow, so the gain of two tasks is no \
         measure of the paper's 30 %.",
    );
    section.note("Peers: benches/pgas/run measures MPI_Alltoallw of MPICH and Open MPI beside these transfers.");
    Ok(())
}
