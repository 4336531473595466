//! Farside, the limits and the peers side by side.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, LineStyle, TableStyle};

use crate::limits::Floors;
use crate::record::{Key, Library, Record, Suite};

/// What was measured, one row per key, in microseconds.
#[derive(Clone, Debug)]
pub struct Table {
    /// Whether anything was also done by hand: then there is [`Row::by_hand`].
    pub by_hand: bool,
    /// The columns that say what was measured: those in which not all rows say nothing.
    columns: Vec<usize>,
    /// The peers that have at least one value: the columns of [`Row::peers`].
    pub peers: Vec<Library>,
    /// The rows, ordered by key.
    pub rows: Vec<Row>,
}

/// All values of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub key: Key,
    /// Farside's value.
    pub farside: Option<f64>,
    /// The machine's limit: measured beside it, or by [`Floors::of`].
    pub limit: Option<f64>,
    /// The loop by hand.
    pub by_hand: Option<f64>,
    /// The peers' values, in the order of [`Table::peers`].
    pub peers: Vec<Option<f64>>,
}

impl Row {
    /// The smallest value of a peer.
    #[must_use]
    pub fn best_peer(&self) -> Option<f64> {
        self.peers.iter().flatten().copied().min_by(f64::total_cmp)
    }

    /// Farside's value over that of the best peer: below 1, Farside is faster.
    #[must_use]
    pub fn to_best_peer(&self) -> Option<f64> {
        Some(self.farside? / self.best_peer()?)
    }

    /// Farside's value over that of the loop by hand.
    #[must_use]
    pub fn to_hand(&self) -> Option<f64> {
        Some(self.farside? / self.by_hand?)
    }

    /// Farside's value over the limit: 1 is as good as can be.
    #[must_use]
    pub fn to_limit(&self) -> Option<f64> {
        Some(self.farside? / self.limit?)
    }
}

impl Table {
    /// From all records of a run. Of two records with the same library and key the later one counts.
    #[must_use]
    pub fn new(records: &[Record], floors: &Floors) -> Self {
        let mut values: BTreeMap<Key, BTreeMap<Library, f64>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.suite != Suite::Limit) {
            values.entry(record.key()).or_default().insert(record.library, record.us());
        }
        let measured = |peer: &Library| values.values().any(|of| of.contains_key(peer));
        let peers: Vec<Library> = Library::PEERS.iter().copied().filter(measured).collect();
        let rows: Vec<Row> = values
            .iter()
            .map(|(key, of)| Row {
                key: *key,
                farside: of.get(&Library::Farside).copied(),
                limit: of.get(&Library::Limit).copied().or_else(|| floors.of(key)),
                by_hand: of.get(&Library::Loop).copied(),
                peers: peers.iter().map(|peer| of.get(peer).copied()).collect(),
            })
            .collect();
        let says = |column: &usize| rows.iter().any(|row| key_cells(&row.key)[*column] != "none");
        let columns = (0..KEY_COLUMNS.len()).filter(says).collect();
        Self { by_hand: rows.iter().any(|row| row.by_hand.is_some()), columns, peers, rows }
    }

    /// The names of the columns.
    #[must_use]
    pub fn header(&self) -> Vec<String> {
        let mut header: Vec<String> = self.columns.iter().map(|column| KEY_COLUMNS[*column].to_owned()).collect();
        header.extend(["farside", "limit"].map(str::to_owned));
        header.extend(self.by_hand.then(|| "by hand".to_owned()));
        header.extend(self.peers.iter().map(|peer| peer.name().to_owned()));
        if !self.peers.is_empty() {
            header.push("/ best peer".to_owned());
        }
        header.extend(self.by_hand.then(|| "/ by hand".to_owned()));
        header.push("/ limit".to_owned());
        header
    }

    /// The cells of a row of this table, as text.
    #[must_use]
    pub fn cells(&self, row: &Row) -> Vec<String> {
        let said = key_cells(&row.key);
        let mut cells: Vec<String> = self.columns.iter().map(|column| said[*column].clone()).collect();
        cells.extend([row.farside, row.limit].map(number));
        cells.extend(self.by_hand.then(|| number(row.by_hand)));
        cells.extend(row.peers.iter().map(|us| number(*us)));
        if !self.peers.is_empty() {
            cells.push(number(row.to_best_peer()));
        }
        cells.extend(self.by_hand.then(|| number(row.to_hand())));
        cells.push(number(row.to_limit()));
        cells
    }

    /// How many columns at the left say what was measured; those after them are numbers.
    #[must_use]
    pub fn key_columns(&self) -> usize {
        self.columns.len()
    }
}

/// A line below the header, a space between columns and nothing else: a terminal has 80 columns.
pub(crate) fn narrow(table: &mut comfy_table::Table) {
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 0)));
}

const KEY_COLUMNS: [&str; 7] = ["suite", "window", "sync", "op", "shape", "bytes", "ranks"];

fn key_cells(key: &Key) -> [String; 7] {
    [
        key.suite.to_string(),
        key.window.to_string(),
        key.sync.to_string(),
        key.op.to_string(),
        key.shape.to_string(),
        key.bytes.to_string(),
        key.ranks.to_string(),
    ]
}

/// Three significant digits, and no exponent; a dash where there is no value.
#[must_use]
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.set_header(self.header());
        for row in &self.rows {
            table.add_row(self.cells(row));
        }
        narrow(&mut table);
        // bytes, ranks and all times to the right
        for column in table.column_iter_mut().skip(self.columns.len().saturating_sub(2)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let best_peer = if self.peers.is_empty() { "" } else { "the best peer's and over " };
        let by_hand = if self.by_hand { "that of a loop by hand and over " } else { "" };
        writeln!(f, "Microseconds; / is Farside's time over {best_peer}{by_hand}the limit of the machine.")?;
        write!(f, "{table}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Op, Shape, Sync, Window};

    pub(crate) fn record(library: Library, op: Op, bytes: u64, us: f64) -> Record {
        let suite = match op {
            Op::Memcpy
            | Op::LineOneWay
            | Op::LineRoundTrip
            | Op::TwoLinesRoundTrip
            | Op::WorkedRoundTrip
            | Op::BareMeeting
            | Op::YieldTurn
            | Op::Atomic => Suite::Limit,
            Op::Barrier => Suite::Barrier,
            _ => Suite::Op,
        };
        let (window, sync) =
            if suite == Suite::Op { (Window::Allocated, Sync::Flush) } else { (Window::None, Sync::None) };
        let key = Key { suite, window, sync, op, shape: Shape::None, bytes, ranks: 2 };
        Record::from_blocks(library, "1", key, 1, &[us]).unwrap()
    }

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
        assert_eq!(table.peers, [Library::Mpich, Library::OpenMpi]);
        assert_eq!(table.rows.len(), 1);
        let row = &table.rows[0];
        assert_eq!((row.best_peer(), row.to_best_peer(), row.to_limit()), (Some(4.0), Some(0.5), Some(4.0)));
        assert_eq!(
            table.cells(row),
            ["op", "allocated", "flush", "put", "8", "2", "2.00", "0.500", "8.00", "4.00", "0.500", "4.00"]
        );
    }

    #[test]
    fn ratios_without_a_partner_are_absent() {
        let alone = table(&[record(Library::Farside, Op::Put, 8, 2.0)]);
        assert_eq!((alone.rows[0].to_best_peer(), alone.rows[0].to_limit()), (None, None));
        assert_eq!(alone.header().len(), alone.cells(&alone.rows[0]).len());
        assert!(!alone.header().iter().any(|name| name.contains("peer")), "a column for peers that are not there");
        let others = table(&[record(Library::Mpich, Op::Put, 8, 2.0), record(Library::Limit, Op::Memcpy, 8, 1.0)]);
        assert_eq!((others.rows[0].to_best_peer(), others.rows[0].to_limit()), (None, None));
        assert_eq!(others.rows[0].limit, Some(1.0));
        assert!(others.to_string().contains(" - "));
        let wide = table(&[Record {
            sync: Sync::LockExclusive,
            op: Op::Accumulate,
            bytes: 1 << 20,
            ..record(Library::Farside, Op::Put, 8, 12345.0)
        }]);
        assert!(wide.to_string().lines().skip(1).all(|line| line.chars().count() <= 80), "{wide}");
    }

    #[test]
    fn rows_are_ordered_and_the_later_record_counts() {
        let table = table(&[
            record(Library::Mpich, Op::Barrier, 0, 1.0),
            record(Library::Mpich, Op::Put, 64, 1.0),
            record(Library::Mpich, Op::Put, 8, 1.0),
            record(Library::Mpich, Op::Put, 8, 3.0),
        ]);
        let rows: Vec<_> = table.rows.iter().map(|row| (row.key.op, row.key.bytes, row.peers[0])).collect();
        assert_eq!(rows, [(Op::Put, 8, Some(3.0)), (Op::Put, 64, Some(1.0)), (Op::Barrier, 0, Some(1.0))]);
    }

    #[test]
    fn display_has_a_line_per_row_and_as_many_cells_as_columns() {
        let table = table(&[record(Library::Mpich, Op::Put, 8, 1.0), record(Library::IntelMpi, Op::Get, 8, 1.0)]);
        assert_eq!(table.to_string().lines().filter(|line| line.contains("allocated ")).count(), 2);
        assert!(table.rows.iter().all(|row| table.cells(row).len() == table.header().len()));
    }

    #[test]
    fn number_has_three_digits() {
        for (value, text) in [
            (0.0123, "0.012"),
            (0.9999, "1.00"),
            (1.234, "1.23"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.99, "100"),
            (8007.6, "8008"),
        ] {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "-");
    }
}
