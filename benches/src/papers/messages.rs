//! Checked calls, two-sided messages on active messages, and several devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use farside_core::error::{Error, ErrorKind, Result};
use farside_core::plot::{Axis, Curve, Drawn, size};

use super::Column::{Measured, Paper, Peer};
use super::{Head, Here, Section, best_peer, curves, factor, find, peers_folder, us};
use crate::launch;
use crate::plan::Plan;
use crate::record::{Library, Op, Record, Suite, Window};
use crate::two_sided::{self, WAYS, kernels};

pub(super) const VERIFICATION: Head = Head {
    title: "Verification of collective calls",
    source: "J. L. Träff, J. Worringen: Verifying Collective MPI Calls. EuroPVM/MPI 2004.",
    claim: "A library between program and MPI checks what MPI leaves unchecked, such as equal roots and matching \
            sizes. It costs 2 to 4 further collective operations with little data (section 4), and nothing when \
            it is off.",
};

/// The C program of the peers, which runs on Farside's MPI library: that of `ci/peers`, or built now.
fn c_program(here: &Here, built: &Path) -> Result<PathBuf> {
    let program = peers_folder().join("peers-abi");
    if program.is_file() {
        return Ok(program);
    }
    let failed = |cause: String| {
        let remedy =
            "build the libraries (cargo build --release -p farside-mpi -p farside-verify), and install a C compiler";
        Error::new(ErrorKind::Launcher, "build the measuring C program").cause(cause).remedy(remedy)
    };
    let sources =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")).map_err(|e| failed(e.to_string()))?;
    let sources =
        sources.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "c"));
    let program = here.folder.join("papers/peers-abi");
    let mut command = Command::new("cc");
    command.args(["-O2", "-std=c11", "-D_GNU_SOURCE", "-I"]).arg(built.join("include")).args(sources);
    let output = command.arg("-o").arg(&program).arg("-L").arg(built).args(["-lmpi_abi", "-lm"]).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(program)
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

pub(super) fn verification(here: &Here, section: &mut Section) -> Result<()> {
    let failed = |error| Error::system("find Farside's MPI library", error);
    let beside = env::current_exe().map_err(failed)?.parent().map_or_else(PathBuf::new, Path::to_owned);
    let built = env::var_os("FARSIDE_MPI").map_or(beside, PathBuf::from).canonicalize().map_err(failed)?;
    // The folder has the library by the name that programs load.
    let folder = here.folder.join("papers");
    fs::create_dir_all(&folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let _ = fs::remove_file(folder.join("libmpi_abi.so.1"));
    std::os::unix::fs::symlink(built.join("libmpi_abi.so"), folder.join("libmpi_abi.so.1")).map_err(failed)?;
    let (program, checks) = (c_program(here, &built)?, built.join("libfarside_verify.so"));
    if !checks.is_file() {
        let error = Error::new(ErrorKind::Launcher, "find the library that checks calls");
        return Err(error.cause(format!("no {}", checks.display())).remedy("cargo build --release -p farside-verify"));
    }
    let operations = [Op::Barrier, Op::Broadcast, Op::Gather, Op::Allreduce, Op::Alltoall];
    let operations = operations[..here.or(2, operations.len())].to_vec();
    let plan =
        Plan { suites: vec![Suite::Coll], operations: operations.clone(), sizes: vec![8], ranks: 2, ..Plan::new(true) };
    let plan = Plan { counts: Vec::new(), windows: Vec::new(), ..plan };
    let mut of_level = |level: Option<u32>| -> Result<Vec<Record>> {
        let mut command = launch::launcher(2, here.limit)?;
        command.arg("env").arg(format!("LD_LIBRARY_PATH={}", folder.display()));
        if let Some(level) = level {
            command.arg(format!("LD_PRELOAD={}", checks.display())).arg(format!("FARSIDE_VERIFY={level}"));
        }
        command.arg(&program).args(plan.arguments());
        let (records, notes) = launch::run(command, Library::Farside, 2, here.limit);
        notes.iter().for_each(|note| section.note(note.to_string()));
        Ok(records)
    };
    let (off, on) = (of_level(None)?, of_level(Some(1))?);
    let time = |records: &[Record], op| find(records, |record| record.key.op == op);
    let barrier = time(&off, Op::Barrier);
    let mut most = 0.0f64;
    for op in operations {
        let (off, on) = (time(&off, op), time(&on, op));
        let more = on.zip(off).zip(barrier).map(|((on, off), barrier)| (on - off) / barrier);
        most = most.max(more.unwrap_or(0.0));
        let measured = format!("{} on, {} off: {:.1} barriers more", us(on), us(off), more.unwrap_or(f64::NAN));
        let what = format!("{} of 8 B, 2 ranks", op.label());
        section.row(what, [(Paper, "2 to 4 collectives more".into()), (Measured, measured)]);
    }
    section.find(
        &format!(
            "Here a checked call takes at most {most:.1} barriers more (level 1), in which types and their \
         signatures are compared too, and nothing when it is off, because the library is then not loaded."
        ),
        (0.0..=8.0).contains(&most),
    );
    section.note("Not simulated: MPI programs do not run on simulated networks yet.");
    Ok(())
}

pub(super) const TWO_SIDED: Head = Head {
    title: "Two-sided messages on one-sided active messages (MPI-LAPI)",
    source: "M. Banikazemi, R. K. Govindaraju, R. Blackmore, D. K. Panda: Implementing Efficient MPI on LAPI for \
             IBM RS/6000 SP Systems. IPPS/SPDP 1999.",
    claim: "A header handler matches a message and says where its data go, so that nothing is copied. What costs \
            is running the completion handler on another thread (base); counters, and then completions that run \
            in the dispatcher (enhanced), come close to the bare one-sided layer (figure 10).",
};

pub(super) fn two_sided(here: &Here, section: &mut Section) -> Result<()> {
    let sizes: Vec<u64> = here.or(vec![8], vec![8, 64, 1024, 8192, 65536, 1 << 20]);
    let peers = if here.peers {
        let suites = vec![Suite::TwoSided];
        here.measure(
            section,
            vec![Plan { quick: true, suites, sizes: sizes.clone(), ranks: 2, ..Plan::default() }],
            &[],
        )?
    } else {
        Vec::new()
    };
    for (wait, how) in [("spin", "polling"), ("park", "event-driven")] {
        let times = two_sided::measure(wait, &sizes)?;
        for (at, (name, what)) in WAYS.iter().enumerate() {
            let is_it = |record: &Record| record.key.op == Op::Latency && record.key.bytes == sizes[0];
            let peer = if *name == "two-sided" && wait == "spin" { best_peer(&peers, is_it) } else { String::new() };
            let paper = match *name {
                "base" => "slowest",
                "counters" | "enhanced" => "close to the bare layer",
                _ => "",
            };
            let what = format!("{} one way, {how}, {name}: {what}", size(sizes[0]));
            section.row(what, [(Paper, paper.into()), (Measured, us(Some(times[at][0][0]))), (Peer, peer)]);
        }
        let curve = |(at, (name, _)): (usize, &(&str, &str))| Curve {
            name: (*name).to_owned(),
            color: at,
            drawn: Drawn::Line,
            points: sizes.iter().zip(&times[at]).map(|(bytes, [one_way, _])| (*bytes as f64, 1e3 * one_way)).collect(),
        };
        let caption = "two ranks that are threads, over shared memory; the fastest of many short blocks.";
        section.plot(
            Measured,
            format!("a message one way, {how}"),
            Axis::Bytes,
            WAYS.iter().enumerate().map(curve).collect(),
            caption,
        );
        if wait == "spin" {
            let [put, base, _, enhanced, _] = [0, 1, 2, 3, 4].map(|way| times[way][0][0]);
            section.find(
                &format!(
                    "Here, of {} while polling, base takes {} the time of enhanced, and enhanced {} that of a put \
                 and a flush.",
                    size(sizes[0]),
                    factor(Some(base), Some(enhanced)),
                    factor(Some(enhanced), Some(put))
                ),
                enhanced < base,
            );
        }
    }
    let class = here.or(kernels::S, kernels::W);
    for ranks in here.or(vec![2], vec![2, 4]) {
        for (name, [base, counters, enhanced]) in kernels::measure(&class, ranks)? {
            let [base, counters, enhanced] = [base, counters, enhanced].map(|time| us(Some(time)));
            section.row(
                format!(
                    "messages of an iteration of {name}, class {}, {ranks} ranks: base / counters / enhanced",
                    class.name
                ),
                [(Measured, format!("{base} / {counters} / {enhanced}"))],
            );
        }
    }
    section.note(
        "Not simulated: the difference is processor time, which the simulator does not count. The improvements \
         in percent are unreadable in the copy of the paper that was used. Of the NAS kernels (NPB 3.4) the messages \
         alone are measured; the programs themselves need their sources: built by this library's mpicc and mpifort, run \
         mpiexec -n 4 bin/cg.A.x.",
    );
    Ok(())
}

pub(super) const DEVICES: Head = Head {
    title: "Several devices under one interface",
    source: "S. Schindler, W. Rehm: Multiple devices under MPICH. Chemnitz, 1999 or later.",
    claim: "A multidevice, which chooses a device for each peer, costs hardly more than the bare device: in \
            table I 50.8 beside 51.8 (given as ns, presumably µs) with one byte, 1 to 2 % up to 256 bytes.",
};

/// Bytes, and the paper's times with the multidevice and with the bare device.
const TABLE: [(u64, &str); 6] = [
    (8, "51.8 / 50.8 (1 B)"),
    (64, "52.2 / 51.5"),
    (256, "52.7 / 51.8"),
    (1024, "54.6 / 55.7"),
    (32768, "208 / 199"),
    (524_288, "6184 / 6159"),
];

pub(super) fn devices(here: &Here, section: &mut Section) -> Result<()> {
    let quiet = Here { peers: false, folder: here.folder.clone(), ..*here };
    let sizes: Vec<u64> = TABLE.iter().map(|(bytes, _)| *bytes).take(here.or(2, TABLE.len())).collect();
    let plans = || {
        let puts = Plan {
            suites: vec![Suite::Op],
            windows: vec![Window::Allocated],
            sizes: vec![8],
            ranks: 2,
            ..Plan::new(true)
        };
        vec![Plan::of_collective(true, Op::Pingpong, 2, &sizes), puts]
    };
    let bare: &[_] = &[("FARSIDE_DEVICE", "shm")];
    let several: &[_] = &[("FARSIDE_DEVICE", "route"), ("FARSIDE_DEVICES", "shm,tcp")];
    // In turns, so that other load of the machine affects both.
    let mut of = [Vec::new(), Vec::new()];
    for _ in 0..here.or(1, 5) {
        for (records, environment) in of.iter_mut().zip([bare, several]) {
            records.extend(quiet.measure(section, plans(), environment)?);
        }
    }
    let [bare, several] = of.map(|records| crate::record::best(&records));
    let both =
        |is_it: &dyn Fn(&Record) -> bool, share: f64| [&several, &bare].map(|of| find(of, is_it).map(|us| share * us));
    let text = |[several, bare]: [Option<f64>; 2]| {
        let more = several.zip(bare).map_or(f64::NAN, |(several, bare)| 100.0 * (several / bare - 1.0));
        format!("{} / {} ({more:+.1} %)", us(several), us(bare))
    };
    // What the multidevice costs more, as a part and in us; the largest part and its size.
    let (mut most, mut holds) = ((f64::MIN, 0), true);
    for (bytes, paper) in TABLE.iter().filter(|(bytes, _)| sizes.contains(bytes)) {
        let times = both(&|r| r.key.op == Op::Pingpong && r.key.bytes == *bytes, 0.5);
        let [more, part] =
            times[0].zip(times[1]).map_or([f64::NAN; 2], |(several, bare)| [several - bare, several / bare - 1.0]);
        holds &= part < 0.05 || more < 0.005;
        most = if part > most.0 { (part, *bytes) } else { most };
        section.row(
            format!("message one way of {}: multidevice / bare", size(*bytes)),
            [(Paper, (*paper).into()), (Measured, text(times))],
        );
    }
    let put = both(&|record| record.key.op == Op::Put, 1.0);
    section.row("put and flush of 8 B: multidevice / bare", [(Measured, text(put))]);
    let lines = [("multidevice", &several), ("bare device", &bare)].into_iter().enumerate().flat_map(
        |(color, (name, records))| {
            let is_trip = |record: &Record| (record.key.op == Op::Pingpong).then(|| name.to_owned());
            curves(records, |record| record.key.bytes as f64, is_trip)
                .into_iter()
                .map(move |curve| Curve { color, ..curve })
        },
    );
    let caption = "two ranks of one node; the multidevice has shared memory and TCP, and uses shared memory \
                   between them; the best of runs in turns.";
    section.plot(Measured, "a message there and back", Axis::Bytes, lines.collect(), caption);
    section.find(&format!("Here a message costs at most {:.1} % more, with {}.", 100.0 * most.0, size(most.1)), holds);
    section.note(
        "Not simulated: the cost is processor time. Indirect communication is tested between namespaces \
                  (core/docs/routes.md).",
    );
    Ok(())
}
