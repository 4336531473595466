//! The file of `FARSIDE_ROUTES`, which `farside routes --output` writes: for each pair of nodes and each size range,
//! the next node on the path and the device that leads there.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// The version of the file's format.
const VERSION: u32 = 1;
/// Maximum length of a file in bytes, and maximum number of nodes.
const MAX_FILE_BYTES: usize = 64 << 20;
const MAX_NODES: usize = 4096;
/// Maximum number of device names.
const MAX_DEVICES: usize = 256;
/// Number of ranges of sizes: small, medium, large.
const RANGES: usize = 3;
/// The size range whose next nodes are used, that of medium messages: a pair of ranks has only one connection.
const RANGE: usize = 1;

/// The first hop from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    next: u32,
    /// The number of the device of a direct route, by range of sizes.
    direct: [Option<u8>; RANGES],
}

/// The table of next nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoutingTable {
    nodes: FxHashMap<String, u32>,
    devices: Vec<String>,
    /// The rows, by sender and receiver.
    hops: FxHashMap<(u32, u32), Hop>,
    digest: u64,
}

/// A parsed file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    /// The lengths at which the size ranges begin, which are fixed in this version.
    #[serde(rename = "ranges")]
    _ranges: Option<IgnoredAny>,
    nodes: Vec<String>,
    #[serde(default)]
    routes: Vec<Row>,
}

/// A parsed row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    from: String,
    to: String,
    /// A node, and if the route is direct a device, for each range.
    next: Vec<String>,
    device: Option<Vec<String>>,
}

/// The name of this host, as used in tables.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

impl RoutingTable {
    /// Reads the file that the settings name; without one the table is empty.
    ///
    /// # Errors
    /// `Setting`.
    pub(crate) fn of(settings: &Settings) -> Result<Self> {
        let Some(path) = &settings.routes else { return Ok(Self::default()) };
        let read = std::fs::read_to_string(path).map_err(|e| e.to_string()).and_then(|text| Self::read(&text));
        read.map_err(|why| {
            Error::new(ErrorKind::Setting, "read the routing table")
                .cause(format!("FARSIDE_ROUTES: {path}: {why}"))
                .remedy("write the file with `farside routes NETWORK.toml --output FILE`, and copy it to every host")
        })
    }

    /// Parses a file.
    ///
    /// # Errors
    /// The malformed line or row, and the reason.
    pub(crate) fn read(text: &str) -> std::result::Result<Self, String> {
        if text.len() > MAX_FILE_BYTES {
            return Err(format!("the file has {} bytes, but at most {MAX_FILE_BYTES} are allowed", text.len()));
        }
        let File { version, nodes, routes, .. } = toml::from_str(text).map_err(|e| {
            let before = e.span().and_then(|at| text.get(..at.start)).unwrap_or_default();
            format!("line {}: {}", 1 + before.matches('\n').count(), e.message().trim().replace('\n', ", "))
        })?;
        if version != VERSION || nodes.len() > MAX_NODES {
            return Err(format!(
                "the file has version {version} and {} nodes, but only version {VERSION} with at most \
                 {MAX_NODES} nodes is supported",
                nodes.len()
            ));
        }
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        let nodes = nodes.into_iter().zip(0..).collect();
        let mut table = Self { nodes, digest: hasher.finish(), ..Self::default() };
        for row in &routes {
            table.add(row).map_err(|why| format!("the route from {:?} to {:?}: {why}", row.from, row.to))?;
        }
        Ok(table)
    }

    fn add(&mut self, row: &Row) -> std::result::Result<(), String> {
        let node =
            |name: &String| self.nodes.get(name).copied().ok_or_else(|| format!("{name:?} is not listed in `nodes`"));
        if [&row.next].into_iter().chain(&row.device).any(|names| names.len() != RANGES) {
            return Err(format!("`next` and `device` need a name for each of the {RANGES} size ranges"));
        }
        let (from, to) = (node(&row.from)?, node(&row.to)?);
        let next = row.next.iter().map(node).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut hop = Hop { next: next[RANGE], direct: [None; RANGES] };
        for (range, name) in row.device.iter().flatten().enumerate().filter(|(range, _)| next[*range] == to) {
            hop.direct[range] = Some(self.device(name)?);
        }
        self.hops.insert((from, to), hop);
        Ok(())
    }

    /// The number of a device's name.
    fn device(&mut self, name: &str) -> std::result::Result<u8, String> {
        let known = self.devices.iter().position(|known| known == name);
        let number = known.unwrap_or(self.devices.len());
        if number == MAX_DEVICES {
            return Err(format!("the file names more than {MAX_DEVICES} devices"));
        }
        if known.is_none() {
            self.devices.push(name.to_owned());
        }
        Ok(number as u8)
    }

    /// The node of a host, found by its name or by the part of its name before the first dot.
    pub(crate) fn node(&self, host: &str) -> Option<u32> {
        let short = host.split('.').next().unwrap_or(host);
        self.nodes.get(host).or_else(|| self.nodes.get(short)).copied()
    }

    /// The next node on the path.
    pub(super) fn next(&self, from: u32, to: u32) -> Option<u32> {
        self.hops.get(&(from, to)).map(|hop| hop.next)
    }

    /// The name of the device of a direct route between two nodes, by range of sizes.
    pub(crate) fn devices(&self, from: u32, to: u32) -> [Option<&str>; RANGES] {
        let direct = self.hops.get(&(from, to)).map_or([None; RANGES], |hop| hop.direct);
        direct.map(|number| self.devices.get(usize::from(number?)).map(String::as_str))
    }

    /// A number that differs between files, except by chance; 0 without a file.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"version = 1
ranges = [8192, 262144]
nodes = ["a", "b", "c"]

[[routes]]
from = "a"
to = "c"
next = ["c", "b", "b"]
device = ["tcp", "tcp", "tcp"]

[[routes]]
from = "b"
to = "c"
next = ["c", "c", "c"]
device = ["verbs", "tcp", "tcp:v1"]
"#;

    #[test]
    fn next_nodes_are_read() {
        let table = RoutingTable::read(FILE).unwrap();
        let node = |name: &str| table.node(name).unwrap();
        assert_eq!(table.next(node("a"), node("c.example.org")), Some(node("b")));
        assert_eq!(table.next(node("b"), node("c")), Some(node("c")));
        assert_eq!((table.next(node("c"), node("a")), table.node("d")), (None, None));
        // Other routes have no direct device.
        assert_eq!(table.devices(node("a"), node("c")), [Some("tcp"), None, None]);
        assert_eq!(table.devices(node("b"), node("c")), [Some("verbs"), Some("tcp"), Some("tcp:v1")]);
        assert_eq!(table.devices(node("c"), node("b")), [None; 3]);
        assert_ne!(table.digest(), RoutingTable::read(&FILE.replace("tcp:v1", "tcp:v2")).unwrap().digest());
        assert_eq!(RoutingTable::default().digest(), 0);
    }

    #[test]
    fn malformed_files_are_refused_with_the_line() {
        for (what, with, why) in [
            ("version = 1", "version = 2", "version"),
            ("to = \"c\"", "to = \"d\"", "\"d\" is not listed in `nodes`"),
            ("from = \"b\"", "from = \"b", "line 12"),
            ("[\"c\", \"b\", \"b\"]", "[\"c\"]", "3 size ranges"),
            ("\"tcp:v1\"]", "\"tcp\", \"tcp\"]", "3 size ranges"),
            ("from = \"a\"", "what = 1", "unknown field `what`"),
            ("nodes = [\"a\", ", "nodes = [\"a\" ", "line 3"),
        ] {
            assert!(FILE.contains(what));
            let e = RoutingTable::read(&FILE.replace(what, with)).unwrap_err();
            assert!(e.contains(why), "{what}: {e}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(at in 0usize..420, byte in any::<char>(), text in "\\PC*") {
            let cut: String = FILE.chars().take(at).chain([byte]).chain(FILE.chars().skip(at + 1)).collect();
            let _ = RoutingTable::read(&cut);
            let _ = RoutingTable::read(&text);
        }
    }
}
