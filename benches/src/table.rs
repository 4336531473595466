//! Farside, the limits and the peers side by side, and text tables in general.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, LineStyle, TableStyle};

use crate::limits::Floors;
use crate::record::{Key, Library, Record, Suite};

/// A table for a terminal: a line below the header, a space between columns; columns from `numbers` on are
/// right-aligned.
pub(crate) fn text(header: &[&str], numbers: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(header).add_rows(rows);
    table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 0)));
    table.column_iter_mut().skip(numbers).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// Three significant digits without exponent; a dash if there is no value.
pub(crate) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    // The number of digits is determined after rounding, so that 9.999 becomes 10.0.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let digits = if rounded == 0.0 { 2 } else { (2 - rounded.abs().log10().floor() as i32).max(0) as usize };
    format!("{value:.digits$}")
}

/// The measurements, one row for each key, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The columns that describe the measurement, without those that are empty in every row.
    columns: Vec<usize>,
    /// The libraries that have at least one value; Farside and the limit are always included.
    pub(crate) libraries: Vec<Library>,
    /// The rows, ordered by key.
    pub(crate) rows: Vec<Row>,
}

/// All values of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The measured operation.
    pub(crate) key: Key,
    /// Microseconds of each library; the limit is measured together with the operation, or computed by [`Floors::of`].
    pub(crate) us: BTreeMap<Library, f64>,
}

impl Row {
    /// The ratio of Farside's value to another: if it is below 1, Farside is faster.
    pub(crate) fn over(&self, library: Library) -> Option<f64> {
        Some(self.us.get(&Library::Farside)? / self.us.get(&library)?)
    }

    /// The ratio of Farside's value to that of the best peer.
    pub(crate) fn over_best_peer(&self) -> Option<f64> {
        Library::PEERS.iter().filter_map(|peer| self.over(*peer)).max_by(f64::total_cmp)
    }
}

const KEY_COLUMNS: [&str; 7] = ["suite", "window", "synchronization", "operation", "shape", "bytes", "ranks"];

fn key_cells(key: &Key) -> [String; 7] {
    let window = key.window.label().replace(" window", "");
    let names = [key.suite.name(), &window, key.sync.label(), key.op.label(), key.shape.label()].map(str::to_owned);
    let [suite, window, sync, op, shape] = names;
    [suite, window, sync, op, shape, key.bytes.to_string(), key.ranks.to_string()]
}

impl Table {
    /// Creates a table from all records of a run. Of two records with the same library and key, the later one is used.
    pub(crate) fn new(records: &[Record], floors: &Floors) -> Self {
        let mut values: BTreeMap<Key, BTreeMap<Library, f64>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.key.suite != Suite::Limit) {
            values.entry(record.key).or_default().insert(record.library, record.us());
        }
        let floor = |key, us: &mut BTreeMap<_, _>| {
            if let Some(floor) = floors.of(key) {
                us.entry(Library::Limit).or_insert(floor);
            }
        };
        values.iter_mut().for_each(|(key, us)| floor(key, us));
        let rows: Vec<Row> = values.into_iter().map(|(key, us)| Row { key, us }).collect();
        let always = |library: &Library| matches!(library, Library::Farside | Library::Limit);
        let has = |library: &&Library| always(library) || rows.iter().any(|row| row.us.contains_key(library));
        let libraries = Library::ALL.iter().filter(has).copied().collect();
        let says = |column: &usize| rows.iter().any(|row| !key_cells(&row.key)[*column].is_empty());
        Self { columns: (0..KEY_COLUMNS.len()).filter(says).collect(), libraries, rows }
    }

    /// Whether there are peers.
    pub(crate) fn has_peers(&self) -> bool {
        self.libraries.iter().any(|library| Library::PEERS.contains(library))
    }

    fn by_hand(&self) -> bool {
        self.libraries.contains(&Library::Loop)
    }

    /// The names of the columns.
    pub(crate) fn header(&self) -> Vec<&'static str> {
        let mut header: Vec<_> = self.columns.iter().map(|column| KEY_COLUMNS[*column]).collect();
        header.extend(self.libraries.iter().map(|library| short(*library)));
        header.extend(self.has_peers().then_some("/ best peer"));
        header.extend(self.by_hand().then_some("/ by hand"));
        header.push("/ limit");
        header
    }

    /// The cells of a row of this table, as text.
    pub(crate) fn cells(&self, row: &Row) -> Vec<String> {
        let labels = key_cells(&row.key);
        let mut cells: Vec<String> = self.columns.iter().map(|column| labels[*column].clone()).collect();
        cells.extend(self.libraries.iter().map(|library| number(row.us.get(library).copied())));
        cells.extend(self.has_peers().then(|| number(row.over_best_peer())));
        cells.extend(self.by_hand().then(|| number(row.over(Library::Loop))));
        cells.push(number(row.over(Library::Limit)));
        cells
    }

    /// Index of the first column of numbers: bytes, ranks, then times, Farside's first.
    pub(crate) fn numbers(&self) -> usize {
        self.columns.len().saturating_sub(2)
    }

    /// The explanation of the numbers.
    pub(crate) fn legend(&self) -> String {
        let best_peer = if self.has_peers() { "the best peer's (below 1, Farside is faster), over " } else { "" };
        let by_hand = if self.by_hand() { "that of a loop by hand, over " } else { "" };
        format!(
            "Microseconds. The columns with / are Farside's time over {best_peer}{by_hand}the limit of the machine."
        )
    }
}

/// The short name of a library.
pub(crate) const fn short(library: Library) -> &'static str {
    match library {
        Library::Limit => "limit",
        Library::Loop => "by hand",
        other => other.label(),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|row| self.cells(row));
        write!(f, "{}\n{}", self.legend(), text(&self.header(), self.numbers(), rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use crate::record::{Op, Sync};

    fn table(records: &[Record]) -> Table {
        Table::new(records, &Floors::from_records(records, 2))
    }

    #[test]
    fn ratios_are_to_the_best_peer_and_the_limit() {
        let table = table(&[
            record(Library::Farside, Op::Put, 8, 2.0),
            record(Library::Mpich, Op::Put, 8, 8.0),
            record(Library::OpenMpi, Op::Put, 8, 4.0),
            record(Library::Limit, Op::Memcpy, 8, 0.5),
        ]);
        assert_eq!(table.libraries, [Library::Farside, Library::Limit, Library::Mpich, Library::OpenMpi]);
        let row = &table.rows[0];
        assert_eq!((table.rows.len(), row.over_best_peer(), row.over(Library::Limit)), (1, Some(0.5), Some(4.0)));
        let cells = ["op", "allocated", "flush", "put", "8", "2", "2.00", "0.500", "8.00", "4.00", "0.500", "4.00"];
        assert_eq!(table.cells(row), cells);
        assert_eq!(table.header().len(), cells.len());
    }

    #[test]
    fn ratios_without_a_partner_are_absent() {
        let alone = table(&[record(Library::Farside, Op::Put, 8, 2.0)]);
        assert_eq!((alone.rows[0].over_best_peer(), alone.rows[0].over(Library::Limit)), (None, None));
        assert!(!alone.header().iter().any(|name| name.contains("peer")), "a column for peers that are not there");
        let others = table(&[record(Library::Mpich, Op::Put, 8, 2.0), record(Library::Limit, Op::Memcpy, 8, 1.0)]);
        assert_eq!((others.rows[0].over_best_peer(), others.rows[0].us[&Library::Limit]), (None, 1.0));
        assert!(others.to_string().contains(" - "));
        let mut wide = record(Library::Farside, Op::Accumulate, 1 << 20, 12345.0);
        wide.key.sync = Sync::LockExclusive;
        let wide = table(&[wide]);
        assert!(wide.to_string().lines().skip(1).all(|line| line.chars().count() <= 80), "{wide}");
    }

    #[test]
    fn rows_are_ordered_and_the_later_record_counts() {
        let of = |op, bytes, us| record(Library::Mpich, op, bytes, us);
        let records = [of(Op::Barrier, 0, 1.0), of(Op::Put, 64, 1.0), of(Op::Put, 8, 1.0), of(Op::Put, 8, 3.0)];
        let table = table(&records);
        let rows: Vec<_> = table.rows.iter().map(|row| (row.key.op, row.key.bytes, row.us[&Library::Mpich])).collect();
        assert_eq!(rows, [(Op::Put, 8, 3.0), (Op::Put, 64, 1.0), (Op::Barrier, 0, 1.0)]);
        assert_eq!(table.to_string().lines().filter(|line| line.contains("allocated ")).count(), 2);
    }

    #[test]
    fn number_has_three_significant_digits() {
        let cases = [(0.004, "0.00400"), (0.0123, "0.0123"), (0.9999, "1.00"), (1.234, "1.23"), (9.999, "10.0")];
        for (value, text) in cases.into_iter().chain([(12.34, "12.3"), (99.99, "100"), (8007.6, "8008"), (0.0, "0.00")])
        {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "-");
    }
}
