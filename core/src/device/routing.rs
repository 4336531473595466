//! The file of `FARSIDE_ROUTES`, which `farside routes --output` writes: from each node to each other one the next node on the
//! way and the device that leads there, for each range of sizes. Only what that command writes is read, a small part of TOML.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// The version of the file's format.
const VERSION: &str = "1";
/// Maximum length of a file in bytes, and maximum number of nodes.
const MAX_FILE_BYTES: usize = 64 << 20;
const MAX_NODES: usize = 4096;
/// Maximum number of names of devices.
const MAX_DEVICES: usize = 256;
/// Number of ranges of sizes: small, medium, large.
const RANGES: usize = 3;
/// The range whose next nodes are used, since a pair of ranks has one connection: that of medium messages.
const RANGE: usize = 1;

/// The first hop from a node to another one.
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

/// A row as it is read.
#[derive(Debug, Default)]
struct Row<'a> {
    from: &'a str,
    to: &'a str,
    next: [&'a str; RANGES],
    device: Option<[&'a str; RANGES]>,
}

/// The name of this host, as tables know it.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Reads a string in quotes, which has no escapes; returns it and the rest.
fn string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let (string, rest) = text[1..].split_once(quote)?;
    let is_plain = !string.contains(|c: char| c.is_control() || c == '\\' && quote == '"');
    is_plain.then_some((string, rest.trim_start()))
}

/// Strings between brackets.
fn strings(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (next, after) = string(rest)?;
        all.push(next);
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(all)
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
            Error::new(ErrorKind::Setting, "read the table of routes")
                .cause(format!("FARSIDE_ROUTES: {path}: {why}"))
                .remedy("make the file with `farside routes NETWORK.toml --output FILE`, on every host")
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The line that is wrong, and how.
    pub(crate) fn read(text: &str) -> std::result::Result<Self, String> {
        if text.len() > MAX_FILE_BYTES {
            return Err(format!("{} bytes, {MAX_FILE_BYTES} allowed", text.len()));
        }
        let (mut table, mut row, mut version) = (Self::default(), None, None);
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        table.digest = hasher.finish();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = table.line(line, &mut row, &mut version);
            read.map_err(|why| format!("line {number}: {why}"))?;
        }
        table.add(&row).map_err(|why| format!("the last row: {why}"))?;
        match version {
            Some(VERSION) => Ok(table),
            _ => Err(format!("no version, or a version other than {VERSION}")),
        }
    }

    fn line<'a>(
        &mut self,
        line: &'a str,
        row: &mut Option<Row<'a>>,
        version: &mut Option<&'a str>,
    ) -> std::result::Result<(), String> {
        if line == "[[routes]]" {
            self.add(row)?;
            *row = Some(Row::default());
            return Ok(());
        }
        let (key, value) = line.split_once('=').ok_or("no key")?;
        let (key, value) = (key.trim(), value.trim());
        let one = || string(value).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name);
        let each = || strings(value).and_then(|names| <[&str; RANGES]>::try_from(names).ok());
        match (key, row) {
            ("version", None) => *version = Some(value),
            ("nodes", None) => {
                let nodes = strings(value).filter(|nodes| nodes.len() <= MAX_NODES).ok_or("no list of nodes")?;
                self.nodes = (0..).zip(nodes).map(|(number, name)| (name.to_owned(), number)).collect();
            }
            ("from", Some(row)) => row.from = one().ok_or("no node")?,
            ("to", Some(row)) => row.to = one().ok_or("no node")?,
            ("next", Some(row)) => row.next = each().ok_or("no nodes for three ranges")?,
            ("device", Some(row)) => row.device = Some(each().ok_or("no devices for three ranges")?),
            ("ranges", None) => {}
            _ => return Err(format!("{key:?} does not belong here")),
        }
        Ok(())
    }

    fn add(&mut self, row: &Option<Row<'_>>) -> std::result::Result<(), String> {
        let Some(row) = row else { return Ok(()) };
        let node =
            |name: &str| self.nodes.get(name).copied().ok_or_else(|| format!("{name:?} is not one of the nodes"));
        let (from, to, next) = (node(row.from)?, node(row.to)?, row.next.map(node));
        let mut hop = Hop { next: next[RANGE].clone()?, direct: [None; RANGES] };
        for (range, next) in next.into_iter().enumerate() {
            let is_direct = next? == to;
            if let Some(names) = row.device.filter(|_| is_direct) {
                hop.direct[range] = Some(self.device(names[range])?);
            }
        }
        self.hops.insert((from, to), hop);
        Ok(())
    }

    /// The number of a device's name.
    fn device(&mut self, name: &str) -> std::result::Result<u8, String> {
        let known = self.devices.iter().position(|known| known == name);
        let number = known.unwrap_or(self.devices.len());
        if number == MAX_DEVICES {
            return Err(format!("more than {MAX_DEVICES} devices"));
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

    /// The next node on the way.
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
            ("to = \"c\"", "to = \"d\"", "\"d\" is not one of the nodes"),
            ("from = \"b\"", "from = \"b", "line 12"),
            ("[\"c\", \"b\", \"b\"]", "[\"c\"]", "nodes for three ranges"),
            ("\"tcp:v1\"]", "\"tcp\", \"tcp\"]", "devices for three ranges"),
            ("from = \"a\"", "what = 1", "does not belong here"),
            ("nodes = [\"a\", ", "nodes = [\"a\" ", "list of nodes"),
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
