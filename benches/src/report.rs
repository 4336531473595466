//! The report for people: one HTML file with everything in it, readable on a screen and on paper.

use std::collections::BTreeMap;

use farside_core::error::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plot::{self, Against, Bars, Series};
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::results::Results;
use crate::shapes::blocks;
use crate::table::{Row, Table};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.25rem; margin-top: 2.4rem; border-bottom: 1px solid #ccc; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; } dt { color: #666; } dd { margin: 0; }
.notes { background: #fff6e0; border-left: 4px solid #d99a00; padding: .5rem 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 1rem 1.5rem; align-items: start; }
figure { margin: 0; break-inside: avoid; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .12rem .6rem; text-align: left; border-bottom: 1px solid #eee; }
th { position: sticky; top: 0; background: #f4f4f4; }
.n { text-align: right; } .own { font-weight: 600; } .good { color: #00703c; } .bad { color: #b00020; }
@media print { body { max-width: none; margin: 0; font-size: 11px; } table { font-size: 9px; } th { position: static; }
  .plots { grid-template-columns: 1fr 1fr; } }
";

/// The whole report.
///
/// # Errors
/// [`farside_core::error::ErrorKind::System`] if a plot cannot be drawn.
pub fn html(results: &Results) -> Result<String> {
    let table = results.table();
    let mut sections = Vec::new();
    for &suite in Suite::ALL {
        let figures = figures(&table, suite)?;
        if !figures.is_empty() {
            sections.push((suite, figures));
        }
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (results.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (results.title) }
                (facts(results))
                @if !results.notes.is_empty() {
                    div class="notes" {
                        strong { "Not everything was measured as planned" }
                        ul { @for note in &results.notes { li { (note) } } }
                    }
                }
                @for (suite, figures) in &sections {
                    h2 { (title(*suite)) }
                    p { (explanation(*suite)) }
                    div class="plots" {
                        @for (caption, svg) in figures {
                            figure { figcaption { (caption) } (PreEscaped(svg)) }
                        }
                    }
                }
                h2 { "All times" }
                p { "Microseconds. The columns with / are Farside's time over "
                    @if !table.peers.is_empty() { "that of the best peer (below 1, Farside is faster), over " }
                    @if table.by_hand { "that of a loop by hand, over " }
                    "the limit of the machine." }
                (rows(&table))
            }
        }
    };
    Ok(page.into_string())
}

fn facts(results: &Results) -> Markup {
    let machine = &results.machine;
    let mut versions = BTreeMap::new();
    for record in results.records.iter().filter(|record| !matches!(record.library, Library::Limit | Library::Loop)) {
        versions.insert(record.library, &record.version);
    }
    html! {
        dl {
            dt { "Processor" } dd { (machine.cpu) }
            dt { "Cores" } dd { (machine.cores) @if machine.hypervisor { " (virtual machine)" } }
            dt { "Kernel" } dd { "Linux " (machine.kernel) }
            dt { "Date" } dd { (machine.date) }
            @if !versions.is_empty() {
                dt { "Measured" }
                dd { @for (i, (library, version)) in versions.iter().enumerate() {
                    @if i > 0 { ", " } (library.title()) " " (version) } }
            }
        }
    }
}

/// The plots of a suite with their captions: lines where there are several sizes, or numbers of blocks of one size; all
/// others as bars of one plot.
fn figures(table: &Table, suite: Suite) -> Result<Vec<(String, String)>> {
    type Curve = (u32, Window, Sync, Op, Shape, Option<u64>);
    let mut by_curve: BTreeMap<Curve, Vec<&Row>> = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.key.suite == suite) {
        let Key { ranks, window, sync, op, shape, bytes, .. } = row.key;
        // Those of one size but different numbers of blocks are one curve, under the name of the first.
        let (shape, size) = if blocks(shape).is_some() { (Shape::Blocks4, Some(bytes)) } else { (shape, None) };
        by_curve.entry((ranks, window, sync, op, shape, size)).or_default().push(row);
    }
    let mut figures = Vec::new();
    let mut single: BTreeMap<(u32, Window), Bars> = BTreeMap::new();
    for ((ranks, window, sync, op, shape, size), rows) in by_curve {
        if let [row] = rows[..] {
            single
                .entry((ranks, window))
                .or_default()
                .push((name(&[sync_name(sync), op_name(op), shape_name(shape)]), values(table, row)));
        } else {
            let mut series = Series::new();
            for row in rows {
                for (library, us) in values(table, row) {
                    series.entry(library).or_default().insert(blocks(row.key.shape).unwrap_or(row.key.bytes), us);
                }
            }
            let of_blocks = size.map(|bytes| format!("blocks of {} together", plot::size(bytes)));
            let shape = of_blocks.as_deref().unwrap_or(shape_name(shape));
            let caption = name(&[sync_name(sync), op_name(op), shape, window_name(window)]);
            let ranks = if ranks == 1 { String::new() } else { format!(" · {ranks} ranks") };
            let against = if size.is_some() { Against::Blocks } else { Against::Bytes };
            figures.push((format!("{caption}{ranks}"), plot::lines(&series, against)?));
        }
    }
    for ((ranks, window), mut bars) in single {
        let caption = if suite == Suite::Op { "atomics" } else { title(suite) };
        if let [(name, _)] = &mut bars[..] {
            name.clear(); // the caption says it
        }
        figures.push((format!("{} · {ranks} ranks", name(&[caption, window_name(window)])), plot::bars(&bars)?));
    }
    Ok(figures)
}

/// Parts of a name, without those that say nothing.
fn name(parts: &[&str]) -> String {
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).copied().collect();
    parts.join(" · ")
}

const fn window_name(window: Window) -> &'static str {
    match window {
        Window::None => "",
        Window::Allocated => "allocated window",
        Window::User => "user window",
        Window::Unmapped => "user window, not mapped",
    }
}

const fn sync_name(sync: Sync) -> &'static str {
    match sync {
        Sync::None => "",
        Sync::FenceClosure => "fence by itself",
        Sync::Pscw => "post-start-complete-wait",
        Sync::Lock => "shared lock",
        Sync::LockExclusive => "exclusive lock",
        Sync::Twosided => "two-sided",
        Sync::Am => "active messages",
        other => other.name(),
    }
}

/// As people call it.
const fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::None => "",
        Shape::Vector4 => "vector, blocks of 4 B",
        Shape::Vector8 => "vector, blocks of 8 B",
        Shape::Vector16 => "vector, blocks of 16 B",
        Shape::Vector64 => "vector, blocks of 64 B",
        Shape::Vector512 => "vector, blocks of 512 B",
        Shape::Vector4096 => "vector, blocks of 4 KiB",
        Shape::Column => "one column of ints",
        Shape::Columns64 => "columns, 64 rows",
        Shape::Columns128 => "columns, 128 rows",
        Shape::FaceX => "x face of a cube",
        Shape::FaceY => "y face of a cube",
        Shape::FaceZ => "z face of a cube",
        Shape::Indexed8 => "doubles at random places",
        Shape::Indexed64 => "64 B at random places",
        Shape::Struct => "struct with gaps",
        Shape::Nested => "nested vector",
        Shape::Blocks4 => "4 blocks",
        Shape::Blocks8 => "8 blocks",
        Shape::Blocks16 => "16 blocks",
        Shape::Blocks32 => "32 blocks",
        Shape::Blocks64 => "64 blocks",
        Shape::Diagonals => "block diagonals",
    }
}

/// As people call it; nothing where the heading of the suite says it.
const fn op_name(op: Op) -> &'static str {
    match op {
        Op::Put1 => "put by one rank",
        Op::PutBandwidth => "one of a burst of puts",
        Op::GetBandwidth => "one of a burst of gets",
        Op::OriginCpu => "processor time of the origin",
        Op::TargetCpu => "processor time of the target",
        Op::FetchOp => "fetch-and-op",
        Op::Cas => "compare-and-swap",
        Op::Pingpong | Op::Barrier | Op::Ghost => "",
        other => other.name(),
    }
}

fn values(table: &Table, row: &Row) -> BTreeMap<Library, f64> {
    let peers = table.peers.iter().copied().zip(row.peers.iter().copied());
    let own = [(Library::Farside, row.farside), (Library::Limit, row.limit), (Library::Loop, row.by_hand)];
    let all = own.into_iter().chain(peers);
    all.filter_map(|(library, us)| Some((library, us?))).collect()
}

fn rows(table: &Table) -> Markup {
    let keys = table.key_columns();
    html! {
        table {
            thead { tr { @for (i, name) in table.header().iter().enumerate() {
                th class=[(i + 2 >= keys).then_some("n")] { (name) } } } }
            tbody {
                @for row in &table.rows {
                    tr { @for (i, cell) in table.cells(row).iter().enumerate() {
                        td class=[class(i, table, row)] { (cell) } } }
                }
            }
        }
    }
}

/// How a cell looks: numbers to the right, Farside's own bold, its ratio to the best peer coloured.
fn class(column: usize, table: &Table, row: &Row) -> Option<&'static str> {
    let keys = table.key_columns();
    match column {
        _ if !table.peers.is_empty() && column + 2 + usize::from(table.by_hand) == table.header().len() => {
            Some(match row.to_best_peer() {
                Some(ratio) if ratio < 0.95 => "n good",
                Some(ratio) if ratio > 1.05 => "n bad",
                _ => "n",
            })
        }
        _ if column == keys => Some("n own"),
        _ => (column + 2 >= keys).then_some("n"),
    }
}

fn title(suite: Suite) -> &'static str {
    match suite {
        Suite::Epoch => "Synchronization epochs",
        Suite::Op => "Operations inside an open epoch",
        Suite::Am => "Message round trip",
        Suite::Barrier => "Barrier",
        Suite::Ghost => "Ghost-area exchange",
        Suite::Pack => "Packing and unpacking",
        Suite::Put => "Puts from layout to layout",
        Suite::Limit => "Limits of the machine",
    }
}

fn explanation(suite: Suite) -> &'static str {
    match suite {
        Suite::Epoch => {
            "The time of one whole epoch with one put: fence (both ranks put, or one of them; one of a chain of fences, or \
             by itself), post-start-complete-wait (half of there and back), shared and exclusive lock."
        }
        Suite::Op => {
            "One operation and its flush, inside an epoch that locks all, while the target waits in a barrier. \
             One of a burst of puts or gets: there is one flush after 64 of them."
        }
        Suite::Am => "Eight bytes there and back: active message, or send and receive.",
        Suite::Barrier => "One barrier of all ranks.",
        Suite::Ghost => {
            "One exchange: every rank sends to its four neighbours on a periodic grid; size is that to one neighbour."
        }
        Suite::Pack => {
            "One message from its layout to consecutive bytes, or back, by one rank; the smallest of many blocks that were \
             taken in turns. The limit is a memcpy of as many bytes."
        }
        Suite::Put => {
            "A put from a layout to the same one at the target, and its flush, inside an epoch that locks all, while the \
             target waits in a barrier; the smallest of many blocks. One of a burst: there is one flush after 16 puts. \
             Processor time is that of the whole process, for a put and its flush. By hand is the faster of a memcpy of each \
             row and a loop over its ints, from the same memory to the same memory; the limit is a memcpy of as many bytes. \
             Alltoall: every rank puts its columns to each, between two fences; two-sided is MPI_Alltoall. For memory that \
             is not mapped the peers' times are those of their user windows. On shared memory no layout is sent, so there \
             is no cache of layouts to be with or without."
        }
        Suite::Limit => "A cache line between two cores, a copy, an atomic addition.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Note;
    use crate::table::tests::record;

    fn results() -> Results {
        let mut results = Results::here();
        results.machine.cores = 2;
        for (i, &library) in Library::ALL.iter().filter(|library| **library != Library::Limit).enumerate() {
            for bytes in [8, 4096] {
                results.records.push(record(library, Op::Put, bytes, 0.111 * (i + 1) as f64 * bytes as f64));
            }
            results.records.push(record(library, Op::Cas, 8, 0.3 + i as f64));
            results.records.push(record(library, Op::Barrier, 0, 0.7 + i as f64));
        }
        for (op, bytes, us) in [(Op::Memcpy, 8, 0.004), (Op::Memcpy, 4096, 0.05), (Op::LineOneWay, 64, 0.15)] {
            results.records.push(record(Library::Limit, op, bytes, us));
        }
        results
    }

    #[test]
    fn html_has_each_series_and_each_row() {
        let results = results();
        let page = html(&results).unwrap();
        assert_eq!(page.matches("<svg").count(), 3, "lines of put, bars of cas, bars of the barrier");
        let lines = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap()];
        for library in Library::ALL {
            assert!(lines.contains(library.title()), "{library} is not in the plot");
        }
        for title in [
            title(Suite::Op),
            title(Suite::Barrier),
            "atomics · allocated window · 2 ranks",
            "flush · put · allocated window · 2 ranks",
        ] {
            assert!(page.contains(title), "{title}");
        }
        assert!(!page.contains(title(Suite::Ghost)));
        assert_eq!(page.matches("<tr>").count(), 1 + results.table().rows.len());
        assert!(page.contains(&results.machine.cpu));
        assert!(
            !page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org/").count()
        );
    }

    #[test]
    fn html_escapes_what_others_wrote() {
        let mut results = results();
        results.notes.push(Note { subject: "Open MPI".to_owned(), text: "<script>alert(1)</script>".to_owned() });
        for record in &mut results.records {
            record.version = "<b>".to_owned();
        }
        let page = html(&results).unwrap();
        assert!(page.contains("&lt;script&gt;") && page.contains("&lt;b&gt;"));
        assert!(!page.contains("<script>") && !page.contains("<b>"));
    }

    #[test]
    fn html_without_records_has_no_plot() {
        let page = html(&Results::here()).unwrap();
        assert!(!page.contains("<svg") && page.contains("All times"));
    }

    #[test]
    fn html_with_one_peer_only_is_whole() {
        let mut results = Results::here();
        results.records = vec![record(Library::Mpich, Op::Put, 8, 1.0), record(Library::Mpich, Op::Put, 64, 1.0)];
        let page = html(&results).unwrap();
        assert!(page.contains("MPICH") && !page.contains("Intel MPI"));
    }
}
