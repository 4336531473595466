//! The file of `FARSIDE_ROUTES`, which `farside routes --output` writes: the next node on the way from each node to each
//! other one. Only what that command writes is read, a small part of TOML.

use rustc_hash::FxHashMap;

/// The version of the file's format.
const VERSION: &str = "1";
/// Maximum length of a file, and number of nodes.
const LONGEST: usize = 64 << 20;
const MOST_NODES: usize = 4096;
/// The range of sizes whose routes are taken, as a pair of ranks has one connection: that of medium messages.
const RANGE: usize = 1;

/// The table of next nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    nodes: FxHashMap<String, u32>,
    /// By sender and receiver.
    next: FxHashMap<(u32, u32), u32>,
}

/// A string in quotes, which needs no escapes; returns it and the rest.
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

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// The line that is wrong, and how.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("{} bytes, {LONGEST} allowed", text.len()));
        }
        let (mut table, mut row, mut version) = (Self::default(), None, None);
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
            _ => Err(format!("no version, or another one than {VERSION}")),
        }
    }

    fn line<'a>(
        &mut self,
        line: &'a str,
        row: &mut Option<[&'a str; 3]>,
        version: &mut Option<&'a str>,
    ) -> Result<(), String> {
        if line == "[[routes]]" {
            self.add(row)?;
            *row = Some([""; 3]);
            return Ok(());
        }
        let (key, value) = line.split_once('=').ok_or("no key")?;
        let (key, value) = (key.trim(), value.trim());
        let one = || string(value).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name);
        match (key, row) {
            ("version", None) => *version = Some(value),
            ("nodes", None) => {
                let nodes = strings(value).filter(|nodes| nodes.len() <= MOST_NODES).ok_or("no list of nodes")?;
                self.nodes = (0..).zip(nodes).map(|(number, name)| (name.to_owned(), number)).collect();
            }
            ("from", Some(row)) => row[0] = one().ok_or("no node")?,
            ("to", Some(row)) => row[1] = one().ok_or("no node")?,
            ("next", Some(row)) => {
                row[2] = strings(value).and_then(|next| next.get(RANGE).copied()).ok_or("no nodes for three ranges")?;
            }
            ("ranges", None) | ("device", Some(_)) => {}
            _ => return Err(format!("{key:?} does not belong here")),
        }
        Ok(())
    }

    fn add(&mut self, row: &Option<[&str; 3]>) -> Result<(), String> {
        let Some(names) = row else { return Ok(()) };
        let node = |name: &str| self.nodes.get(name).copied().ok_or_else(|| format!("{name:?} is none of the nodes"));
        let [from, to, next] = names.map(node);
        self.next.insert((from?, to?), next?);
        Ok(())
    }

    /// The node of a host: by its name, or by what is before the first dot of it.
    pub(super) fn node(&self, host: &str) -> Option<u32> {
        let short = host.split('.').next().unwrap_or(host);
        self.nodes.get(host).or_else(|| self.nodes.get(short)).copied()
    }

    /// The next node on the way.
    pub(super) fn next(&self, from: u32, to: u32) -> Option<u32> {
        self.next.get(&(from, to)).copied()
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
device = ["tcp", "tcp", "tcp"]
"#;

    #[test]
    fn next_nodes_are_read() {
        let table = Table::read(FILE).unwrap();
        let node = |name: &str| table.node(name).unwrap();
        assert_eq!(table.next(node("a"), node("c.example.org")), Some(node("b")));
        assert_eq!(table.next(node("b"), node("c")), Some(node("c")));
        assert_eq!((table.next(node("c"), node("a")), table.node("d")), (None, None));
    }

    #[test]
    fn malformed_files_are_refused_with_the_line() {
        for (what, with, why) in [
            ("version = 1", "version = 2", "version"),
            ("to = \"c\"", "to = \"d\"", "\"d\" is none of the nodes"),
            ("from = \"b\"", "from = \"b", "line 12"),
            ("[\"c\", \"b\", \"b\"]", "[\"c\"]", "three ranges"),
            ("from = \"a\"", "what = 1", "does not belong here"),
            ("nodes = [\"a\", ", "nodes = [\"a\" ", "list of nodes"),
        ] {
            assert!(FILE.contains(what));
            let e = Table::read(&FILE.replace(what, with)).unwrap_err();
            assert!(e.contains(why), "{what}: {e}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(at in 0usize..400, byte in any::<char>(), text in "\\PC*") {
            let cut: String = FILE.chars().take(at).chain([byte]).chain(FILE.chars().skip(at + 1)).collect();
            let _ = Table::read(&cut);
            let _ = Table::read(&text);
        }
    }
}
