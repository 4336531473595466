//! Algorithms with values of their parameters, and their text.

use std::fmt;

use super::Facts;
use crate::operation::{Algorithm, Call, Operation};
use crate::{table, two_level};

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
        let values: Vec<String> = (0..self.parameters.len()).map(|index| self.value(index)).collect();
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
    /// The names of the values of parameter `index`; empty if its values are numbers.
    #[must_use]
    pub fn value_names(&self, index: usize) -> &'static [&'static str] {
        two_level::names(self.algorithm, index)
    }

    /// The value of parameter `index`, as text.
    ///
    /// # Panics
    /// If the algorithm has no such parameter.
    #[must_use]
    pub fn value(&self, index: usize) -> String {
        let value = self.parameters[index];
        let name = self.value_names(index).get(value as usize);
        name.map_or_else(|| value.to_string(), |name| (*name).to_owned())
    }

    /// Parses `name` or `name(value,...)`; parameters after the last value have their defaults.
    ///
    /// # Errors
    /// A description of the mistake and of the allowed values.
    pub fn parse(operation: Operation, text: &str) -> Result<Self, String> {
        let (name, list) = match text.split_once('(') {
            None => (text, ""),
            Some((name, list)) => (name, list.strip_suffix(')').ok_or("the list of parameters does not end with `)`")?),
        };
        let algorithm = table::named(operation, name.trim()).ok_or_else(|| {
            let mut all = String::new();
            for a in table::of(operation) {
                let names: Vec<&str> = a.parameters.iter().map(|p| p.name).collect();
                all += if all.is_empty() { "" } else { ", " };
                // Writing to a string does not fail.
                let _ = write_with_list(&mut all, a.name, &names);
            }
            format!("{} has no algorithm of this name; allowed are {all}", operation.name())
        })?;
        let given: Vec<&str> = list.split(',').map(str::trim).filter(|_| !list.trim().is_empty()).collect();
        if given.len() > algorithm.parameters.len() {
            return Err(format!(
                "{} has {} parameters, but {} are given",
                algorithm.name,
                algorithm.parameters.len(),
                given.len()
            ));
        }
        let mut parameters = algorithm.defaults();
        for (index, (text, p)) in given.into_iter().zip(algorithm.parameters).enumerate() {
            let names = two_level::names(algorithm, index);
            let number = match names.iter().position(|name| *name == text) {
                Some(at) => Some(at as u32),
                None if names.is_empty() => text.parse().ok().filter(|v| (p.least..=p.most).contains(v)),
                None => None,
            };
            let allowed = || if names.is_empty() { format!("{} to {}", p.least, p.most) } else { names.join(", ") };
            parameters[index] =
                number.ok_or_else(|| format!("{} is {text:?}, but allowed are {} ({})", p.name, allowed(), p.help))?;
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
