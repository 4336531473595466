//! Warnings for environment variables that look like settings but are not.

use crate::say::say;
use crate::settings::TABLE;

/// Prefix of the names of all settings.
const PREFIX: &str = "FARSIDE_";

/// Other variables with this prefix: those of the compiler wrappers, tests and benchmarks.
const OTHERS: [&str; 9] = [
    "FARSIDE_CC",
    "FARSIDE_CXX",
    "FARSIDE_C_PROGRAM",
    "FARSIDE_INSTRUCTIONS_BIN",
    "FARSIDE_MPI",
    "FARSIDE_PEERS",
    "FARSIDE_PEERS_BUSY",
    "FARSIDE_PEERS_LIMIT_S",
    "FARSIDE_WRITE",
];
const OTHER_PREFIXES: [&str; 2] = ["FARSIDE_TEST_", "FARSIDE_SOAK_"];

/// Warns on stderr of each variable of the environment whose name looks like that of a setting.
pub fn warn() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    warnings(names).iter().for_each(|warning| say(format_args!("{warning}")));
}

/// A warning for each variable with the prefix that is not a setting, with the setting whose name is nearest.
fn warnings(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known = |name: &str| {
        TABLE.iter().any(|setting| setting.name == name)
            || OTHERS.contains(&name)
            || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && !is_known(name)).collect();
    unknown.sort_unstable();
    unknown.iter().map(|name| warning(name)).collect()
}

fn warning(name: &str) -> String {
    let known = TABLE.iter().map(|setting| setting.name).chain(OTHERS);
    let nearest = known.map(|known| (distance(name, known), known)).min();
    match nearest {
        // If more than half of the letters after the prefix differ, the nearest setting is unlikely to be the intended
        // one.
        Some((far, _)) if far > (name.len() - PREFIX.len()).div_ceil(2) => {
            format!("{name} is set, but is not a setting: `farside info` lists them")
        }
        Some((_, nearest)) => format!("{name} is set, but is not a setting: did you mean {nearest}?"),
        None => String::new(),
    }
}

/// Edit distance (Levenshtein): the number of letters to add, remove or replace to turn `from` into `to`.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        let far = |from, to| distance(from, to);
        assert_eq!([far("", "abc"), far("abc", "abc"), far("kitten", "sitting"), far("ab", "ba")], [3, 0, 3, 2]);
    }

    #[test]
    fn a_mistyped_name_is_a_warning_with_the_nearest_one() {
        let names = ["HOME", "FARSIDE_DEVCE", "FARSIDE_SHMDIR", "FARSIDE_XYZXYZXYZ", "FARSIDE_WAIT", "FARSIDE_TEST_X"];
        let found = warnings(names.map(str::to_owned).into_iter());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].contains("FARSIDE_DEVCE is set") && found[0].contains("did you mean FARSIDE_DEVICE?"),
            "{found:?}"
        );
        assert!(found[1].contains("did you mean FARSIDE_SHM_DIR?"), "{found:?}");
        assert!(found[2].contains("farside info"), "{found:?}");
        let all = TABLE.iter().map(|setting| setting.name).chain(OTHERS).map(str::to_owned);
        assert_eq!(warnings(all), Vec::<String>::new());
    }
}
