//! Selection of the algorithm of a call: the first row of a table of conditions that holds, unless a setting fixes one.
//!
//! The choice must be the same at all ranks of a call, so it uses only facts that are the same at all of them.

mod rows;

use std::fmt;

pub use rows::{ROWS, Row, Value};

use super::operation::{Algorithm, Call, Operation};
use super::table;
use crate::error::{Error, ErrorKind};

/// Placement of a team's ranks; each variant is a special case of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Any nodes.
    Anywhere,
    /// All on one node.
    OneNode,
    /// All on one node, where ranks of the job share processors.
    OversubscribedNode,
}

/// Facts beside the call on which the choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the vector; in an allgather or reduce_scatter, of all blocks together; in other operations with blocks
    /// by rank, of a block on average. 0 if not every rank knows the sizes.
    pub bytes: u64,
    /// Whether the reduction is commutative; `true` without a reduction.
    pub commutative: bool,
    /// Placement of the team's ranks.
    pub placement: Placement,
}

impl Facts {
    /// Facts of a call whose elements have `element` bytes.
    #[must_use]
    pub fn new(call: &Call<'_>, element: u64, commutative: bool, placement: Placement) -> Self {
        use Operation as O;
        let p = u64::from(call.size);
        let all = match call.operation {
            O::Barrier | O::NeighborAllgather | O::NeighborAlltoall => 0,
            _ if call.operation.is_of_a_vector() => call.elements,
            _ if !call.sizes_known => 0,
            _ if call.sizes.is_empty() => call.elements.saturating_mul(p),
            // The sizes differ between ranks.
            O::Alltoall => 0,
            _ => call.sizes.iter().copied().fold(0, u64::saturating_add),
        };
        let by_block = matches!(call.operation, O::Scatter | O::Gather | O::Alltoall);
        let elements = if by_block { all / p } else { all };
        Self { bytes: elements.saturating_mul(element), commutative, placement }
    }
}

/// An algorithm with values of its parameters: `name(value,...)`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Values of [`Algorithm::parameters`], in their order.
    pub parameters: Vec<u32>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.parameters.iter().map(u32::to_string).collect();
        write_with_list(f, self.algorithm.name, &values)
    }
}

/// Writes a name and, if there are any, values or names of parameters.
fn write_with_list(f: &mut impl fmt::Write, name: &str, list: &[impl AsRef<str>]) -> fmt::Result {
    f.write_str(name)?;
    for (i, item) in list.iter().enumerate() {
        f.write_str(if i == 0 { "(" } else { "," })?;
        f.write_str(item.as_ref())?;
    }
    f.write_str(if list.is_empty() { "" } else { ")" })
}

impl Choice {
    /// Reads `name` or `name(value,...)`; parameters after the last value have their defaults.
    ///
    /// # Errors
    /// Text that says what is wrong, and what is allowed.
    pub fn parse(operation: Operation, text: &str) -> Result<Self, String> {
        let (name, list) = match text.split_once('(') {
            None => (text, ""),
            Some((name, list)) => (name, list.strip_suffix(')').ok_or("it does not end with )")?),
        };
        let algorithm = table::named(operation, name.trim()).ok_or_else(|| {
            let mut all = String::new();
            for a in table::of(operation) {
                let names: Vec<&str> = a.parameters.iter().map(|p| p.name).collect();
                all += if all.is_empty() { "" } else { ", " };
                // Writing to a string does not fail.
                let _ = write_with_list(&mut all, a.name, &names);
            }
            format!("{} has no algorithm of this name: allowed: {all}", operation.name())
        })?;
        let given: Vec<&str> = list.split(',').map(str::trim).filter(|_| !list.trim().is_empty()).collect();
        if given.len() > algorithm.parameters.len() {
            return Err(format!("{} has {} parameters", algorithm.name, algorithm.parameters.len()));
        }
        let mut parameters = algorithm.defaults();
        for ((value, text), p) in parameters.iter_mut().zip(given).zip(algorithm.parameters) {
            let number = text.parse().ok().filter(|v| (p.least..=p.most).contains(v));
            *value = number
                .ok_or_else(|| format!("{} is {text:?}: allowed: {} to {} ({})", p.name, p.least, p.most, p.help))?;
        }
        Ok(Self { algorithm, parameters })
    }

    /// Whether this choice can make a call.
    #[must_use]
    pub fn applies(&self, call: &Call<'_>, facts: &Facts) -> bool {
        let Self { algorithm, parameters } = self;
        (facts.commutative || !algorithm.commutative) && (algorithm.applies)(&Call { parameters, ..*call })
    }
}

/// Algorithms that a setting fixes for operations.
#[derive(Clone, Debug, Default)]
pub struct Fixed(Vec<(Operation, Choice)>);

impl Fixed {
    /// Reads `auto`, or items `operation:name` or `operation:name(value,...)` with commas between them, as in
    /// `FARSIDE_COLL`.
    ///
    /// # Errors
    /// `Setting`, naming the item, and what is allowed.
    pub fn parse(text: &str) -> crate::Result<Self> {
        if text.trim() == "auto" {
            return Ok(Self::default());
        }
        let mut depth = 0;
        let items = text.split(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth <= 0
        });
        items.map(|item| Self::item(item.trim())).collect::<Result<_, _>>().map(Self).map_err(|why| {
            Error::new(ErrorKind::Setting, "read the settings").cause(format!("FARSIDE_COLL={text:?}: {why}"))
        })
    }

    fn item(item: &str) -> Result<(Operation, Choice), String> {
        let (name, algorithm) = item.split_once(':').ok_or_else(|| format!("{item:?} is not OPERATION:ALGORITHM"))?;
        let operation = Operation::ALL.into_iter().find(|o| o.name() == name.trim()).ok_or_else(|| {
            format!("no operation {name:?}: allowed: {}", Operation::ALL.map(Operation::name).join(", "))
        })?;
        Choice::parse(operation, algorithm.trim()).map(|choice| (operation, choice))
    }

    /// The algorithm that is fixed for an operation; if there are several, the last one.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Option<&Choice> {
        self.0.iter().rev().find(|(o, _)| *o == operation).map(|(_, choice)| choice)
    }
}

/// The first row that holds for a call, and the choice that it makes.
///
/// # Panics
/// If no row holds, which cannot be: the last row of each operation is for every call.
#[must_use]
pub fn row(call: &Call<'_>, facts: &Facts) -> (&'static Row, Choice) {
    let rows = ROWS.iter().filter(|r| r.operation == call.operation && r.holds(call.size, facts));
    let mut choices = rows.filter_map(|r| Some((r, r.choice(facts)?)));
    choices.find(|(_, c)| c.applies(call, facts)).expect("the last row of an operation holds for every call")
}

/// The choice for a call: the fixed one, if it can make the call, else that of the table.
#[must_use]
pub fn select(call: &Call<'_>, facts: &Facts, fixed: Option<&Choice>) -> Choice {
    match fixed {
        Some(fixed) if fixed.applies(call, facts) => fixed.clone(),
        _ => row(call, facts).1,
    }
}
