//! `farside info --coll`: the algorithms of collectives, the chosen ones, and their predicted times.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use farside_core::coll::operation::{Call, Neighbors, Operation};
use farside_core::coll::schedule::picture::{Labels, svg};
use farside_core::coll::schedule::predict::{Bytes, LogGP, Prediction, predict_algorithm};
use farside_core::coll::schedule::{Schedule, goal};
use farside_core::coll::selection::{Choice, Facts, Origin, Placement, Selection};
use farside_core::coll::table;
use farside_core::{Error, ErrorKind, Result};

/// Bytes of an element; algorithms count elements.
const ELEMENT: u64 = 8;

/// Maximum number of ranks of a picture; more could not be distinguished.
const PICTURE: u32 = 256;

/// The options of `farside info --coll`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Question {
    /// Describe all collectives, or NAME: an operation, operation/algorithm or operation/algorithm(parameters).
    /// FARSIDE_COLL has a colon instead of the slash.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub coll: Option<String>,
    /// Number of ranks.
    #[arg(long, requires = "coll", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    ranks: u32,
    /// Placement of the ranks: anywhere, one-node, or oversubscribed, which is one node with more ranks than processors.
    #[arg(long, requires = "coll", value_parser = placement, default_value = "anywhere")]
    placement: Placement,
    /// Root of the operation.
    #[arg(long, requires = "coll", default_value_t = 0)]
    root: u32,
    /// Bytes of the vector, or of the block of each rank.
    #[arg(long, requires = "coll", default_value_t = 8)]
    bytes: u64,
    /// LogGP parameters of the network in microseconds: latency L, overhead o, gap g, and per byte gap G and reduction
    /// R.
    #[arg(long, requires = "coll", value_name = "L=..,o=..", value_parser = log_gp, default_value = "L=1,o=0.2,g=0.1,G=0.0001,R=0.0002")]
    network: LogGP,
    /// Print the schedules in GOAL, as LogGOPSim's txt2bin reads them.
    #[arg(long, requires = "coll", conflicts_with = "svg")]
    goal: bool,
    /// Print a picture of the predicted run, as SVG.
    #[arg(long, requires = "coll")]
    svg: bool,
}

fn placement(text: &str) -> std::result::Result<Placement, String> {
    let allowed = || Placement::ALL.map(Placement::name).join(", ");
    Placement::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| format!("allowed: {}", allowed()))
}

/// Parses the parameters of a network; missing ones are 0.
pub(crate) fn log_gp(text: &str) -> std::result::Result<LogGP, String> {
    let mut model = LogGP::default();
    for item in text.split(',') {
        let (name, value) = item.split_once('=').ok_or_else(|| format!("{item:?} is not NAME=NUMBER"))?;
        let value = value.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
        let value = value.ok_or_else(|| format!("{item:?} needs a number of at least 0"))?;
        match name.trim() {
            "L" => model.latency = value,
            "o" => (model.send_overhead, model.receive_overhead) = (value, value),
            "g" => model.gap = value,
            "G" => model.gap_per_byte = value,
            "R" => model.reduction = value,
            other => return Err(format!("{other:?} is not L, o, g, G or R")),
        }
    }
    Ok(model)
}

/// Writes the answer to standard output.
///
/// # Errors
/// `BadArgument` for a name or root that does not exist; `System` if the answer cannot be written.
pub(crate) fn print(question: &Question, selection: &Selection) -> Result<()> {
    let name = question.coll.as_deref().unwrap_or_default();
    let bad = |cause: String| Error::new(ErrorKind::BadArgument, "info --coll").cause(cause);
    if question.root >= question.ranks {
        return Err(bad(format!(
            "root {} is out of range: there are {} ranks, from 0 on",
            question.root, question.ranks
        )));
    }
    let (operation, algorithm) = name.split_once('/').map_or((name, None), |(o, a)| (o, Some(a)));
    let operations: Vec<Operation> =
        Operation::ALL.into_iter().filter(|o| operation.is_empty() || o.name() == operation).collect();
    if operations.is_empty() {
        let all: Vec<&str> = Operation::ALL.iter().map(|o| o.name()).collect();
        return Err(bad(format!("there is no operation {operation}; the operations are {}", all.join(", "))));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = |e| Error::system("write the answer", e);
    if algorithm.is_none() && !question.goal && !question.svg {
        let text = operations.into_iter().fold(question.head(), |text, o| text + &question.table(o, selection));
        return out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(written);
    }
    let [operation] = operations[..] else {
        return Err(bad("--goal, --svg and algorithms need the name of an operation".into()));
    };
    let choice = match algorithm {
        Some(text) => Choice::parse(operation, text).map_err(bad)?,
        None => question.chosen(operation, selection).0,
    };
    let ends = Ends::new(question.ranks);
    let call = |rank| Call { parameters: &choice.parameters, ..question.call(operation, rank, &ends) };
    if !(choice.algorithm.applies)(&call(0)) {
        return Err(bad(format!("{choice} does not work for {} ranks", question.ranks)));
    }
    let of = |rank: u32| -> Schedule { (choice.algorithm.build)(&call(rank)) };
    let bytes = question.bytes_of(operation);
    if question.goal {
        let nanoseconds = question.network.reduction * 1e3;
        goal::write(&mut out, question.ranks, of, bytes, nanoseconds).map_err(written)?;
    } else if question.svg {
        if question.ranks > PICTURE {
            return Err(bad(format!("a picture shows at most {PICTURE} ranks")));
        }
        let root = if operation.is_rooted() { format!(", root {}", question.root) } else { String::new() };
        let bytes_of =
            if operation == Operation::Barrier { String::new() } else { format!(", {} bytes", question.bytes) };
        let title = format!("{} by {choice}, P = {}{root}{bytes_of}", operation.name(), question.ranks);
        let labels = Labels { title: &title, subtitle: &question.model(), unit: "µs" };
        let text = svg(labels, question.ranks, of, bytes, &question.network).map_err(|at| bad(stopped(at)))?;
        out.write_all(text.as_bytes()).map_err(written)?;
    } else {
        let text = question.head() + &question.details(operation, &choice, selection);
        out.write_all(text.as_bytes()).map_err(written)?;
    }
    out.flush().map_err(written)
}

fn stopped((rank, step): (u32, u32)) -> String {
    format!("rank {rank} waits forever at step {step}")
}

/// The graph of neighbourhood operations: each rank has an edge to the previous and to the next rank.
struct Ends(Vec<[u32; 2]>);

impl Ends {
    fn new(p: u32) -> Self {
        Self((0..p).map(|r| [(r + p - 1) % p, (r + 1) % p]).collect())
    }
}

impl Question {
    /// Whether the ranks are on one node.
    pub(crate) fn is_on_one_node(&self) -> bool {
        self.placement != Placement::Anywhere
    }

    fn call<'a>(&self, operation: Operation, rank: u32, ends: &'a Ends) -> Call<'a> {
        let ends = &ends.0[rank as usize];
        let root = if operation.is_rooted() { self.root } else { 0 };
        let neighbors = Neighbors { sources: ends, destinations: ends };
        Call { root, neighbors, elements: self.bytes.div_ceil(ELEMENT), ..Call::new(operation, rank, self.ranks) }
    }

    fn bytes_of(&self, operation: Operation) -> Bytes<'static> {
        if operation.is_of_a_vector() { Bytes::Vector(self.bytes) } else { Bytes::Each(self.bytes) }
    }

    /// The choice for a call of this placement, and its origin.
    fn chosen(&self, operation: Operation, selection: &Selection) -> (Choice, Origin) {
        let ends = Ends::new(self.ranks);
        let call = Call { lends: self.is_on_one_node(), ..self.call(operation, self.root, &ends) };
        selection.select(&call, &Facts::new(&call, ELEMENT, true, self.placement))
    }

    /// The predicted time; `None` if the algorithm does not support the call.
    fn predicted(&self, operation: Operation, choice: &Choice) -> Option<std::result::Result<Prediction, String>> {
        let ends = Ends::new(self.ranks);
        let call = |rank| Call { parameters: &choice.parameters, ..self.call(operation, rank, &ends) };
        let applies = (choice.algorithm.applies)(&call(0));
        applies.then(|| {
            predict_algorithm(choice.algorithm, call, self.bytes_of(operation), &self.network).map_err(stopped)
        })
    }

    fn model(&self) -> String {
        let LogGP { latency, send_overhead, gap, gap_per_byte, reduction, .. } = self.network;
        format!(
            "predicted by LogGP, in µs: L = {latency}, o = {send_overhead}, g = {gap}, \
             G = {gap_per_byte}, reduction of a byte {reduction}"
        )
    }

    fn head(&self) -> String {
        let Self { ranks, root, bytes, placement, .. } = self;
        let placement = placement.name();
        format!("P = {ranks} ({placement}), root {root}, {bytes} bytes; * is chosen\n{}\n", self.model())
    }

    /// All algorithms of an operation; the chosen one is marked, with its chosen parameters.
    fn table(&self, operation: Operation, selection: &Selection) -> String {
        let (chosen, origin) = self.chosen(operation, selection);
        let mut text = format!("\n{}, chosen by {origin}\n", operation.name());
        for algorithm in table::of(operation) {
            // Names are compared, because a constant need not have a single address.
            let is_chosen = algorithm.name == chosen.algorithm.name;
            let choice =
                if is_chosen { chosen.clone() } else { Choice { algorithm, parameters: algorithm.defaults() } };
            let names: Vec<&str> = algorithm.parameters.iter().map(|p| p.name).collect();
            let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let time = match self.predicted(operation, &choice) {
                None => "not for this P".into(),
                Some(Ok(p)) => format!("{:.2} µs", p.time),
                Some(Err(why)) => why,
            };
            let mark = if is_chosen { '*' } else { ' ' };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{mark} {:<44} {time:>14}  {}{names}", choice.to_string(), algorithm.source);
        }
        text
    }

    /// One algorithm with its parameters.
    fn details(&self, operation: Operation, choice: &Choice, selection: &Selection) -> String {
        let algorithm = choice.algorithm;
        let (other, origin) = self.chosen(operation, selection);
        let is_chosen = other.to_string() == choice.to_string();
        let chosen = if is_chosen { format!(", chosen by {origin}") } else { String::new() };
        let mut text = format!("\n{} by {choice}{chosen}\n", operation.name());
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<14} {value}");
        };
        row("source", algorithm.source.into());
        if algorithm.commutative {
            row("operator", "must be commutative".into());
        }
        for (index, p) in algorithm.parameters.iter().enumerate() {
            let (value, names) = (choice.value(index), choice.value_names(index));
            let allowed = match names.get(p.default as usize) {
                Some(default) => format!("{}; default {default}", names.join(", ")),
                None => format!("{} to {}, default {}", p.least, p.most, p.default),
            };
            row(p.name, format!("{value}: {} ({allowed})", p.help));
        }
        match self.predicted(operation, choice) {
            None => row("time", "not for this P".into()),
            Some(Err(why)) => row("time", why),
            Some(Ok(p)) => {
                let first = p.ends.iter().copied().fold(f64::INFINITY, f64::min);
                row("time", format!("{:.2} µs; the first rank is done at {first:.2}", p.time));
                row("messages", p.messages.to_string());
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(coll: &str, ranks: u32) -> Question {
        let network = log_gp("L=1,o=0.2,g=0.1,G=0.0001,R=0.0002").unwrap();
        let placement = Placement::Anywhere;
        Question { coll: Some(coll.into()), ranks, placement, root: 0, bytes: 8, network, goal: false, svg: false }
    }

    #[test]
    fn table_has_every_algorithm_and_one_choice() {
        for operation in Operation::ALL {
            let text = question("", 8).table(operation, &Selection::default());
            assert!(table::of(operation).all(|a| text.contains(a.name) && text.contains(a.source)), "{text}");
            assert_eq!(text.lines().filter(|l| l.starts_with('*')).count(), 1, "{text}");
        }
    }

    #[test]
    fn details_have_parameters_and_time() {
        let choice = Choice::parse(Operation::Barrier, "dissemination(1)").unwrap();
        let text = question("", 8).details(Operation::Barrier, &choice, &Selection::default());
        // Three rounds of 1.4.
        assert!(text.contains("4.20 µs") && text.contains("messages       24"), "{text}");
    }

    #[test]
    fn a_model_is_read_or_refused() {
        assert_eq!(log_gp("L=2,g=0.5").unwrap(), LogGP::log_p(2.0, 0.0, 0.5));
        for wrong in ["", "L", "L=x", "L=-1", "L=inf", "x=1"] {
            assert!(log_gp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_do_not_exist_are_refused() {
        let names = ["nothing", "barrier/nothing", "barrier/dissemination(0)", "allreduce/butterfly", "/ring"];
        for name in names {
            assert_eq!(
                print(&question(name, 3), &Selection::default()).unwrap_err().kind(),
                ErrorKind::BadArgument,
                "{name}"
            );
        }
        assert!(print(&Question { root: 4, ..question("reduce", 4) }, &Selection::default()).is_err());
        assert!(print(&Question { svg: true, ..question("", 4) }, &Selection::default()).is_err());
        assert!(print(&Question { svg: true, ..question("barrier", 257) }, &Selection::default()).is_err());
    }
}
