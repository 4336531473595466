//! The routing table of every node, as text and as a file for jobs.

use std::fmt::Write as _;

use farside_core::plot::{size, time};
use farside_core::{Error, ErrorKind, Result};
use serde::Serialize;

use super::fastest::Fastest;
use super::network::{Hop, Network, RANGES};

/// The version of the file's format.
const VERSION: u32 = 1;
/// Maximum number of pairs without a route that an error text lists.
const PAIRS_SHOWN: usize = 20;

/// Next hops between all nodes, for each range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Routes {
    nodes: usize,
    /// The next hops by sender and receiver. A route from a node to itself is the fastest link between its ranks.
    pub(super) hops: [Vec<Option<Hop>>; RANGES.len()],
}

impl Routes {
    /// Computes the fastest routes for the sizes of the ranges.
    pub(crate) fn of(network: &Network) -> Self {
        let nodes = network.nodes.len();
        let hops = std::array::from_fn(|range| {
            let bytes = network.sizes[range];
            let mut hops = vec![None; nodes * nodes];
            let fastest = Fastest::new(network, range, bytes);
            for to in 0..nodes {
                for (from, next) in fastest.toward(to, &[]).into_iter().enumerate() {
                    hops[from * nodes + to] = next.filter(|(_, cost)| cost.refused == 0).map(|(hop, _)| hop);
                }
            }
            let mut inside: Vec<_> = (0..network.links.len()).filter(|link| network.links[*link].is_inside()).collect();
            inside.sort_by_key(|link| network.link_cost(*link, range, bytes));
            for link in inside {
                let [node, _] = network.links[link].ends;
                hops[node * nodes + node].get_or_insert(Hop { to: node as u32, link: link as u32 });
            }
            hops
        });
        Self { nodes, hops }
    }

    fn next(&self, range: usize, from: usize, to: usize) -> Option<Hop> {
        self.hops[range][from * self.nodes + to]
    }

    /// The hops from a node to another; `None` if there is no route. The table must be [checked](Self::check).
    pub(crate) fn route(&self, range: usize, from: usize, to: usize) -> Option<Vec<Hop>> {
        let mut hops = vec![self.next(range, from, to)?];
        while let Some(last) = hops.last().filter(|hop| hop.to as usize != to) {
            hops.push(self.next(range, last.to as usize, to)?);
        }
        Some(hops)
    }

    /// Checks that next hops lead to their destination from every node that has one, over links of the network.
    ///
    /// # Errors
    /// `Protocol` with the nodes between which they do not.
    pub(crate) fn check(&self, network: &Network) -> Result<()> {
        for (range, to) in (0..RANGES.len()).flat_map(|range| (0..self.nodes).map(move |to| (range, to))) {
            // Nodes from which the destination is reached.
            let mut reached = vec![false; self.nodes];
            reached[to] = true;
            for from in (0..self.nodes).filter(|from| self.next(range, *from, to).is_some()) {
                let mut way = vec![from];
                while let Some(at) = way.last().copied().filter(|at| !reached[*at] || (way.len() == 1 && *at == to)) {
                    let hop = self.next(range, at, to);
                    let next = hop.and_then(|hop| network.links.get(hop.link as usize)?.other(at));
                    match next.filter(|next| hop.is_some_and(|hop| hop.to as usize == *next)) {
                        Some(next) if next == to || !way.contains(&next) => way.push(next),
                        next => return Err(lost_route(network, range, &way, next, to)),
                    }
                }
                way.iter().for_each(|node| reached[*node] = true);
            }
        }
        Ok(())
    }

    /// Pairs of nodes without a route, the lower number first. Ranges do not differ in this.
    pub(crate) fn unreachable(&self) -> Vec<[usize; 2]> {
        let pairs = (0..self.nodes).flat_map(|a| (a + 1..self.nodes).map(move |b| [a, b]));
        pairs.filter(|[a, b]| self.next(0, *a, *b).is_none()).collect()
    }

    /// The table of each node: the next hop, its device, and the predicted time.
    pub(crate) fn text(&self, network: &Network) -> String {
        let mut text = String::new();
        for (range, name) in RANGES.iter().enumerate() {
            let limit = range_text(network, range);
            let _ = writeln!(text, "{name:<6}  {limit}; routes chosen for {}", size(network.sizes[range]));
        }
        for (from, node) in network.nodes.iter().enumerate() {
            let _ = writeln!(text, "\nroutes of {}", node.name);
            let rows = (0..self.nodes).filter(|to| self.next(0, from, *to).is_some()).map(|to| {
                let cells = (0..RANGES.len()).map(|range| self.cell(network, range, from, to));
                [network.nodes[to].name.clone()].into_iter().chain(cells).collect::<Vec<_>>()
            });
            let head = ["to", "small", "medium", "large"].map(str::to_owned).to_vec();
            let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
            let widths: Vec<usize> = (0..=RANGES.len()).map(width).collect();
            for row in &rows {
                let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("  {cell:<width$}"));
                let _ = writeln!(text, "{}", cells.collect::<String>().trim_end());
            }
        }
        let without = self.unreachable();
        if !without.is_empty() {
            let names = without.iter().take(PAIRS_SHOWN).map(|[a, b]| {
                let [a, b] = [a, b].map(|node| &network.nodes[*node].name);
                format!("{a} - {b}")
            });
            let more = if without.len() > PAIRS_SHOWN { ", .." } else { "" };
            let names = names.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "\nno route between {} pairs of nodes: {names}{more}", without.len());
        }
        text
    }

    fn cell(&self, network: &Network, range: usize, from: usize, to: usize) -> String {
        let Some(hops) = self.route(range, from, to) else { return "-".into() };
        let took = time(1e3 * network.time(&hops, range, network.sizes[range]).sum());
        let device = network.device(hops[0].link);
        match hops.len() {
            1 => format!("{device}, {took}"),
            n => format!("{device} to {}, {n} hops, {took}", network.name(hops[0].to)),
        }
    }

    /// The table as a TOML file.
    ///
    /// # Errors
    /// `System` if it cannot be written as TOML.
    pub(crate) fn file(&self, network: &Network) -> Result<String> {
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let rows = pairs.filter_map(|(from, to)| {
            let mut hops = [self.next(0, from, to)?; RANGES.len()];
            for (range, hop) in hops.iter_mut().enumerate() {
                *hop = self.next(range, from, to)?;
            }
            Some(Row {
                from: &network.nodes[from].name,
                to: &network.nodes[to].name,
                next: hops.map(|hop| network.name(hop.to)),
                device: hops.map(|hop| network.device(hop.link)),
            })
        });
        let nodes = network.nodes.iter().map(|node| node.name.as_str()).collect();
        let file = File { version: VERSION, ranges: network.limits, nodes, routes: rows.collect() };
        toml::to_string(&file)
            .map_err(|e| Error::new(ErrorKind::System, "write the table of routes").cause(e.to_string()))
    }
}

/// The table in a file.
#[derive(Debug, Serialize)]
struct File<'a> {
    version: u32,
    /// Maximum lengths in bytes of small and of medium messages.
    ranges: [u64; RANGES.len() - 1],
    nodes: Vec<&'a str>,
    routes: Vec<Row<'a>>,
}

/// A row of the table: the next node and the device that leads there, for each range.
#[derive(Debug, Serialize)]
struct Row<'a> {
    from: &'a str,
    to: &'a str,
    next: [&'a str; RANGES.len()],
    device: [&'a str; RANGES.len()],
}

/// The sizes of a range.
pub(crate) fn range_text(network: &Network, range: usize) -> String {
    network.limits.get(range).map_or_else(|| "longer messages".to_owned(), |limit| format!("up to {}", size(*limit)))
}

#[cold]
fn lost_route(network: &Network, range: usize, way: &[usize], next: Option<usize>, to: usize) -> Error {
    let names: Vec<&str> = way.iter().chain(&next).map(|node| network.nodes[*node].name.as_str()).collect();
    let cause = format!("{} messages to {} are misrouted: {}", RANGES[range], network.nodes[to].name, names.join(", "));
    Error::new(ErrorKind::Protocol, "check the table of routes")
        .cause(cause)
        .remedy("this is a bug in `farside routes`: report it with the network description; no table was written")
}
