//! `datatype`: what packing and unpacking of layouts costs, and puts from layout to layout, beside loops by hand, memcpy
//! and, with `--peers`, MPI libraries.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_benches::best::best;
use farside_benches::cores::{allowed, bind_to_nth};
use farside_benches::launch::Launcher;
use farside_benches::measure::{self, Budget, Method};
use farside_benches::pack;
use farside_benches::peers::{Note, Peers};
use farside_benches::plan::{Effort, Plan};
use farside_benches::progress::Progress;
use farside_benches::record::{Library, Record, Shape, Suite, Window};
use farside_benches::results::Results;
use farside_benches::shapes::{self, Case, blocks, is_exchanged};
use farside_benches::targets;
use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};

/// The setting that leaves memory of the user unmapped.
const UNMAPPED: (&str, &str) = ("FARSIDE_SHM_USER_MEMORY", "vm");

/// Measures pack and unpack of vectors, faces, columns, indexed types, structures and nested vectors, and puts of columns,
/// of some blocks and of block diagonals to another rank.
#[derive(Parser)]
struct Arguments {
    /// Fewer messages, and shorter: to pack, none beyond the second cache.
    #[arg(long)]
    quick: bool,
    /// Of pack,put.
    #[arg(long, value_delimiter = ',', value_parser = parse_suite)]
    suites: Vec<Suite>,
    /// To pack: of vector_4, vector_8, .., face_x, .., indexed_8, struct, nested; to put: of columns_64, columns_128, none
    /// (without gaps), blocks_4, .., diagonals.
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
    /// Be one rank: what `farside run` starts.
    #[arg(long, hide = true)]
    worker: bool,
    /// Kinds of window of a rank.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = parse_window)]
    windows: Vec<Window>,
    /// Messages of a rank.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = parse_message)]
    messages: Vec<(Shape, u64)>,
}

fn parse_suite(text: &str) -> Result<Suite, String> {
    [Suite::Pack, Suite::Put].into_iter().find(|suite| suite.name() == text).ok_or_else(|| "not a suite".to_owned())
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    Shape::ALL.iter().copied().find(|shape| shape.name() == text).ok_or_else(|| "not a shape".to_owned())
}

fn parse_window(text: &str) -> Result<Window, String> {
    Window::ALL.iter().copied().find(|window| window.name() == text).ok_or_else(|| "not a kind of window".to_owned())
}

fn parse_message(text: &str) -> Result<(Shape, u64), String> {
    let (shape, bytes) = text.split_once(':').ok_or("not SHAPE:BYTES")?;
    Ok((parse_shape(shape)?, bytes.parse().map_err(|_| "not a number of bytes")?))
}

impl Arguments {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    fn wants(&self, suite: Suite) -> bool {
        self.suites.is_empty() || self.suites.contains(&suite)
    }

    fn wants_shape(&self, shape: Shape) -> bool {
        self.shapes.is_empty() || self.shapes.contains(&shape)
    }

    /// What is packed: shapes and their sizes.
    fn packed(&self) -> Vec<(Shape, Vec<u64>)> {
        let all = shapes::all().into_iter().filter(|shape| self.wants(Suite::Pack) && self.wants_shape(*shape));
        all.map(|shape| (shape, shapes::sizes(shape, self.effort()))).collect()
    }

    /// What is put: in parts, of which each is measured close together.
    fn put(&self) -> Vec<Plan> {
        let puts = shapes::puts(self.effort()).into_iter();
        let wanted: Vec<_> = puts.filter(|(shape, _)| self.wants(Suite::Put) && self.wants_shape(*shape)).collect();
        let kind = |shape: Shape| if blocks(shape).is_some() { Shape::Blocks4 } else { shape };
        let parts = wanted.chunk_by(|a, b| kind(a.0) == kind(b.0)).map(|part| (2, part.to_vec()));
        let exchanged = wanted.iter().copied().filter(|(shape, bytes)| is_exchanged(*shape, *bytes, 4)).collect();
        let all = parts.chain([(4, exchanged)]).filter(|(_, part)| !part.is_empty());
        let mapped = [Window::Allocated, Window::User];
        all.map(|(ranks, part)| Plan::of_layouts(self.effort(), ranks, &mapped, &part)).collect()
    }
}

/// Where everything that is measured goes.
struct Run<'a> {
    arguments: &'a Arguments,
    peers: Option<Peers>,
    results: Results,
    progress: Progress,
}

impl Run<'_> {
    fn libraries(&self) -> &'static [Library] {
        if self.peers.is_some() { Library::PEERS } else { &[] }
    }

    /// Takes in what a run of `planned` measurements has given.
    fn add(&mut self, planned: usize, (records, notes): (Vec<Record>, Vec<Note>)) {
        let own = records.iter().filter(|record| !matches!(record.library, Library::Loop | Library::Limit)).count();
        self.progress.skip(planned.saturating_sub(own) as u64);
        notes.iter().for_each(|note| self.progress.say(&note.to_string()));
        self.results.records.extend(records);
        self.results.notes.extend(notes);
    }

    fn pack(&mut self, shape: Shape, sizes: &[u64]) -> Result<()> {
        let effort = self.arguments.effort();
        for &bytes in sizes {
            // On a thread of its own, which alone is bound to a core: the peers choose theirs.
            let measure = || {
                let last = allowed().len() - 1;
                bind_to_nth(last)?;
                pack::measure(&Case::new(shape, bytes)?, effort)
            };
            let records = std::thread::scope(|scope| scope.spawn(measure).join());
            let records = records.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            records.iter().for_each(|record| self.progress.step(record.library, &record.key()));
            self.results.records.extend(records);
        }
        for &library in self.libraries() {
            let Some(peers) = &self.peers else { continue };
            let messages = sizes.iter().map(|bytes| format!("{shape}:{bytes}")).collect::<Vec<_>>().join(",");
            let mut words = vec!["--suites".to_owned(), "pack".to_owned(), "--messages".to_owned(), messages];
            words.extend(self.arguments.quick.then(|| "--quick".to_owned()));
            let measured = peers.run(library, 1, &words, |record| self.progress.step(library, &record.key()));
            self.add(2 * sizes.len(), measured);
        }
        Ok(())
    }

    fn put(&mut self, launcher: &Launcher, plan: &Plan) {
        let (ranks, limit) = (plan.ranks[0], Duration::from_secs(self.arguments.time_limit));
        let unmapped = Plan { windows: vec![Window::Unmapped], ..plan.clone() };
        for (launcher, plan) in [(launcher, plan), (&launcher.clone().with(UNMAPPED.0, UNMAPPED.1), &unmapped)] {
            let mut words = vec!["--worker".to_owned()];
            words.extend(plan.peer_arguments());
            let step = |record: &Record| {
                if record.library == Library::Farside {
                    self.progress.step(Library::Farside, &record.key());
                }
            };
            let measured = launcher.measure(ranks, limit, &words, step);
            self.add(plan.farside_keys(ranks).len(), measured);
        }
        for &library in self.libraries() {
            let Some(peers) = &self.peers else { continue };
            let (mut records, notes) = peers.run(library, ranks, &plan.peer_arguments(), |record| {
                self.progress.step(library, &record.key());
            });
            let planned = plan.peer_keys(ranks).len().saturating_sub(records.len());
            // Whether a peer maps memory of the user is its own affair: its times stand beside both of Farside's ways.
            let user: Vec<_> = records.iter().filter(|record| record.window == Window::User).cloned().collect();
            records.extend(user.into_iter().map(|record| Record { window: Window::Unmapped, ..record }));
            self.add(planned + records.len(), (records, notes));
        }
    }
}

/// What a rank does.
fn work(arguments: &Arguments) -> Result<()> {
    let job = Job::init()?;
    measure::bind(&job)?;
    let plan = Plan::of_layouts(arguments.effort(), job.size(), &arguments.windows, &arguments.messages);
    let budget = Budget::of(arguments.effort(), Method::Blocks).in_short_blocks();
    let measured = measure::run(&job, &plan, budget, &mut std::io::stdout());
    if let Err(error) = &measured
        && error.kind() == ErrorKind::Protocol
    {
        job.abort(3, &error.to_string());
    }
    measured?;
    job.finalize()
}

fn drive(arguments: &Arguments) -> Result<()> {
    let limit = Duration::from_secs(arguments.time_limit);
    let peers = if arguments.peers { Some(Peers::locate(None)?.limit(limit)) } else { None };
    let (packed, put) = (arguments.packed(), arguments.put());
    let launcher = if put.is_empty() { None } else { Some(Launcher::locate()?) };
    if packed.is_empty() && put.is_empty() {
        return Err(Error::new(ErrorKind::BadArgument, "plan the measurements").cause("no shape is of any suite"));
    }
    for file in [&arguments.json, &arguments.html] {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| {
                Error::system("make a folder for the results", error).cause(folder.display().to_string())
            })?;
        }
    }
    let libraries = if peers.is_some() { Library::PEERS.len() } else { 0 };
    let of_pack = packed.iter().map(|(_, sizes)| sizes.len() * (3 * 3 + 2 * libraries));
    // Farside's on a third kind of window too.
    let of_put = put.iter().map(|plan| {
        let (keys, ranks) = (plan.keys(plan.ranks[0]).len(), plan.ranks[0]);
        keys / 2 * 3 + libraries * plan.peer_keys(ranks).len()
    });
    let total = arguments.rounds as usize * of_pack.chain(of_put).sum::<usize>();
    let results = Results { title: "Farside: layouts, packed and put", ..Results::here() };
    let mut run = Run { arguments, peers, results, progress: Progress::new(total as u64) };
    for _ in 0..arguments.rounds {
        // Shape by shape, so that what is compared is measured close together.
        for (shape, sizes) in &packed {
            run.pack(*shape, sizes)?;
        }
        for plan in &put {
            launcher.iter().for_each(|launcher| run.put(launcher, plan));
        }
    }
    let Run { mut results, progress, .. } = run;
    progress.finish();
    results.records = best(&results.records);
    println!("{}\n{}", results.machine.line(), results.table());
    let mut targets = targets::pack_targets(&results.records);
    targets.extend(targets::put_targets(&results.records));
    println!("\n{}", targets::display(&targets));
    print!("{}", targets::standing(&results.records));
    for note in &results.notes {
        println!("note: {note}");
    }
    results.write_json(&arguments.json)?;
    results.write_html(&arguments.html)?;
    println!("written: {} and {}", arguments.json.display(), arguments.html.display());
    if results.records.iter().any(|record| record.library == Library::Farside) {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Launcher, "measure Farside").cause("no rank has measured anything; see the notes"))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match if arguments.worker { work(&arguments) } else { drive(&arguments) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("datatype: {error}");
            ExitCode::FAILURE
        }
    }
}
