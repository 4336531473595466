//! The description of a network: a TOML file written by users, so errors name the place and the fix.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use farside_core::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;

use super::network::{Link, Measured, Network, Node, Performance, RANGES, SIZE_MAX, parse_size};
use crate::collectives::log_gp;

const OP: &str = "read the description of a network";

/// A description that uses every field.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");

/// Maximum length of a file in bytes.
const FILE_MAX: u64 = 16 << 20;
/// Maximum number of nodes.
const NODES_MAX: usize = 1024;
/// Maximum number of links: two devices between all nodes.
const LINKS_MAX: usize = NODES_MAX * NODES_MAX;
/// Maximum length of a name in characters.
const NAME_MAX: usize = 64;
/// Maximum time in microseconds, and minimum bandwidth in MB/s.
const TIME_MAX: f64 = 1e12;
const BANDWIDTH_MIN: f64 = 1e-3;

/// A number of bytes: a number, or text with a unit.
#[derive(Clone, Copy, Debug)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, such as 512, \"64KiB\" or \"1MiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> std::result::Result<Size, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Size, E> {
                parse_size(text).map(Size).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Read)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ranges: Spanned<Vec<Size>>,
    sizes: Option<Spanned<Vec<Size>>>,
    forward: Option<Spanned<f64>>,
    #[serde(default)]
    devices: BTreeMap<String, Spanned<Times>>,
    nodes: Spanned<Vec<NodeRow>>,
    links: Vec<LinkRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRow {
    name: Spanned<String>,
    forward: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRow {
    device: Spanned<String>,
    between: Spanned<Vec<Spanned<String>>>,
    performance: Option<Spanned<Times>>,
}

/// Either a model, or times of every range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    small: Option<RangeRow>,
    medium: Option<RangeRow>,
    large: Option<RangeRow>,
    model: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeRow {
    latency: Spanned<f64>,
    bandwidth: Spanned<f64>,
}

/// Reads a file.
///
/// # Errors
/// `System` if it cannot be read; those of [`parse`].
pub(crate) fn read(path: &Path) -> Result<Network> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    read.map_err(|e| {
        let e = Error::system(OP, e).cause(name.clone());
        e.remedy("name a text file that can be read; `farside routes --help` shows one")
    })?;
    if text.len() as u64 > FILE_MAX {
        let e = Error::new(ErrorKind::BadArgument, OP).cause(format!("{name} is longer than {FILE_MAX} bytes"));
        return Err(e.remedy("let one link join many nodes: between = [\"a\", \"b\", \"c\", ..]"));
    }
    parse(&name, &text)
}

/// Reads the text of a file called `name`.
///
/// # Errors
/// `BadArgument` with the line, the field, the cause and the remedy.
pub(crate) fn parse(name: &str, text: &str) -> Result<Network> {
    let source = Source { name, text };
    let file: File = toml::from_str(text).map_err(|e| {
        let cause = e.message().trim().replace('\n', ", ");
        source.error(
            &e.span().unwrap_or_default(),
            &cause,
            "`farside routes --help` shows a description with all fields",
        )
    })?;
    source.network(&file)
}

/// The file, for errors.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    #[cold]
    fn error(&self, at: &Range<usize>, cause: &str, remedy: &str) -> Error {
        let line = 1 + self.text.bytes().take(at.start).filter(|b| *b == b'\n').count();
        Error::new(ErrorKind::BadArgument, OP).cause(format!("{}, line {line}: {cause}", self.name)).remedy(remedy)
    }

    fn network(&self, file: &File) -> Result<Network> {
        let (limits, sizes) = self.sizes(file)?;
        let forward = self.forward(file.forward.as_ref())?.unwrap_or(0.0);
        let mut network = Network { limits, sizes, ..Network::default() };
        let nodes = file.nodes.get_ref();
        if !(1..=NODES_MAX).contains(&nodes.len()) {
            let cause = format!("nodes: {} nodes given, but 1 to {NODES_MAX} are allowed", nodes.len());
            return Err(self.error(
                &file.nodes.span(),
                &cause,
                "describe a part of the network, or its groups as nodes",
            ));
        }
        let mut numbers = HashMap::new();
        for (n, node) in nodes.iter().enumerate() {
            let name = self.word("nodes.name", &node.name)?;
            if numbers.insert(name, n).is_some() {
                let cause = format!("nodes.name: two nodes are called {name:?}");
                return Err(self.error(&node.name.span(), &cause, "give each node its own name"));
            }
            let forward = self.forward(node.forward.as_ref())?.unwrap_or(forward);
            network.nodes.push(Node { name: name.to_owned(), forward });
        }
        let mut of_device = HashMap::new();
        for (name, times) in &file.devices {
            of_device.insert(name.as_str(), self.performance(&format!("devices.{name}"), times, &mut network)?);
        }
        let mut seen = HashSet::new();
        for link in &file.links {
            let device = self.word("links.device", &link.device)?;
            let performance = match (&link.performance, of_device.get(device)) {
                (Some(times), _) => self.performance("links.performance", times, &mut network)?,
                (None, Some(performance)) => *performance,
                (None, None) => {
                    let cause =
                        format!("links.device: neither the link nor [devices] has the performance of {device:?}");
                    let remedy = format!("add [devices.{device}], or `performance` to the link");
                    return Err(self.error(&link.device.span(), &cause, &remedy));
                }
            };
            let number = network.devices.iter().position(|known| known == device).unwrap_or(network.devices.len());
            if number == network.devices.len() {
                network.devices.push(device.to_owned());
            }
            for ends in self.pairs(link, &numbers)? {
                if !seen.insert((ends, number)) {
                    let [a, b] = ends.map(|n| &network.nodes[n].name);
                    let cause = format!("links.between: two links by {device} join {a} and {b}");
                    let remedy = "keep one of the two; give a second adapter a device name of its own";
                    return Err(self.error(&link.between.span(), &cause, remedy));
                }
                network.links.push(Link { ends, device: number, performance });
            }
            if network.links.len() > LINKS_MAX {
                let cause = format!("links.between: more than {LINKS_MAX} pairs of nodes");
                return Err(self.error(&link.between.span(), &cause, "describe a part of the network"));
            }
        }
        Ok(network)
    }

    /// The pairs of nodes that a link joins.
    fn pairs(&self, link: &LinkRow, numbers: &HashMap<&str, usize>) -> Result<Vec<[usize; 2]>> {
        let names = link.between.get_ref();
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let Some(number) = numbers.get(name.get_ref().as_str()) else {
                let cause = format!("links.between: there is no node {:?}", name.get_ref());
                return Err(self.error(&name.span(), &cause, "name a node of [[nodes]]"));
            };
            nodes.push(*number);
        }
        nodes.sort_unstable();
        if nodes.is_empty() || nodes.windows(2).any(|pair| pair[0] == pair[1]) {
            let cause = "links.between: the list is empty, or names a node twice";
            let remedy = "name each node once; a single node is a link between the ranks of that node";
            return Err(self.error(&link.between.span(), cause, remedy));
        }
        if let [node] = nodes[..] {
            return Ok(vec![[node, node]]);
        }
        Ok(nodes.iter().enumerate().flat_map(|(n, a)| nodes[n + 1..].iter().map(move |b| [*a, *b])).collect())
    }

    /// The limits of the ranges, and the sizes for which routes are chosen.
    fn sizes(&self, file: &File) -> Result<([u64; 2], [u64; 3])> {
        let of = |sizes: &Spanned<Vec<Size>>| sizes.get_ref().iter().map(|size| size.0).collect::<Vec<_>>();
        let bad = |at: &Spanned<Vec<Size>>, cause: &str, remedy: &str| Err(self.error(&at.span(), cause, remedy));
        let [low, high] = of(&file.ranges)[..] else {
            let cause = format!("ranges: {} limits given, but 2 are needed", file.ranges.get_ref().len());
            return bad(&file.ranges, &cause, "give the longest small and the longest medium message");
        };
        if low == 0 || low >= high || high == SIZE_MAX {
            let cause = format!("ranges: limits of {low} and {high} bytes leave a range empty");
            return bad(&file.ranges, &cause, "give two increasing limits above 0 and below 1 TiB");
        }
        let limits = [low, high];
        let Some(given) = &file.sizes else {
            // Within a range times grow with the size, so the geometric mean of the limits is used.
            let middle = |low: u64, high: u64| ((low as f64 * high as f64).sqrt() as u64).clamp(low, high);
            return Ok((limits, [middle(1, low), middle(low + 1, high), high.saturating_mul(4).min(SIZE_MAX)]));
        };
        let [small, medium, large] = of(given)[..] else {
            let cause = format!("sizes: {} sizes given, but 3 are needed", given.get_ref().len());
            return bad(given, &cause, "give the size of each range for which its routes are chosen");
        };
        if small > low || !(low + 1..=high).contains(&medium) || large <= high {
            let cause = format!("sizes: {small}, {medium} and {large} bytes are not one size of each range");
            return bad(given, &cause, "give a small, a medium and a large size, as `ranges` limits them");
        }
        Ok((limits, [small, medium, large]))
    }

    fn word<'a>(&self, field: &str, name: &'a Spanned<String>) -> Result<&'a str> {
        let text = name.get_ref();
        let is_allowed = |c: char| !c.is_control() && !c.is_whitespace();
        if text.is_empty() || text.chars().count() > NAME_MAX || !text.chars().all(is_allowed) {
            let start: String = text.chars().take(NAME_MAX).collect();
            let cause = format!("{field}: {start:?} is not a name");
            let remedy = format!("a name has 1 to {NAME_MAX} characters and no spaces");
            return Err(self.error(&name.span(), &cause, &remedy));
        }
        Ok(text)
    }

    fn forward(&self, weight: Option<&Spanned<f64>>) -> Result<Option<f64>> {
        let Some(weight) = weight else { return Ok(None) };
        let value = *weight.get_ref();
        if (0.0..=TIME_MAX).contains(&value) || value == f64::INFINITY {
            return Ok(Some(value));
        }
        let remedy = format!("give microseconds from 0 to {TIME_MAX:e}, or inf, which turns forwarding off");
        Err(self.error(&weight.span(), &format!("forward: {value} is not a time"), &remedy))
    }

    /// The number of a performance that is added to the network.
    fn performance(&self, field: &str, times: &Spanned<Times>, network: &mut Network) -> Result<usize> {
        let of = times.get_ref();
        let rows = [&of.small, &of.medium, &of.large];
        let performance = match (&of.model, rows) {
            (Some(model), [None, None, None]) => {
                let read = log_gp(model.get_ref()).map_err(|cause| {
                    let cause = format!("{field}.model: {cause}");
                    self.error(&model.span(), &cause, "write a LogGP model in microseconds: \"L=1.1,o=0.2,G=0.0001\"")
                });
                Performance::Model(read?)
            }
            (None, [Some(small), Some(medium), Some(large)]) => {
                let mut measured = [Measured { latency: 0.0, bandwidth: 0.0 }; RANGES.len()];
                for ((row, name), measured) in [small, medium, large].into_iter().zip(RANGES).zip(&mut measured) {
                    *measured = self.measured(&format!("{field}.{name}"), row)?;
                }
                Performance::Measured(measured)
            }
            (model, _) => {
                let cause = match model {
                    Some(_) => "both a model and times of ranges are given",
                    None => "neither a model nor the times of all three ranges are given",
                };
                let remedy = "give either `model`, or `small`, `medium` and `large`";
                return Err(self.error(&times.span(), &format!("{field}: {cause}"), remedy));
            }
        };
        let slowest = (0..RANGES.len()).map(|range| performance.time(range, network.sizes[range]).sum());
        if slowest.fold(0.0, f64::max) > TIME_MAX {
            let cause = format!("{field}: a message takes more than {TIME_MAX:e} microseconds");
            return Err(self.error(&times.span(), &cause, "give times in microseconds and bandwidths in MB/s"));
        }
        network.performances.push(performance);
        Ok(network.performances.len() - 1)
    }

    fn measured(&self, field: &str, row: &RangeRow) -> Result<Measured> {
        let (latency, bandwidth) = (*row.latency.get_ref(), *row.bandwidth.get_ref());
        if !(0.0..=TIME_MAX).contains(&latency) {
            let remedy = format!("give microseconds from 0 to {TIME_MAX:e}");
            return Err(self.error(&row.latency.span(), &format!("{field}.latency: {latency} is not a time"), &remedy));
        }
        if bandwidth < BANDWIDTH_MIN || !bandwidth.is_finite() {
            let remedy = format!("give MB/s, at least {BANDWIDTH_MIN}");
            let cause = format!("{field}.bandwidth: {bandwidth} is not a bandwidth");
            return Err(self.error(&row.bandwidth.span(), &cause, &remedy));
        }
        Ok(Measured { latency, bandwidth })
    }
}
