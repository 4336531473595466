//! The report: one self-contained HTML file, for screen and print.

use std::collections::BTreeMap;

use farside_core::plot::{Axis, Curve, Drawn, Plot, color, page, size};
use maud::{Markup, PreEscaped, html};

use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::results::Results;
use crate::table::{Row, Table, number, short};

/// The style sheet of reports, in addition to the common style.
const STYLE: &str = "
body { max-width: 1400px; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; } dt { color: #666; } dd { margin: 0; }
.notes { background: #fff6e0; border-left: 4px solid #d99a00; padding: .5rem 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(600px, 100%), 1fr)); gap: 1rem 1.5rem; align-items: start; }
figure { margin: 0; break-inside: avoid; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; }
.bars { display: grid; grid-template-columns: 5rem 1fr; gap: .1rem .6rem; font-size: 13px; line-height: 1.2; }
.bars b { grid-column: 1 / 3; margin-top: .4rem; } .bars i { display: inline-block; height: .8rem; margin-right: .4rem; }
th { position: sticky; top: 0; } .own { font-weight: 600; } .good { color: #00703c; } .bad { color: #b00020; }
@media print { body { max-width: none; margin: 0; font-size: 11px; } table { font-size: 9px; } th { position: static; }
  .plots { grid-template-columns: 1fr 1fr; } }
";

/// The whole report.
pub(crate) fn html(results: &Results) -> String {
    let table = results.table();
    let body = html! {
        style { (PreEscaped(STYLE)) }
        (facts(results))
        @if !results.notes.is_empty() {
            div class="notes" {
                strong { "Not everything was measured as planned" }
                ul { @for note in &results.notes { li { (note) } } }
            }
        }
        @for suite in Suite::ALL { (section(&table, *suite)) }
        h2 { "All times" }
        p { (table.legend()) }
        (rows(&table))
    };
    page(&results.title, &body)
}

fn facts(results: &Results) -> Markup {
    let machine = &results.machine;
    let libraries = results.records.iter().filter(|r| !matches!(r.library, Library::Limit | Library::Loop));
    let versions: BTreeMap<_, _> = libraries.map(|record| (record.library, &record.version)).collect();
    html! {
        dl {
            dt { "Processor" } dd { (machine.cpu) }
            dt { "Cores" } dd { (machine.cores) @if machine.hypervisor { " (virtual machine)" } }
            dt { "Kernel" } dd { "Linux " (machine.kernel) }
            dt { "Date" } dd { (machine.date) }
            @if !versions.is_empty() {
                dt { "Measured" }
                dd { @for (i, (library, version)) in versions.iter().enumerate() {
                    @if i > 0 { ", " } (library.label()) " " (version) } }
            }
        }
    }
}

/// The key of one plot with lines: all sizes, or all numbers of blocks of one size.
type Curves = (u32, Window, Sync, Op, Shape, Option<u64>);

/// The number of a library's color.
fn number_of(library: Library) -> usize {
    use Library::{Farside, IntelMpi, Limit, Loop, Mpich, OpenMpi};
    [Farside, Mpich, IntelMpi, OpenMpi, Loop, Limit].iter().position(|of| *of == library).unwrap_or(0)
}

/// The plots of a suite: lines if there are several sizes, or several numbers of blocks of one size; all others as bars
/// of one plot. All line plots share a time axis, and so do all bar plots.
fn section(table: &Table, suite: Suite) -> Markup {
    let mut curves: BTreeMap<Curves, Vec<&Row>> = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.key.suite == suite) {
        let Key { ranks, window, sync, op, shape, bytes, .. } = row.key;
        let size = shape.number_of("blocks").map(|_| bytes);
        curves.entry((ranks, window, sync, op, shape.kind(), size)).or_default().push(row);
    }
    if curves.is_empty() {
        return Markup::default();
    }
    let (lines, single): (Vec<_>, Vec<_>) = curves.iter().partition(|(_, rows)| rows.len() > 1);
    let times = |group: &[(&Curves, &Vec<&Row>)]| -> Vec<f64> {
        group.iter().flat_map(|(_, rows)| rows.iter().flat_map(|row| row.us.values().copied())).collect()
    };
    let (of_lines, of_bars) = (times(&lines), times(&single));
    let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let range = Some([1e3 * of_lines.iter().copied().fold(f64::MAX, f64::min), 1e3 * most(&of_lines)]);
    let mut figures = Vec::new();
    for ((ranks, window, sync, op, shape, blocks), rows) in lines {
        let mut points: BTreeMap<Library, Vec<(f64, f64)>> = BTreeMap::new();
        for (row, (library, us)) in rows.iter().flat_map(|row| row.us.iter().map(move |us| (row, us))) {
            let at = row.key.shape.number_of("blocks").unwrap_or(row.key.bytes);
            points.entry(*library).or_default().push((at as f64, 1e3 * us));
        }
        let curves = points.into_iter().map(|(library, points)| {
            let drawn = if library == Library::Limit { Drawn::Dashed } else { Drawn::Line };
            Curve { name: short(library).to_owned(), color: number_of(library), drawn, points }
        });
        let blocks = blocks.map(|bytes| format!("blocks of {} together", size(bytes)));
        let ranks = if *ranks == 1 { String::new() } else { format!("{ranks} ranks") };
        let shape = blocks.as_deref().unwrap_or(shape.label());
        let title = name(&[sync.label(), op.label(), shape, window.label(), &ranks]);
        let axis = match op {
            _ if blocks.is_some() => Axis::Powers("blocks"),
            Op::PostedTag | Op::PostedSource | Op::PostedAny | Op::EarlyTag | Op::EarlySource | Op::EarlyAny => {
                Axis::Powers("outstanding messages")
            }
            _ => Axis::Bytes,
        };
        figures.push(Plot { title, axis, curves: curves.collect(), range }.svg());
    }
    let mut groups: BTreeMap<(u32, Window), Vec<&Row>> = BTreeMap::new();
    for ((ranks, window, ..), rows) in single {
        groups.entry((*ranks, *window)).or_default().push(rows[0]);
    }
    for ((ranks, window), rows) in &groups {
        let what = if suite == Suite::Op { "atomics" } else { suite.label() };
        let caption = name(&[what, window.label(), &format!("{ranks} ranks")]);
        figures.push(html! { figcaption { (caption) } (bars(rows, 1.6 * most(&of_bars))) });
    }
    html! {
        h2 { (suite.label()) }
        p { (explanation(suite)) }
        div class="plots" { @for figure in &figures { figure { (figure) } } }
    }
}

/// Horizontal bars that begin at 0, with their values, in groups below their names.
fn bars(rows: &[&Row], most: f64) -> Markup {
    html! {
        div class="bars" { @for row in rows {
            b { (name(&[row.key.sync.label(), row.key.op.label(), row.key.shape.label()])) ", µs" }
            @for (library, us) in &row.us {
                span { (short(*library)) }
                span { i style=(format!("width: {:.2}%; background: {}", 85.0 * us / most, color(number_of(*library)))) {}
                    (number(Some(*us))) }
            }
        } }
    }
}

/// The parts of a name, without empty ones.
fn name(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" · ")
}

/// The times as a table: numbers right-aligned, Farside's bold, its ratio to the best peer colored.
fn rows(table: &Table) -> Markup {
    let (header, numbers) = (table.header(), table.numbers());
    let class = |column: usize, row: &Row| match (header[column], row.over_best_peer()) {
        ("/ best peer", Some(ratio)) if ratio < 0.95 => "n good",
        ("/ best peer", Some(ratio)) if ratio > 1.05 => "n bad",
        ("Farside", _) => "n own",
        _ if column >= numbers => "n",
        _ => "",
    };
    html! {
        table {
            thead { tr { @for (i, name) in header.iter().enumerate() { th class=[(i >= numbers).then_some("n")] { (name) } } } }
            tbody {
                @for row in &table.rows {
                    tr { @for (i, cell) in table.cells(row).iter().enumerate() { td class=(class(i, row)) { (cell) } } }
                }
            }
        }
    }
}

fn explanation(suite: Suite) -> &'static str {
    match suite {
        Suite::Epoch => {
            "The time of one whole epoch with one put: fence (both ranks put, or one of them; one of a chain of fences, or \
             by itself), PSCW (post, start, complete, wait: half of there and back), shared and exclusive lock."
        }
        Suite::Op => {
            "One operation and its flush, inside an epoch that locks all, while the target waits in a barrier. \
             A put or get of a burst: there is one flush after 64 of them."
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
             target waits in a barrier; the smallest of many blocks. A put of a burst: there is one flush after 16 puts. \
             CPU time is that of the whole process, for a put and its flush. By hand is the faster of a memcpy of each \
             row and a loop over its ints, from the same memory to the same memory; the limit is a memcpy of as many bytes. \
             All-to-all: every rank puts its columns to each, between two fences; two-sided is MPI_Alltoall. For memory that \
             is not mapped the peers' times are those of their user windows. On shared memory no layout is sent, so there \
             is no cache of layouts to be with or without."
        }
        Suite::Coll => "One call of a collective of all ranks.",
        Suite::TwoSided => "One message, one way; bytes are those of a message, or how many others are outstanding.",
        Suite::Loops => {
            "One C program on all libraries, in turns. One way is half of a ping-pong, exchange a send and a receive at once; \
             put, get and accumulate (doubles) end with a flush, and a put by one rank under PSCW is a chain, in which each \
             rank waits for its left neighbour. The limit is a memcpy of as many bytes."
        }
        Suite::Threads => {
            "One operation of 8 bytes, over all threads of a rank (the inverse of their rate); bytes are the threads of each \
             rank. Puts and atomics go both ways, each with a flush; messages in bursts of 64, each thread on a communicator of \
             its own."
        }
        Suite::Limit => "A cache line between two cores, a copy, an atomic addition.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Note;
    use crate::record::tests::record;

    fn results() -> Results {
        let mut results = Results::here("title".to_owned());
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
        let page = html(&results);
        let plots = (page.matches("<svg").count(), page.matches("class=\"bars\"").count());
        assert_eq!(plots, (1, 2), "lines of put; bars of cas and of the barrier");
        let plot = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap()];
        for library in Library::ALL {
            let color = format!("\"{}\"", color(number_of(*library)));
            assert!(plot.contains(&format!(">{}<", short(*library))), "the legend lacks {library}");
            assert!(plot.contains(&color), "the plot lacks {library}");
        }
        let captions = ["atomics · allocated window · 2 ranks", "flush · put · allocated window · 2 ranks"];
        for title in [Suite::Op.label(), Suite::Barrier.label(), "0.00400"].into_iter().chain(captions) {
            assert!(page.contains(title), "{title}");
        }
        assert!(!page.contains(Suite::Ghost.label()) && page.contains(&results.machine.cpu));
        assert_eq!(page.matches("<tr>").count(), 1 + results.table().rows.len());
        assert_eq!(page.matches("http://").count(), page.matches("http://www.w3.org/").count());
    }

    #[test]
    fn html_escapes_what_others_wrote() {
        let mut results = results();
        results.notes.push(Note { subject: "Open MPI".to_owned(), text: "<script>alert(1)</script>".to_owned() });
        results.records.iter_mut().for_each(|record| record.version = "<u>".to_owned());
        let page = html(&results);
        assert!(page.contains("&lt;script&gt;") && page.contains("&lt;u&gt;"));
        assert!(!page.contains("<script>") && !page.contains("<u>"));
    }

    #[test]
    fn html_with_few_records_is_whole() {
        let mut results = Results::here("title".to_owned());
        let page = html(&results);
        assert!(!page.contains("<svg") && page.contains("All times"));
        results.records = vec![record(Library::Mpich, Op::Put, 8, 1.0), record(Library::Mpich, Op::Put, 64, 1.0)];
        let page = html(&results);
        assert!(page.contains("MPICH") && !page.contains("Intel MPI"));
    }
}
