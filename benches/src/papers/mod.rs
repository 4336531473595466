//! `papers` repeats the experiment of each paper whose algorithms are implemented here, and writes one page: the
//! figures of the paper, times measured on this machine, virtual times on a simulated network of the paper's size, and
//! the peers, if `ci/peers` has installed them.
//!
//! All experiments are those of the other benchmarks ([`crate::measure`], [`crate::schemes`], [`crate::two_sided`],
//! [`crate::pgas`]); on a simulated network ([`simulated`]) they run with the same code.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use farside_core::error::{Error, Result};
use farside_core::plot::{Axis, Curve, Drawn, Plot, page, time};
use maud::{Markup, PreEscaped, html};

use crate::launch::Note;
use crate::machine::Machine;
use crate::options::{Libraries, TimeLimit};
use crate::plan::Plan;
use crate::record::{Library, Record};
use crate::results::Results;
use crate::session::Task;

mod arrays;
mod collectives;
mod messages;
mod simulated;
mod windows;

/// Repeats the experiments of the papers whose algorithms are implemented here, measured on this machine and simulated
/// at the size of the paper, and writes a page with a section for each.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Fewer sizes and ranks, and no peers.
    #[arg(long)]
    quick: bool,
    /// Only these sections of the page, numbered from 1.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=9))]
    sections: Vec<u8>,
    #[command(flatten)]
    limit: TimeLimit,
    /// File for the page.
    #[arg(long, visible_alias = "page", value_name = "FILE", default_value = "out/papers.html")]
    html: PathBuf,
}

/// The style sheet of the page, in addition to the common style.
const STYLE: &str = "
figure { margin: .5rem 0; break-inside: avoid; } figcaption { max-width: 34rem; font-size: 13px; color: #444; }
.source, .note { font-size: 13px; color: #444; } .note { border-left: 3px solid #d99a00; padding-left: .6rem; }
td { vertical-align: top; } p { max-width: 60rem; }
";

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let begun = Instant::now();
        let folder = self.html.parent().map_or_else(PathBuf::new, Path::to_owned);
        let here = Here { quick: self.quick, peers: !self.quick && has_peers(), limit: self.limit.duration(), folder };
        type Experiment = fn(&Here, &mut Section) -> Result<()>;
        let experiments: [(Head, Experiment); 9] = [
            (windows::SYNCHRONIZATION, windows::synchronization),
            (windows::LAYOUTS, windows::layouts),
            (collectives::REDUCTIONS, collectives::reductions),
            (collectives::CHOICE, collectives::choice),
            (messages::VERIFICATION, messages::verification),
            (collectives::BARRIERS, collectives::barriers),
            (messages::TWO_SIDED, messages::two_sided),
            (messages::DEVICES, messages::devices),
            (arrays::ARRAYS, arrays::arrays),
        ];
        let mut sections = Vec::new();
        let wanted = |number: &u8| self.sections.is_empty() || self.sections.contains(number);
        for (number, (head, experiment)) in (1..).zip(experiments).filter(|(number, _)| wanted(number)) {
            let (at, mut section) = (Instant::now(), Section::of(number, head));
            eprintln!("[{number}/9] {}", section.head.title);
            if let Err(error) = experiment(&here, &mut section) {
                section.note(format!("Not all of this experiment was made: {error}"));
            }
            eprintln!("      {:.1} s", at.elapsed().as_secs_f64());
            sections.push(section);
        }
        let is_measured =
            |section: &Section| section.rows.iter().any(|(_, row)| !row[Column::Measured as usize].is_empty());
        let page = here.page(&sections, begun.elapsed());
        let wrote = |error| Error::system("write the page", error).cause(self.html.display().to_string());
        fs::create_dir_all(&here.folder).and_then(|()| fs::write(&self.html, page)).map_err(wrote)?;
        println!("written: {}, in {:.0} s", self.html.display(), begun.elapsed().as_secs_f64());
        Ok(sections.iter().all(is_measured))
    }
}

/// Whether `ci/peers` has installed MPI libraries.
fn has_peers() -> bool {
    peers_folder().join("venv").is_dir()
}

/// The folder of the peers: `FARSIDE_PEERS`, or target/peers.
fn peers_folder() -> PathBuf {
    let given = std::env::var_os("FARSIDE_PEERS").map(PathBuf::from);
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(given.unwrap_or_else(|| "target/peers".into()))
}

/// The conditions of the run.
struct Here {
    quick: bool,
    peers: bool,
    limit: Duration,
    /// The folder of the page.
    folder: PathBuf,
}

impl Here {
    /// The first of two values in a quick run, otherwise the second.
    fn or<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }

    /// Measures plans with Farside, and with the peers if they are there. Notes failures in the section.
    fn measure(
        &self,
        section: &mut Section,
        plans: Vec<Plan>,
        environment: &[(&'static str, &str)],
    ) -> Result<Vec<Record>> {
        let libraries = Libraries { peers: self.peers }.list();
        let environment = environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let task = Task { plans, libraries, environment, ..Task::default() };
        let (Results { records, notes, .. }, _) = task.measure(1, self.limit)?;
        notes.iter().for_each(|note: &Note| section.note(note.to_string()));
        Ok(records)
    }

    fn page(&self, sections: &[Section], took: Duration) -> String {
        let peers = if self.peers {
            "MPICH, Intel MPI and Open MPI"
        } else {
            "none: ci/peers has not been run, or this run is quick"
        };
        let body = html! {
            style { (PreEscaped(STYLE)) }
            p {
                "The experiment of each paper, repeated with Farside. Measured: on this machine, "
                (Machine::here().line()) ". Simulated: the virtual time of the same code on a simulated network of the "
                "paper's size, whose parameters (LogGP: L, o, g, G) are below each plot. Machines of the papers are "
                "decades old, so shapes and ratios are compared, not microseconds. Peers: " (peers)
                (format!(". The run took {:.0} s.", took.as_secs_f64()))
            }
            @for section in sections { (section.markup()) }
        };
        page("The papers, repeated", &body)
    }
}

/// The subject of a section.
struct Head {
    title: &'static str,
    /// Authors, title, venue, year.
    source: &'static str,
    /// The paper's claim.
    claim: &'static str,
}

/// Where a figure comes from: the columns of a section's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Paper,
    Measured,
    Simulated,
    Peer,
}

/// The heads of the columns, in the order of [`Column`].
const COLUMNS: [&str; 4] = ["paper", "measured here", "simulated", "best peer here"];

/// The experiment of one paper.
struct Section {
    number: u8,
    head: Head,
    /// The result of this run, and whether the claim holds.
    finding: String,
    /// The rows of the table: a quantity, and its figures by column.
    rows: Vec<(String, [String; 4])>,
    figures: Vec<Markup>,
    notes: Vec<String>,
}

impl Section {
    fn of(number: u8, head: Head) -> Self {
        Self { number, head, finding: String::new(), rows: Vec::new(), figures: Vec::new(), notes: Vec::new() }
    }

    /// Sets the finding, and whether it has the shape of the claim.
    fn find(&mut self, finding: &str, holds: bool) {
        let not = if holds { "holds" } else { "does not hold in this run" };
        self.finding = format!("{finding} The shape of the claim {not}.");
    }

    fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        // How busy the machine was is said once.
        if !(note.starts_with("the machine:") && self.notes.iter().any(|other| other.starts_with("the machine:"))) {
            self.notes.push(note);
        }
    }

    fn row<const N: usize>(&mut self, what: impl Into<String>, figures: [(Column, String); N]) {
        let mut row: [String; 4] = Default::default();
        figures.into_iter().for_each(|(column, figure)| row[column as usize] = figure);
        self.rows.push((what.into(), row));
    }

    fn plot(&mut self, from: Column, title: impl Into<String>, axis: Axis, curves: Vec<Curve>, caption: &str) {
        let how = if from == Column::Measured { "Measured on this machine" } else { "Simulated" };
        let plot = Plot { title: title.into(), axis, curves, range: None };
        self.figures.push(html! { figure { (plot.svg()) figcaption { (how) ": " (caption) } } });
    }

    fn markup(&self) -> Markup {
        let Head { title, source, claim } = self.head;
        html! {
            section {
                h2 { "§" (self.number) " " (title) }
                p class="source" { (source) }
                p { (claim) " " (self.finding) }
                table {
                    thead { tr { th {} @for name in COLUMNS { th class="n" { (name) } } } }
                    tbody { @for (what, figures) in &self.rows {
                        tr { td { (what) } @for figure in figures { td class="n" { (figure) } } }
                    } }
                }
                div class="sides" { @for figure in &self.figures { (figure) } }
                @for note in &self.notes { p class="note" { (note) } }
            }
        }
    }
}

/// Curves of records: those of one name together, in the order in which names appear, at the position that `at` returns
/// (bytes or ranks).
fn curves(records: &[Record], at: impl Fn(&Record) -> f64, name: impl Fn(&Record) -> Option<String>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for record in records {
        let Some(name) = name(record) else { continue };
        let point = (at(record), 1e3 * record.us());
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name, color: curves.len(), drawn: Drawn::Line, points: vec![point] }),
        }
    }
    curves
}

/// A dashed curve, of a model, in the color of another curve.
fn dashed(name: String, color: usize, points: Vec<(f64, f64)>) -> Curve {
    Curve { name, color, drawn: Drawn::Dashed, points }
}

/// The microseconds of the first record of Farside that `is_it` accepts.
fn find(records: &[Record], is_it: impl Fn(&Record) -> bool) -> Option<f64> {
    records.iter().find(|record| record.library == Library::Farside && is_it(record)).map(Record::us)
}

/// The microseconds of the fastest peer, and its name, of the records that `is_it` accepts.
fn best_peer(records: &[Record], is_it: impl Fn(&Record) -> bool) -> String {
    let peers = records.iter().filter(|record| Library::PEERS.contains(&record.library) && is_it(record));
    let best = peers.min_by(|a, b| a.us().total_cmp(&b.us()));
    best.map_or_else(String::new, |best| format!("{} ({})", time(1e3 * best.us()), best.library.label()))
}

/// The text of a time in microseconds is empty if there is no time.
fn us(time_us: Option<f64>) -> String {
    time_us.map_or_else(String::new, |us| time(1e3 * us))
}

/// The percentage by which `after` is less than `before`.
fn less(after: Option<f64>, before: Option<f64>) -> String {
    after.zip(before).map_or_else(String::new, |(after, before)| format!("{:.0} %", 100.0 * (1.0 - after / before)))
}

/// The factor from `less` to `more`.
fn factor(more: Option<f64>, less: Option<f64>) -> String {
    more.zip(less).map_or_else(String::new, |(more, less)| format!("{:.2}×", more / less))
}
