//! A network as a picture: for each range, its nodes and links, and how many routes use them.

use std::f64::consts::TAU;

use farside_core::plot::{color, size, time};
use farside_core::{Error, ErrorKind, Result};
use maud::{Markup, html};

use super::network::{Network, RANGES};
use super::table::{Routes, range_text};

/// Maximum number of nodes of a picture; more could not be distinguished.
const NODES: usize = 128;
/// Maximum number of links that are labelled with their devices and times.
const LABELS: usize = 24;
/// The side of a panel, and the radius of the circle of nodes, in units of the picture.
const SIDE: f64 = 420.0;
const RADIUS: f64 = 140.0;
/// Height of the title, and of a line of the legend.
const TOP: f64 = 30.0;
const LINE: f64 = 16.0;
/// Distance between two links of the same nodes.
const APART: f64 = 36.0;

/// Use of a network by the routes of a range.
struct Use {
    links: Vec<usize>,
    /// Routes that a node forwards.
    nodes: Vec<usize>,
}

impl Use {
    fn of(network: &Network, routes: &Routes, range: usize) -> Self {
        let nodes = network.nodes.len();
        let mut used = Self { links: vec![0; network.links.len()], nodes: vec![0; nodes] };
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let hops = routes.route(range, from, to).unwrap_or_default();
            hops.iter().for_each(|hop| used.links[hop.link as usize] += 1);
            hops.iter().rev().skip(1).for_each(|hop| used.nodes[hop.to as usize] += 1);
        }
        used
    }
}

/// The picture as SVG: links colored by device, thick if many routes use them and dashed if none does; nodes that
/// forward are filled.
///
/// # Errors
/// `BadArgument` for too many nodes.
pub(crate) fn svg(network: &Network, routes: &Routes) -> Result<String> {
    if network.nodes.len() > NODES {
        let cause = format!("{} nodes; a picture shows at most {NODES}", network.nodes.len());
        let e = Error::new(ErrorKind::BadArgument, "draw a network").cause(cause);
        return Err(e.remedy("leave --picture out, or describe a part of the network"));
    }
    let (width, legend) = (SIDE * RANGES.len() as f64, TOP + SIDE);
    let height = legend + LINE * (network.devices.len() + 1) as f64;
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) font-family="sans-serif" font-size="11" fill="#333" {
            rect width="100%" height="100%" fill="#fff" {}
            @for (range, name) in RANGES.iter().enumerate() {
                g transform=(format!("translate({} 0)", SIDE * range as f64)) {
                    text x="16" y="20" font-size="13" font-weight="600" { (name) ": " (range_text(network, range)) }
                    (panel(network, &Use::of(network, routes, range), range))
                }
            }
            @for (n, device) in network.devices.iter().enumerate() {
                @let y = legend + LINE * n as f64;
                line x1="16" x2="44" y1=(y) y2=(y) stroke=(color(n)) stroke-width="2.5" {}
                text x="52" y=(y + 4.0) { (device) }
            }
        }
    };
    Ok(picture.into_string())
}

fn panel(network: &Network, used: &Use, range: usize) -> Markup {
    let nodes = network.nodes.len();
    let place = |node: usize, radius: f64| {
        let angle = TAU * (node as f64 / nodes as f64 - 0.25);
        (SIDE / 2.0 + radius * angle.cos(), TOP + SIDE / 2.0 + radius * angle.sin())
    };
    let most = used.links.iter().copied().max().unwrap_or_default().max(1);
    html! {
        @for (n, link) in network.links.iter().enumerate() {
            @let [a, b] = link.ends;
            @let took = time(1e3 * network.link_time(n, range, network.sizes[range]).sum());
            @let device = &network.devices[link.device];
            // Links of the same two nodes bend away from each other.
            @let earlier = network.links[..n].iter().filter(|other| other.ends == link.ends).count();
            @let ((x1, y1), (x2, y2)) = (place(a, RADIUS), place(b, RADIUS));
            @let length = (x2 - x1).hypot(y2 - y1).max(1.0);
            @let bend = APART.min(length / 4.0) * earlier.div_ceil(2) as f64 * if earlier % 2 == 0 { 1.0 } else { -1.0 };
            @let inside = place(a, RADIUS + 44.0 + 16.0 * earlier as f64);
            @let (x, y) = if link.is_inside() { inside } else { ((x1 + x2) / 2.0 - bend * (y2 - y1) / length, (y1 + y2) / 2.0 + bend * (x2 - x1) / length) };
            @let count = used.links[n];
            @let stroke = if count == 0 { 1.0 } else { 1.5 + 3.0 * count as f64 / most as f64 };
            // The control point of a curve is twice as far from its ends as its middle.
            @let control = (2.0 * x - (x1 + x2) / 2.0, 2.0 * y - (y1 + y2) / 2.0);
            @let path = if link.is_inside() { loop_path((x1, y1), (x, y)) } else { format!("M{x1:.1} {y1:.1}Q{:.1} {:.1} {x2:.1} {y2:.1}", control.0, control.1) };
            path d=(path) fill="none" stroke=(color(link.device)) stroke-width=(format!("{stroke:.2}")) stroke-dasharray=(if count == 0 { "4 4" } else { "" }) opacity=(if count == 0 { 0.5 } else { 1.0 }) {
                title { (device) ", " (network.nodes[a].name) " - " (network.nodes[b].name) ": " (took) " for " (size(network.sizes[range])) ", " (count) " routes" }
            }
            @if network.links.len() <= LABELS {
                text x=(format!("{x:.1}")) y=(format!("{:.1}", y + 3.0)) text-anchor="middle" font-size="9" stroke="#fff" stroke-width="3" paint-order="stroke" fill=(color(link.device)) { (device) " " (took) }
            }
        }
        @for (n, node) in network.nodes.iter().enumerate() {
            @let ((x, y), (tx, ty)) = (place(n, RADIUS), place(n, RADIUS + 20.0));
            circle cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="7" fill=(if used.nodes[n] == 0 { "#fff" } else { "#777" }) stroke="#333" {
                title { (node.name) ": forwards " (used.nodes[n]) " routes" }
            }
            text x=(format!("{tx:.1}")) y=(format!("{:.1}", ty + 4.0)) text-anchor="middle" font-weight="600" stroke="#fff" stroke-width="3" paint-order="stroke" { (node.name) }
        }
    }
}

/// A loop from a node to a point outside the circle and back.
fn loop_path((x, y): (f64, f64), (far_x, far_y): (f64, f64)) -> String {
    let (dx, dy) = (far_x - x, far_y - y);
    let side = |sign: f64| (x + 1.33 * dx - sign * 0.8 * dy, y + 1.33 * dy + sign * 0.8 * dx);
    let ((ax, ay), (bx, by)) = (side(1.0), side(-1.0));
    format!("M{x:.1} {y:.1}C{ax:.1} {ay:.1} {bx:.1} {by:.1} {x:.1} {y:.1}")
}
