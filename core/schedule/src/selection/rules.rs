//! Rules that fix algorithms, from the setting `FARSIDE_COLL`, from its file, and from measurements.

use std::fmt;
use std::io::Read as _;
use std::ops::RangeInclusive;

use super::class::nodes;
use super::{Choice, Class, Facts, Placement};
use crate::operation::{Call, Operation};

/// Maximum length of a file of rules in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// An algorithm for some calls of an operation. As text: `OPERATION RANKS BYTES PLACEMENT ALGORITHM`, where ranks and
/// bytes are a number, `LEAST-MOST` or `*`, and the placement is one of [`Placement::name`], `NODESxRANKS` for ranks on
/// NODES nodes with at most RANKS ranks each, or `*`.
///
/// ```
/// use farside_schedule::selection::Rule;
///
/// let rule: Rule = "allreduce 4-16 1024-2047 one-node butterfly".parse()?;
/// assert_eq!(rule.to_string(), "allreduce 4-16 1024-2047 one-node butterfly(512)");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    operation: Operation,
    ranks: RangeInclusive<u64>,
    /// Counted as in [`Facts::bytes`].
    bytes: RangeInclusive<u64>,
    placement: Option<Placement>,
    /// The number of nodes and the maximum number of ranks per node.
    nodes: Option<(u32, u32)>,
    choice: Choice,
}

const ALL: RangeInclusive<u64> = 0..=u64::MAX;

impl Rule {
    /// The choice for all calls of a class.
    #[must_use]
    pub fn of_class(class: &Class, choice: Choice) -> Self {
        let ranks = class.ranks.into();
        let Class { operation, placement, nodes, .. } = *class;
        Self { operation, ranks: ranks..=ranks, bytes: class.bytes(), placement: Some(placement), nodes, choice }
    }

    /// The rule for all calls of an operation, from `OPERATION:ALGORITHM`.
    fn of_item(item: &str) -> Result<Self, String> {
        let (name, algorithm) = item.split_once(':').ok_or_else(|| format!("{item:?} is not OPERATION:ALGORITHM"))?;
        let operation = operation(name.trim())?;
        let choice = Choice::parse(operation, algorithm.trim())?;
        Ok(Self { operation, ranks: ALL, bytes: ALL, placement: None, nodes: None, choice })
    }

    /// Whether the rule is for a call, and its algorithm can make it.
    fn holds(&self, call: &Call<'_>, facts: &Facts) -> bool {
        self.operation == call.operation
            && self.ranks.contains(&call.size.into())
            && self.bytes.contains(&facts.bytes)
            && self.placement.is_none_or(|placement| placement == facts.placement)
            && self.nodes.is_none_or(|of_rule| nodes(call, facts) == Some(of_rule))
            && self.choice.applies(call, facts)
    }

    /// Whether both rules are for the same calls.
    fn is_like(&self, other: &Self) -> bool {
        let of = |rule: &Self| (rule.operation, rule.ranks.clone(), rule.bytes.clone(), rule.placement, rule.nodes);
        of(self) == of(other)
    }
}

fn operation(name: &str) -> Result<Operation, String> {
    Operation::ALL.into_iter().find(|o| o.name() == name).ok_or_else(|| {
        format!("there is no operation {name:?}; allowed are {}", Operation::ALL.map(Operation::name).join(", "))
    })
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.parse::<u64>().ok();
    let found = match text.split_once('-') {
        _ if text == "*" => Some(ALL),
        Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| least..=most),
        None => number(text).map(|number| number..=number),
    };
    found.filter(|range| !range.is_empty()).ok_or_else(|| format!("{text:?} is not a number, LEAST-MOST or *"))
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().ok_or("it is not OPERATION RANKS BYTES PLACEMENT ALGORITHM");
        let (operation, ranks, bytes) = (operation(word()?)?, range(word()?)?, range(word()?)?);
        let counts = |text: &str| {
            let (nodes, most) = text.split_once('x')?;
            nodes.parse::<u32>().ok().zip(most.parse::<u32>().ok())
        };
        let (placement, nodes) = match word()? {
            "*" => (None, None),
            text if counts(text).is_some() => (Some(Placement::Anywhere), counts(text)),
            name => (
                Some(Placement::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
                    let names = Placement::ALL.map(Placement::name).join(", ");
                    format!("there is no placement {name:?}; allowed are {names}, NODESxRANKS, *")
                })?),
                None,
            ),
        };
        let algorithm = [word()?].into_iter().chain(words).collect::<String>();
        Ok(Self { operation, ranks, bytes, placement, nodes, choice: Choice::parse(operation, &algorithm)? })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |range: &RangeInclusive<u64>| match (*range.start(), *range.end()) {
            _ if *range == ALL => "*".to_owned(),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least}-{most}"),
        };
        let placement = match self.nodes {
            Some((nodes, most)) => format!("{nodes}x{most}"),
            None => self.placement.map_or("*", Placement::name).to_owned(),
        };
        let Self { operation, choice, .. } = self;
        write!(f, "{} {} {} {placement} {choice}", operation.name(), range(&self.ranks), range(&self.bytes))
    }
}

/// A list of rules; for a call, the last rule that holds for it is used. As text, each rule is a line; text after `#`
/// is a comment.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Parses a value of `FARSIDE_COLL`: `auto`, comma-separated items `OPERATION:ALGORITHM`, or the absolute path of a
    /// file of rules.
    ///
    /// # Errors
    /// A text with the setting, the item or line, and the allowed forms.
    pub fn of_setting(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("FARSIDE_COLL={text:?}: {why}");
        if text.trim() == "auto" {
            return Ok(Self::default());
        }
        if text.starts_with('/') {
            let mut rules = String::new();
            let file = std::fs::File::open(text).map_err(|e| wrong(e.to_string()))?;
            let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut rules);
            let read = read.map_err(|e| e.to_string());
            let read = read.and_then(|read| match read as u64 {
                0..=MAX_FILE_BYTES => rules.parse(),
                _ => Err(format!("the file has more than {MAX_FILE_BYTES} bytes")),
            });
            return read.map_err(wrong);
        }
        let mut depth = 0;
        let items = text.split(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth <= 0
        });
        items.map(|item| Rule::of_item(item.trim())).collect::<Result<_, _>>().map(Self).map_err(wrong)
    }

    /// The choice of the last rule that holds for a call and can make it.
    #[must_use]
    pub fn find(&self, call: &Call<'_>, facts: &Facts) -> Option<&Choice> {
        self.0.iter().rev().find(|rule| rule.holds(call, facts)).map(|rule| &rule.choice)
    }

    /// Adds a rule; it replaces a rule for the same calls.
    pub fn set(&mut self, rule: Rule) {
        self.0.retain(|other| !other.is_like(&rule));
        self.0.push(rule);
    }

    /// The rules that apply to a team of at most this many ranks.
    #[must_use]
    pub fn of_at_most(&self, ranks: u64) -> Self {
        Self(self.0.iter().filter(|rule| *rule.ranks.start() <= ranks).cloned().collect())
    }

    /// The text of the last rules, of up to `most` bytes.
    #[must_use]
    pub fn last(&self, most: usize) -> String {
        let lines: Vec<String> = self.0.iter().map(|rule| format!("{rule}\n")).collect();
        let mut room = most;
        let fits = |line: &&String| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        };
        let count = lines.iter().rev().take_while(fits).count();
        lines[lines.len() - count..].concat()
    }

    /// The rules, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::str::FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).enumerate();
        let rules = lines.filter(|(_, line)| !line.is_empty());
        let rule = |(number, line): (usize, &str)| line.parse().map_err(|why| format!("line {}: {why}", number + 1));
        rules.map(rule).collect::<Result<_, String>>().map(Self)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}
