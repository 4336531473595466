//! Routes compared with exhaustive search, tables without cycles, and wrong descriptions.

use farside_core::ErrorKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::description::{EXAMPLE, parse};
use super::explain::explain;
use super::network::{Hop, Link, Measured, Network, Node, Performance, parse_size};
use super::picture::svg;
use super::table::Routes;

/// Sizes whose times are whole microseconds at the bandwidths of random networks.
const SIZES: [u64; 3] = [100, 10_000, 1_000_000];

/// A network of up to `most` nodes with two devices, whose times are small whole microseconds, so that many routes are
/// equally fast. Some nodes forward nothing.
fn random(seed: u64, most: usize) -> Network {
    let mut rng = StdRng::seed_from_u64(seed);
    let nodes = rng.random_range(2..=most);
    let (density, is_weighed) = (rng.random_range(0.1..0.45), rng.random_bool(0.7));
    let mut network = Network {
        limits: [1000, 100_000],
        sizes: SIZES,
        devices: vec!["verbs".into(), "tcp".into()],
        ..Network::default()
    };
    for n in 0..nodes {
        let weight = if is_weighed { f64::from(rng.random_range(0..40)) } else { 0.0 };
        let forward = if rng.random_bool(0.1) { f64::INFINITY } else { weight };
        network.nodes.push(Node { name: format!("n{n}"), forward });
    }
    for (a, b) in (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))) {
        for (device, density) in [density, density / 3.0].into_iter().enumerate() {
            if rng.random_bool(density) {
                let measured = std::array::from_fn(|_| Measured {
                    latency: f64::from(rng.random_range(1..30)),
                    bandwidth: [10.0, 20.0, 50.0, 100.0][rng.random_range(0..4)],
                });
                network.performances.push(Performance::Measured(measured));
                network.links.push(Link { ends: [a, b], device, performance: network.performances.len() - 1 });
            }
        }
    }
    network
}

/// The nodes that a link joins to each node, with the time of the link.
fn neighbours(network: &Network, range: usize) -> Vec<Vec<(usize, u64)>> {
    let of = |at| {
        let neighbour = |link: &Link| {
            let Performance::Measured(of) = network.performances[link.performance] else { unreachable!() };
            Some((link.other(at)?, of[range].latency as u64 + SIZES[range] / of[range].bandwidth as u64))
        };
        network.links.iter().filter_map(neighbour).collect()
    };
    (0..network.nodes.len()).map(of).collect()
}

/// The minimum time of all simple paths to each node that continue from node `at` without the nodes in `seen`, by
/// exhaustive search.
fn search(nodes: &[Node], neighbours: &[Vec<(usize, u64)>], at: usize, seen: u32, took: u64, best: &mut [Option<u64>]) {
    for &(next, takes) in &neighbours[at] {
        if seen & 1 << next != 0 {
            continue;
        }
        let took = took + takes;
        best[next] = Some(best[next].map_or(took, |best| best.min(took)));
        let forward = nodes[next].forward;
        if forward.is_finite() {
            search(nodes, neighbours, next, seen | 1 << next, took + forward as u64, best);
        }
    }
}

#[test]
fn routes_are_those_of_exhaustive_search() {
    let (mut forwarded, mut missing) = (0, 0);
    for seed in 0..200 {
        let network = random(seed, 12);
        let routes = Routes::of(&network);
        routes.check(&network).unwrap();
        for (range, bytes) in SIZES.into_iter().enumerate() {
            let neighbours = neighbours(&network, range);
            for from in 0..network.nodes.len() {
                let mut best = vec![None; network.nodes.len()];
                search(&network.nodes, &neighbours, from, 1 << from, 0, &mut best);
                for (to, best) in best.into_iter().enumerate().filter(|(to, _)| *to != from) {
                    let route = routes.route(range, from, to);
                    forwarded += usize::from(route.as_ref().is_some_and(|hops| hops.len() > 1));
                    missing += usize::from(route.is_none());
                    let took = route.map(|hops| network.time(&hops, range, bytes).sum());
                    assert_eq!(took, best.map(|best| best as f64), "network {seed}, range {range}, {from} to {to}");
                }
            }
        }
    }
    assert!(forwarded > 1000 && missing > 100, "{forwarded} forwarded, {missing} without a route");
}

#[test]
fn tables_of_random_networks_have_no_cycles() {
    for seed in 1000..1100 {
        let network = random(seed, 40);
        let routes = Routes::of(&network);
        routes.check(&network).unwrap();
        // A route's tail is the route from there: tables of several nodes agree.
        for (from, to) in (0..network.nodes.len()).flat_map(|a| (0..network.nodes.len()).map(move |b| (a, b))) {
            let Some(route) = routes.route(1, from, to) else { continue };
            if from != to && route.len() > 1 {
                assert_eq!(routes.route(1, route[0].to as usize, to).as_deref(), Some(&route[1..]));
            }
        }
    }
}

#[test]
fn table_with_a_circle_or_a_false_link_is_refused() {
    let network = parse("net", &triangle("", "forward = 1.0")).unwrap();
    let routes = Routes::of(&network);
    routes.check(&network).unwrap();
    // Hops to c: from a over b, and from b over a with the same link.
    for (at, to, link) in [(3 + 2, 0, 0), (2, 2, 0), (2, 1, 7)] {
        let mut wrong = routes.clone();
        wrong.hops[1][at] = Some(Hop { to, link });
        let e = wrong.check(&network).unwrap_err().to_string();
        assert!(e.contains("medium messages to c are misrouted"), "{e}");
    }
    let mut cut = routes;
    cut.hops[0][3 + 2] = None;
    assert!(cut.check(&network).unwrap_err().to_string().contains("are misrouted: a, b"));
}

/// Three nodes of which a and c have no fast link.
fn triangle(slow: &str, head: &str) -> String {
    format!(
        "ranges = [1000, '64KiB']\nsizes = [100, 10000, 1000000]\n{head}\n\
         nodes = [{{ name = 'a' }}, {{ name = 'b' }}, {{ name = 'c' }}]\n\
         links = [{{ device = 'verbs', between = ['a', 'b'] }}, {{ device = 'verbs', between = ['b', 'c'] }}{slow}]\n\
         [devices]\nverbs.model = 'L=1,G=0.0001'\n\
         tcp.small = {{ latency = 50, bandwidth = 100 }}\ntcp.medium = {{ latency = 60, bandwidth = 100 }}\n\
         tcp.large = {{ latency = 70, bandwidth = 100 }}\n"
    )
}

const SLOW: &str = ", { device = 'tcp', between = ['a', 'c'] }";

/// The numbers of hops from a to c.
fn hops(text: &str) -> [Option<usize>; 3] {
    let network = parse("net", text).unwrap();
    let routes = Routes::of(&network);
    std::array::from_fn(|range| routes.route(range, 0, 2).map(|hops| hops.len()))
}

#[test]
fn pair_without_a_link_is_forwarded_and_weights_turn_that_off() {
    assert_eq!(hops(&triangle("", "")), [Some(2); 3]);
    assert_eq!(hops(&triangle("", "forward = inf")), [None; 3]);
    // Two fast hops beat a slow one, until forwarding costs more than that: 51 and 10070 microseconds.
    assert_eq!(hops(&triangle(SLOW, "")), [Some(2); 3]);
    assert_eq!(hops(&triangle(SLOW, "forward = 55.0")), [Some(1), Some(2), Some(2)]);
    assert_eq!(hops(&triangle(SLOW, "forward = 1e6")), [Some(1); 3]);
    assert_eq!(hops(&triangle(SLOW, "forward = inf")), [Some(1); 3]);
    let own = triangle(SLOW, "").replace("{ name = 'b' }", "{ name = 'b', forward = 1e6 }");
    assert_eq!(hops(&own), [Some(1); 3]);
}

#[test]
fn explanation_has_hops_times_and_alternatives() {
    let said = |text: &str, from, to, bytes| {
        let network = parse("net", text).unwrap();
        explain(&network, &Routes::of(&network), from, to, bytes)
    };
    let has = |text: &str, parts: &[&str]| parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    let forwarded = said(&triangle(SLOW, "forward = 5.0"), 0, 2, 10_000);
    has(&forwarded, &["a to c, 9.8 KiB: medium messages, up to 64 KiB", "a to b by verbs", "b forwards", "5 µs"]);
    has(
        &forwarded,
        &["9 µs  2 hops", "a to c by tcp", "160 µs", "151 µs more: bytes +98 µs, latency +58 µs, forwarding -5 µs"],
    );
    // The slow link is the faster one at the end of its range.
    let at_the_end = said(&triangle(SLOW, "forward = 49.5"), 0, 2, 1000);
    has(
        &at_the_end,
        &[
            "a to c by tcp",
            "60 µs",
            "51.7 µs",
            "8.3 µs less at this size (latency -48 µs, bytes -9.8 µs",
            "chosen for 100 B",
        ],
    );
    let refused = said(&triangle(SLOW, "forward = inf"), 0, 2, 10);
    has(&refused, &["1 hop", "a to b by verbs, b to c by verbs", "b forwards nothing"]);
    let none = said(&triangle("", "forward = inf"), 0, 2, 10);
    has(&none, &["a to c: no route; links lead there over b, which may not forward"]);
    let apart = triangle("", "").replace(", { device = 'verbs', between = ['b', 'c'] }", "");
    has(&said(&apart, 0, 2, 10), &["no route; no links lead there: c is reached by 0 other nodes"]);
    has(&said(&triangle("", ""), 0, 2, 10), &["no other route"]);
    has(&said(&triangle("", ""), 1, 1, 10), &["b to b: no route; no link joins the ranks of this node"]);
    has(&said(EXAMPLE, 1, 1, 8), &["b to b by shm", "no other route"]);
}

#[test]
fn text_file_and_picture_of_the_example() {
    let network = parse("net", EXAMPLE).unwrap();
    let routes = Routes::of(&network);
    routes.check(&network).unwrap();
    let text = routes.text(&network);
    for part in ["small   up to 8 KiB", "routes of a\n  to  small", "verbs to b, 2 hops, 11.", "shm, 209 ns", "large"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file: toml::Table = routes.file(&network).unwrap().parse().unwrap();
    assert_eq!((file["version"].as_integer(), file["ranges"][1].as_integer()), (Some(1), Some(256 << 10)));
    let row = file["routes"].as_array().unwrap().iter();
    let row = row.clone().find(|row| row["from"].as_str() == Some("a") && row["to"].as_str() == Some("c")).unwrap();
    assert_eq!((row["next"][0].as_str(), row["device"][0].as_str()), (Some("b"), Some("verbs")));
    let svg = svg(&network, &routes).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<path").count() == 3 * network.links.len(), "{svg}");
    assert!(svg.contains("b: forwards 2 routes") && svg.contains("stroke-dasharray=\"4 4\"") && !svg.contains("NaN"));
    let hostile = parse("net", &EXAMPLE.replace("\"a\"", "\"<script>\"")).unwrap();
    let svg = super::picture::svg(&hostile, &Routes::of(&hostile)).unwrap();
    assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"));
}

#[test]
fn pairs_without_a_route_are_reported() {
    let text = triangle("", "forward = inf");
    let network = parse("net", &text).unwrap();
    let routes = Routes::of(&network);
    assert_eq!(routes.unreachable(), [[0, 2]]);
    assert!(routes.text(&network).contains("no route between 1 pairs of nodes: a - c"));
}

#[test]
fn wrong_description_is_refused_with_line_field_and_remedy() {
    // Where the text of the example is replaced, by which text, and parts of the error.
    let cases: &[(&str, &str, &str)] = &[
        ("forward = 5.0", "forwards = 5.0", "line 4: unknown field `forwards`"),
        ("forward = 5.0", "forward = -1", "line 4: forward: -1 is not a time; give microseconds"),
        ("forward = 8.0", "forward = nan", "line 25: forward: NaN is not a time"),
        ("forward = 5.0", "forward = ", "line 4"),
        ("ranges = [\"8KiB\", \"256KiB\"]", "", "missing field `ranges`"),
        ("\"256KiB\"]", "\"8KiB\"]", "line 2: ranges: limits of 8192 and 8192 bytes leave a range empty"),
        ("\"256KiB\"]", "\"1KiB\", 1]", "line 2: ranges: 3 limits given, but 2 are needed"),
        ("\"256KiB\"]", "\"256kB\"]", "line 2: \"256kB\" is not a number of bytes"),
        ("\"8KiB\"", "-1", "line 2: \"-1\" is not a number of bytes"),
        ("forward = 5.0", "sizes = [1, 2, 3]", "line 4: sizes: 1, 2 and 3 bytes are not one size of each range"),
        ("latency = 25.0", "latency = -25.0", "line 8: devices.tcp.small.latency: -25 is not a time"),
        ("bandwidth = 117.0", "bandwidth = 0", "line 10: devices.tcp.large.bandwidth: 0 is not a bandwidth"),
        ("bandwidth = 117.0", "bandwidth = \"fast\"", "line 10: invalid type: string \"fast\""),
        (
            "medium = { latency = 40.0, bandwidth = 110.0 }\n",
            "",
            "devices.tcp: neither a model nor the times of all three",
        ),
        ("\"L=1.1,o=0.2,G=0.0001\"", "\"L=x\"", "line 14: devices.verbs.model: \"L=x\" needs a number of at least 0"),
        ("\"L=1.1,o=0.2,G=0.0001\"", "\"L=1e300\"", "devices.verbs: a message takes more than 1e12 microseconds"),
        ("model = \"L=0.1,o=0.05,G=0.0001\"", "", "devices.shm: neither a model"),
        ("name = \"c\"", "name = \"b\"", "line 28: nodes.name: two nodes are called \"b\""),
        ("name = \"c\"", "name = \"c d\"", "line 28: nodes.name: \"c d\" is not a name; a name has 1 to 64"),
        ("name = \"c\"", "name = 7", "line 28: invalid type: integer `7`"),
        (
            "device = \"tcp\"",
            "device = \"ib\"",
            "line 32: links.device: neither the link nor [devices] has the performance of \"ib\"; add [devices.ib]",
        ),
        (
            "[\"a\", \"b\", \"c\"]",
            "[\"a\", \"b\", \"d\"]",
            "line 33: links.between: there is no node \"d\"; name a node of [[nodes]]",
        ),
        ("[\"a\", \"b\", \"c\"]", "[\"a\", \"a\"]", "line 33: links.between: the list is empty, or names a node twice"),
        ("[\"a\", \"b\", \"c\"]", "[]", "line 33: links.between: the list is empty, or names a node twice"),
        ("[\"b\", \"c\"]\nperf", "[\"a\", \"b\"]\nperf", "line 42: links.between: two links by verbs join a and b"),
        ("\"L=1.9,o=0.2,G=0.0002\"", "\"L=-1\"", "line 43: links.performance.model: \"L=-1\" needs"),
    ];
    for (from, to, part) in cases {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE, "{from}");
        let e = parse("net.toml", &text).unwrap_err();
        let text = e.to_string();
        assert!(
            e.kind() == ErrorKind::BadArgument && text.contains("net.toml, line ") && text.contains(part),
            "{part:?}: {text}"
        );
        assert!(text.lines().count() == 1, "{text}");
    }
    let nested = format!("ranges = {}", "[".repeat(100_000));
    let many = format!("nodes = [{}]\nlinks = []\nranges = [1, 2]", "{ name = 'a' },".repeat(2000));
    for (text, part) in [
        ("", "missing field"),
        ("\0", "line 1"),
        (nested.as_str(), "line 1"),
        (&many, "2000 nodes given, but 1 to 1024"),
    ] {
        let e = parse("net.toml", text).unwrap_err().to_string();
        assert!(e.contains(part), "{part}: {e}");
    }
}

#[test]
fn damaged_descriptions_are_read_or_refused() {
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..2000 {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..3) {
                0 => bytes[at] = rng.random_range(9..127),
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(bytes.len() - at / 8),
            }
        }
        if let Ok(network) = parse("net", &String::from_utf8_lossy(&bytes)) {
            Routes::of(&network).check(&network).unwrap();
        }
    }
}

#[test]
fn sizes_have_units() {
    let read = ["0", "512", "512B", "64KiB", "1 MiB", "1TiB"].map(|text| parse_size(text).unwrap());
    assert_eq!(read, [0, 512, 512, 65536, 1 << 20, 1 << 40]);
    for wrong in ["", "KiB", "-1", "1.5KiB", "64kB", "64KiBB", "2TiB", "99999999999999999999", "18014398509481985KiB"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
}
