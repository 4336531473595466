//! The explanation of a route: its hops and times, and why other routes are slower.

use std::fmt::Write as _;

use farside_core::plot::{size, time};

use super::fastest::Fastest;
use super::network::{Hop, Network, RANGES, Time};
use super::table::{Routes, range_text};

/// Maximum number of alternatives that are listed.
const SHOWN: usize = 5;

/// Explains the route of a message of `bytes`.
pub(crate) fn explain(network: &Network, routes: &Routes, from: usize, to: usize, bytes: u64) -> String {
    let range = network.range(bytes);
    let names = format!("{} to {}", network.nodes[from].name, network.nodes[to].name);
    let Some(route) = routes.route(range, from, to) else {
        return format!("{names}: no route; {}\n", why_no_route(network, from, to));
    };
    let limit = range_text(network, range);
    let mut text = format!("{names}, {}: {} messages, {limit}\n", size(bytes), RANGES[range]);
    let mut rows = Vec::new();
    let mut at = from as u32;
    for (n, hop) in route.iter().enumerate() {
        if n > 0 {
            let forward = network.nodes[at as usize].forward;
            rows.push([format!("{} forwards", network.name(at)), ns(forward), String::new()]);
        }
        let Time { latency, bytes, .. } = network.link_time(hop.link as usize, range, bytes);
        rows.push([
            step(network, at, hop),
            ns(latency + bytes),
            format!("latency {}, bytes {}", ns(latency), ns(bytes)),
        ]);
        at = hop.to;
    }
    let total = network.time(&route, range, bytes);
    let hops = if route.len() == 1 { "1 hop".to_owned() } else { format!("{} hops", route.len()) };
    rows.push(["in all".into(), ns(total.sum()), hops]);
    table(&mut text, &rows);
    let mut others = alternatives(network, &route, from, to, range, bytes);
    others.sort_by(|a, b| a.1.sum().total_cmp(&b.1.sum()));
    if others.is_empty() {
        text += "no other route\n";
        return text;
    }
    text += "alternatives\n";
    let rows = others.iter().take(SHOWN).map(|(way, took)| {
        let mut at = from as u32;
        let steps: Vec<String> = way.iter().map(|hop| step(network, std::mem::replace(&mut at, hop.to), hop)).collect();
        let refusing = way.iter().rev().skip(1).find(|hop| network.nodes[hop.to as usize].forward.is_infinite());
        let (took, why) = match refusing {
            Some(hop) => ("-".into(), format!("{} forwards nothing", network.name(hop.to))),
            None => (ns(took.sum()), difference(network, range, took, &total)),
        };
        [steps.join(", "), took, why]
    });
    let rows: Vec<_> = rows.collect();
    table(&mut text, &rows);
    if others.len() > SHOWN {
        let _ = writeln!(text, "  and {} slower ones", others.len() - SHOWN);
    }
    text
}

fn ns(microseconds: f64) -> String {
    time(1e3 * microseconds)
}

fn step(network: &Network, from: u32, hop: &Hop) -> String {
    format!("{} to {} by {}", network.name(from), network.name(hop.to), network.device(hop.link))
}

fn table(text: &mut String, rows: &[[String; 3]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    for [a, b, c] in rows {
        let _ = writeln!(text, "{}", format!("  {a:<first$}  {b:>second$}  {c}").trim_end());
    }
}

/// Text that says why a route is slower than another.
fn difference(network: &Network, range: usize, of: &Time, than: &Time) -> String {
    let more = of.sum() - than.sum();
    let parts = [
        ("latency", of.latency - than.latency),
        ("bytes", of.bytes - than.bytes),
        ("forwarding", of.forwarding - than.forwarding),
    ];
    let mut parts: Vec<_> = parts.into_iter().filter(|(_, part)| part.abs() >= 1e-6).collect();
    // The part that decides comes first.
    parts.sort_by(|a, b| (b.1 * more.signum()).total_cmp(&(a.1 * more.signum())));
    let parts =
        parts.iter().map(|(name, part)| format!("{name} {}{}", if *part < 0.0 { "-" } else { "+" }, ns(part.abs())));
    let parts = parts.collect::<Vec<_>>().join(", ");
    if more.abs() < 1e-6 {
        return "as fast".into();
    }
    if more < 0.0 {
        let chosen = size(network.sizes[range]);
        return format!("{} less at this size ({parts}); the range's routes are chosen for {chosen}", ns(-more));
    }
    format!("{} more: {parts}", ns(more))
}

/// For each node of a route, the fastest routes that leave the given route at this node over another link. The second
/// fastest route is among them (Yen 1971).
fn alternatives(
    network: &Network,
    route: &[Hop],
    from: usize,
    to: usize,
    range: usize,
    bytes: u64,
) -> Vec<(Vec<Hop>, Time)> {
    let fastest = Fastest::new(network, range, bytes);
    let mut found = Vec::new();
    let mut passed = vec![from as u32];
    for (n, chosen) in route.iter().enumerate() {
        let at = passed[n] as usize;
        let onward = if from == to { Vec::new() } else { fastest.toward(to, &passed) };
        let others = (0u32..).zip(&network.links).filter(|(link, _)| *link != chosen.link);
        for (link, next) in others.filter_map(|(link, of)| Some((link, of.other(at)?))) {
            if (next == at) != (from == to) {
                continue;
            }
            let mut way: Vec<Hop> = route[..n].to_vec();
            way.push(Hop { to: next as u32, link });
            let mut last = next;
            while last != to {
                // There is none if the node is already on the route, or leads nowhere.
                let Some((hop, _)) = onward[last] else { break };
                way.push(hop);
                last = hop.to as usize;
            }
            if last == to {
                let took = network.time(&way, range, bytes);
                found.push((way, took));
            }
        }
        passed.push(chosen.to);
    }
    found
}

/// Text that says why there is no route.
fn why_no_route(network: &Network, from: usize, to: usize) -> String {
    if from == to {
        return "no link joins the ranks of this node".into();
    }
    // There is a route, but its intermediate nodes do not forward.
    let onward = Fastest::new(network, 0, network.sizes[0]).toward(to, &[]);
    let (mut at, mut refusing) = (from, Vec::new());
    while let Some((hop, _)) = onward[at] {
        at = hop.to as usize;
        if at != to && network.nodes[at].forward.is_infinite() {
            refusing.push(network.nodes[at].name.as_str());
        }
    }
    if at == to {
        return format!("links lead there over {}, which may not forward (forward = inf)", refusing.join(", "));
    }
    let reached = (0..network.nodes.len()).filter(|node| onward[*node].is_some()).count();
    format!("no links lead there: {} is reached by {reached} other nodes", network.nodes[to].name)
}
