//! The report on collectives: a table for each operation and number of ranks, the cases in which the selection is not
//! the best algorithm, and the targets relative to the best peer.

use std::collections::BTreeMap;

use farside_core::coll::operation::Operation;
use farside_core::coll::schedule::predict::PLogP;
use farside_core::coll::selection::Choice;
use farside_core::plot::{Axis, Curve, Drawn, Plot, page, size};
use maud::html;

use super::{Case, operation};
use crate::record::{Key, Library, Op, Record, Suite};
use crate::table::{number, text};
use crate::targets::Target;

/// The maximum ratio to the best algorithm at which a time counts as the best.
const MAX_RATIO_OF_BEST: f64 = 1.1;

/// The maximum ratio to the default at which a call counts as no slower.
const MAX_RATIO_TO_DEFAULT: f64 = 1.05;

/// A function that returns a time of a case in microseconds, and its name.
type Timed<'a> = &'a dyn Fn(&Case, Key) -> Option<(f64, String)>;

/// The records of one round.
pub(crate) struct Measured<'a>(pub &'a [Record]);

/// The measurements of one operation with one number of ranks.
struct Group<'a> {
    title: String,
    operation: Operation,
    keys: Vec<Key>,
    /// Microseconds of each algorithm, measured and predicted.
    times: BTreeMap<&'a str, BTreeMap<Key, (f64, Option<f64>)>>,
}

impl Group<'_> {
    fn plot(&self) -> Plot {
        let curves = self.times.iter().enumerate().flat_map(|(color, (name, times))| {
            let curve = |name, drawn, of: fn(&(f64, Option<f64>)) -> Option<f64>| {
                let points = times.iter().filter_map(|(key, us)| Some((key.bytes as f64, 1e3 * of(us)?))).collect();
                Curve { name, color, drawn, points }
            };
            let measured = curve((*name).to_owned(), Drawn::Line, |us| Some(us.0));
            [measured, curve(format!("{name}, predicted"), Drawn::Dashed, |us| us.1)]
        });
        Plot { title: self.title.clone(), axis: Axis::Bytes, curves: curves.collect(), range: None }
    }
}

impl Measured<'_> {
    fn us(&self, library: Library, key: Key, algorithm: Option<&str>) -> Option<f64> {
        let same = |r: &&Record| (r.library, r.key, r.algorithm.as_deref()) == (library, key, algorithm);
        self.0.iter().find(same).map(Record::us)
    }

    fn best_peer(&self, key: Key) -> Option<f64> {
        Library::PEERS.iter().filter_map(|peer| self.us(*peer, key, None)).min_by(f64::total_cmp)
    }

    /// The measurements by algorithm, shortest first.
    fn by_algorithm(&self, key: Key) -> Vec<(&str, f64)> {
        let own = self.0.iter().filter(|r| (r.library, r.key) == (Library::Farside, key));
        let mut all: Vec<_> = own.filter_map(|r| Some((r.algorithm.as_deref()?, r.us()))).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    }

    /// The keys of collectives that Farside has measured, in order.
    fn keys(&self) -> Vec<Key> {
        let is_it = |r: &&Record| r.library == Library::Farside && r.algorithm.is_none();
        let collective = |key: &Key| key.suite == Suite::Coll && key.op != Op::Pingpong;
        crate::plan::sorted(self.0.iter().filter(is_it).map(|r| r.key).filter(collective))
    }

    /// The measurements by operation and number of ranks, with the predictions of the model for that number of ranks.
    fn groups(&self, model: impl Fn(u32) -> Option<PLogP>) -> Vec<Group<'_>> {
        let mut keys = self.keys();
        keys.sort_by_key(|key| (key.op, key.ranks, key.bytes));
        let groups = keys.chunk_by(|a, b| (a.op, a.ranks) == (b.op, b.ranks)).filter_map(|keys| {
            let (op, ranks) = (keys[0].op, keys[0].ranks);
            let (operation, model) = (operation(op)?, model(ranks));
            let mut times: BTreeMap<&str, BTreeMap<Key, (f64, Option<f64>)>> = BTreeMap::new();
            for (key, (name, us)) in
                keys.iter().flat_map(|key| self.by_algorithm(*key).into_iter().map(move |of| (key, of)))
            {
                let choice = Choice::parse(operation, name).ok().zip(model.as_ref());
                let case = Case::new(operation, ranks, key.bytes);
                let predicted = choice.and_then(|(choice, model)| case.predicted(&choice, model));
                times.entry(name).or_default().insert(*key, (us, predicted));
            }
            Some(Group { title: format!("{}, P = {ranks}", op.label()), operation, keys: keys.to_vec(), times })
        });
        groups.collect()
    }

    /// A table for each operation and number of ranks, by size: each algorithm with its time and the time that the
    /// model of that number of ranks predicts, the selected one marked; and the peers.
    pub(crate) fn tables(&self, model: impl Fn(u32) -> Option<PLogP>) -> String {
        let mut all =
            "Microseconds measured / predicted; * is selected. Below, as the team calls it, and its time over \
                       that of the best peer\n"
                .to_owned();
        for Group { title, operation, keys, times } in self.groups(model) {
            let of_algorithm = |(name, times): (&&str, &BTreeMap<Key, (f64, Option<f64>)>)| {
                let cell = |key: &Key| {
                    let Some((us, predicted)) = times.get(key) else { return String::new() };
                    let selected = Case::new(operation, key.ranks, key.bytes).selected().to_string();
                    let mark = if selected == *name { "*" } else { " " };
                    format!("{} / {}{mark}", number(Some(*us)), number(*predicted))
                };
                [(*name).to_owned()].into_iter().chain(keys.iter().map(cell)).collect()
            };
            let mut rows: Vec<Vec<String>> = times.iter().map(of_algorithm).collect();
            let mut row = |name: &str, of: &dyn Fn(Key) -> Option<f64>| {
                let cells: Vec<_> = keys.iter().map(|key| of(*key)).collect();
                if cells.iter().any(Option::is_some) {
                    let shown = cells.into_iter().map(|us| us.map_or(String::new(), |us| number(Some(us)) + " "));
                    rows.push([name.to_owned()].into_iter().chain(shown).collect());
                }
            };
            for library in [Library::Farside].iter().chain(Library::PEERS) {
                row(library.label(), &|key| self.us(*library, key, None));
            }
            row("/ best peer", &|key| self.over_best_peer(key));
            let sizes: Vec<String> = keys.iter().map(|key| size(key.bytes)).collect();
            let header: Vec<&str> = [&title[..]].into_iter().chain(sizes.iter().map(String::as_str)).collect();
            all += &format!("\n{}\n", text(&header, 1, rows));
        }
        all
    }

    /// A page with a plot for each operation and number of ranks: the measured times of each algorithm next to those
    /// that the model predicts; `about` describes the model.
    pub(crate) fn page(&self, model: impl Fn(u32) -> Option<PLogP>, about: &[String]) -> String {
        let body = html! {
            @for line in about { p { (line) } }
            div class="sides" { @for plot in self.plots(model) { (plot.svg()) } }
        };
        page("Collectives: measured and predicted", &body)
    }

    /// The plots of [`page`](Self::page).
    pub(crate) fn plots(&self, model: impl Fn(u32) -> Option<PLogP>) -> Vec<Plot> {
        self.groups(model).iter().map(Group::plot).collect()
    }

    fn over_best_peer(&self, key: Key) -> Option<f64> {
        Some(self.us(Library::Farside, key, None)? / self.best_peer(key)?)
    }

    /// The ratio of the times of calls, which choose by measurements, to the times of the table's choice. Barriers of a
    /// team do not choose by measurements.
    fn compare_with_defaults(&self) -> String {
        let ratio = |key: &Key| {
            let case = Case::new(operation(key.op).filter(|_| key.op != Op::Barrier)?, key.ranks, key.bytes);
            let default = self.us(Library::Farside, *key, Some(&case.selected().to_string()))?;
            Some((*key, self.us(Library::Farside, *key, None)? / default))
        };
        let all: Vec<(Key, f64)> = self.keys().iter().filter_map(ratio).collect();
        let mean = all.iter().map(|(_, ratio)| ratio).sum::<f64>() / all.len().max(1) as f64;
        let slower: String = all
            .iter()
            .filter(|(_, ratio)| *ratio > MAX_RATIO_TO_DEFAULT)
            .map(|(key, ratio)| format!("  {}, P = {}, {}: {ratio:.3}\n", key.op.label(), key.ranks, size(key.bytes)))
            .collect();
        let count = slower.lines().count();
        format!(
            "Learned / default: {mean:.3} on average of {}, above {MAX_RATIO_TO_DEFAULT} at {count}\n{slower}",
            all.len()
        )
    }

    /// The cases in which a call, or the choice of the table, takes more than a tenth longer than the best algorithm.
    pub(crate) fn selection(&self) -> String {
        let calls = self.score("Calls", &|_, key| self.us(Library::Farside, key, None).map(|us| (us, "a call".into())));
        let table = self.score("Choices of the table", &|case, key| {
            let name = case.selected().to_string();
            self.us(Library::Farside, key, Some(&name)).map(|us| (us, name))
        });
        calls + &table + &self.compare_with_defaults()
    }

    /// The number of cases in which the time that `of` returns is close to that of the best algorithm.
    fn score(&self, subject: &str, of: Timed<'_>) -> String {
        let (mut count, mut misses) = (0, String::new());
        for key in self.keys() {
            let Some(operation) = operation(key.op) else { continue };
            let case = Case::new(operation, key.ranks, key.bytes);
            let all = self.by_algorithm(key);
            let (Some((best, least)), Some((us, name))) = (all.first(), of(&case, key)) else { continue };
            count += 1;
            if us / least > MAX_RATIO_OF_BEST {
                let (op, ratio) = (key.op.label(), number(Some(us / least)));
                misses += &format!("  {op}, P = {}, {}: {name} takes {ratio} of {best}\n", key.ranks, size(key.bytes));
            }
        }
        let near = count - misses.lines().count();
        format!("{subject} within {MAX_RATIO_OF_BEST} of the best at {near} of {count} (operation, size, P)\n{misses}")
    }

    /// The targets relative to the best peer.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for key in self.keys() {
            let few = key.ranks == 2;
            let most = match (key.op, key.bytes) {
                (Op::Barrier, _) => Some(if few { 0.4 } else { 0.7 }),
                (Op::Allreduce, 8) => Some(if few { 0.5 } else { 0.7 }),
                (Op::Allreduce | Op::Broadcast | Op::Allgather | Op::Alltoall, 0x10_0000) if few => Some(1.0),
                _ => None,
            };
            let what = format!("{}, P = {}, {} / best peer", key.op.label(), key.ranks, size(key.bytes));
            let ratio = self.over_best_peer(key);
            targets.extend(most.map(|most| Target { what, ratio, most: Some(most) }));
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(library: Library, op: Op, algorithm: Option<&str>, us: f64) -> Record {
        let key = Key { suite: Suite::Coll, op, bytes: 8, ranks: 2, ..Key::default() };
        let algorithm = algorithm.map(ToOwned::to_owned);
        Record { algorithm, ..Record::from_blocks(library, key, 1, &[us]).unwrap() }
    }

    fn trip() -> Record {
        record(Library::Farside, Op::Pingpong, None, 2.0)
    }

    #[test]
    fn misses_are_listed_and_ratios_are_to_the_best_peer() {
        let case = Case::new(Operation::Allreduce, 2, 8);
        let selected = case.selected().to_string();
        let other = case.choices(&[]).into_iter().map(|c| c.to_string()).find(|name| *name != selected).unwrap();
        let mut records = vec![
            record(Library::Farside, Op::Allreduce, None, 1.0),
            record(Library::Farside, Op::Allreduce, Some(&selected), 1.05),
            record(Library::Farside, Op::Allreduce, Some(&other), 1.0),
            record(Library::Mpich, Op::Allreduce, None, 4.0),
            record(Library::OpenMpi, Op::Allreduce, None, 3.0),
        ];
        let text = Measured(&records).selection();
        assert!(text.matches("at 1 of 1").count() == 2 && text.lines().count() == 3, "{text}");
        assert!(text.ends_with("Learned / default: 0.952 on average of 1, above 1.05 at 0\n"), "{text}");
        let targets = Measured(&records).targets();
        assert_eq!((targets.len(), targets[0].ratio, targets[0].met()), (1, Some(1.0 / 3.0), Some(true)));
        let table = Measured(&records).tables(|_| None);
        assert!(table.contains("1.05 / -*") && table.contains("MPICH") && table.contains("0.333"), "{table}");
        let model = |_| crate::coll::model(&[trip()], 2, 0.0);
        let page = Measured(&records).page(model, &["about".to_owned()]);
        for text in [&selected, &format!("{other}, predicted"), "8 B", "about", "P = 2"] {
            assert!(page.contains(&html! { (text) }.into_string()), "{text} is not in {page}");
        }
        records[1].us_min = 1.3;
        let text = Measured(&records).selection();
        assert!(text.contains("at 0 of 1") && text.contains(&format!("{selected} takes 1.30 of {other}")), "{text}");
    }
}
