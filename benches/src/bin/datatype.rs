//! `datatype`: what packing and unpacking of layouts costs, beside loops by hand, memcpy and, with `--peers`, MPI libraries.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_benches::best::best;
use farside_benches::cores::{allowed, bind_to_nth};
use farside_benches::pack;
use farside_benches::peers::{Note, Peers};
use farside_benches::plan::Effort;
use farside_benches::progress::Progress;
use farside_benches::record::{Library, Record, Shape};
use farside_benches::results::Results;
use farside_benches::shapes::{self, Case};
use farside_benches::targets;
use farside_core::error::{Error, Result};

/// Measures pack and unpack of vectors, faces, columns, indexed types, structures and nested vectors.
#[derive(Parser)]
struct Arguments {
    /// Without messages beyond the second cache, and shorter.
    #[arg(long)]
    quick: bool,
    /// Of vector_4, vector_8, .., face_x, .., indexed_8, struct, nested.
    #[arg(long, value_delimiter = ',', value_parser = parse_shape)]
    shapes: Vec<Shape>,
    /// Measure so many times; of each figure the best counts, for every library.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Also measure MPICH, Intel MPI and Open MPI, which ci/peers has put into FARSIDE_PEERS or target/peers.
    #[arg(long)]
    peers: bool,
    /// Seconds that one library may take for one shape.
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON.
    #[arg(long, value_name = "FILE", default_value = "out/datatype.json")]
    json: PathBuf,
    /// The report.
    #[arg(long, value_name = "FILE", default_value = "out/datatype.html")]
    html: PathBuf,
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    shapes::all().into_iter().find(|shape| shape.name() == text).ok_or_else(|| "not a shape".to_owned())
}

fn drive(arguments: &Arguments) -> Result<()> {
    let effort = if arguments.quick { Effort::Quick } else { Effort::Full };
    let limit = Duration::from_secs(arguments.time_limit);
    let peers = if arguments.peers { Some(Peers::locate(None)?.limit(limit)) } else { None };
    let libraries = if peers.is_some() { Library::PEERS } else { &[] };
    let shapes = if arguments.shapes.is_empty() { shapes::all() } else { arguments.shapes.clone() };
    for file in [&arguments.json, &arguments.html] {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| {
                Error::system("make a folder for the results", error).cause(folder.display().to_string())
            })?;
        }
    }
    let mut results = Results { title: "Farside: packing and unpacking", ..Results::here() };
    let of_shape = |shape: &Shape| shapes::sizes(*shape, effort).len() * (3 * 3 + 2 * libraries.len());
    let total = arguments.rounds as usize * shapes.iter().map(of_shape).sum::<usize>();
    let mut progress = Progress::new(total as u64);
    for _ in 0..arguments.rounds {
        // Shape by shape, so that what is compared is measured close together.
        for &shape in &shapes {
            let sizes = shapes::sizes(shape, effort);
            for &bytes in &sizes {
                // On a thread of its own, which alone is bound to a core: the peers choose theirs.
                let measure = || {
                    let last = allowed()?.len() - 1;
                    bind_to_nth(last)?;
                    pack::measure(&Case::new(shape, bytes)?, effort)
                };
                let records = std::thread::scope(|scope| scope.spawn(measure).join());
                let records = records.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                records.iter().for_each(|record| progress.step(record.library, &record.key()));
                results.records.extend(records);
            }
            for &library in libraries {
                let Some(peers) = &peers else { continue };
                let messages = sizes.iter().map(|bytes| format!("{shape}:{bytes}")).collect::<Vec<_>>().join(",");
                let mut words = vec!["--suites".to_owned(), "pack".to_owned(), "--messages".to_owned(), messages];
                words.extend(arguments.quick.then(|| "--quick".to_owned()));
                let (records, notes): (Vec<Record>, Vec<Note>) =
                    peers.run(library, 1, &words, |record| progress.step(library, &record.key()));
                progress.skip((2 * sizes.len()).saturating_sub(records.len()) as u64);
                notes.iter().for_each(|note| progress.say(&note.to_string()));
                results.records.extend(records);
                results.notes.extend(notes);
            }
        }
    }
    progress.finish();
    results.records = best(&results.records);
    println!("{}\n{}", results.machine.line(), results.table());
    println!("\n{}", targets::display(&targets::pack_targets(&results.records)));
    for note in &results.notes {
        println!("note: {note}");
    }
    results.write_json(&arguments.json)?;
    results.write_html(&arguments.html)?;
    println!("written: {} and {}", arguments.json.display(), arguments.html.display());
    Ok(())
}

fn main() -> ExitCode {
    match drive(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("datatype: {error}");
            ExitCode::FAILURE
        }
    }
}
