//! The report for readers: one complete HTML file, for the screen and for paper.

use std::collections::BTreeMap;

use farside_core::error::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plot::{self, Against, Series};
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::results::Results;
use crate::table::{Row, Table, number, short};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.25rem; margin-top: 2.4rem; border-bottom: 1px solid #ccc; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; } dt { color: #666; } dd { margin: 0; }
.notes { background: #fff6e0; border-left: 4px solid #d99a00; padding: .5rem 1rem; }
.legend span { margin-right: 1.4rem; white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 1rem 1.5rem; align-items: start; }
figure { margin: 0; break-inside: avoid; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; }
.bars { display: grid; grid-template-columns: 5rem 1fr; gap: .1rem .6rem; font-size: 13px; line-height: 1.2; }
.bars b { grid-column: 1 / 3; margin-top: .4rem; } .bars i { display: inline-block; height: .8rem; margin-right: .4rem; }
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
    let sections = Suite::ALL.iter().map(|suite| section(&table, *suite)).collect::<Result<Vec<_>>>()?;
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
                @for section in sections { (section) }
                h2 { "All times" }
                p { (table.legend()) }
                (rows(&table))
            }
        }
    };
    Ok(page.into_string())
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
type Curve = (u32, Window, Sync, Op, Shape, Option<u64>);

/// The plots of a suite: lines if there are several sizes, or several numbers of blocks of one size; all others as bars
/// of one plot. All lines have the same axis of time, and so have all bars.
fn section(table: &Table, suite: Suite) -> Result<Markup> {
    let mut curves: BTreeMap<Curve, Vec<&Row>> = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.key.suite == suite) {
        let Key { ranks, window, sync, op, shape, bytes, .. } = row.key;
        let size = shape.number_of("blocks").map(|_| bytes);
        curves.entry((ranks, window, sync, op, shape.kind(), size)).or_default().push(row);
    }
    if curves.is_empty() {
        return Ok(Markup::default());
    }
    let libraries = table.libraries.iter().filter(|l| curves.values().flatten().any(|row| row.us.contains_key(l)));
    let lines = || curves.iter().filter(|(_, rows)| rows.len() > 1);
    let range = plot::range(lines().flat_map(|(_, rows)| rows.iter().flat_map(|row| row.us.values().copied())));
    let mut figures = Vec::new();
    for ((ranks, window, sync, op, shape, size), rows) in lines() {
        let mut series = Series::new();
        for (row, (library, us)) in rows.iter().flat_map(|row| row.us.iter().map(move |us| (row, us))) {
            let at = row.key.shape.number_of("blocks").unwrap_or(row.key.bytes);
            series.entry(*library).or_default().insert(at, *us);
        }
        let blocks = size.map(|bytes| format!("blocks of {} together", plot::size(bytes)));
        let shape = blocks.as_deref().unwrap_or(shape.label());
        let ranks = if *ranks == 1 { String::new() } else { format!("{ranks} ranks") };
        let caption = name(&[sync.label(), op.label(), shape, window.label(), &ranks]);
        let against = if size.is_some() { Against::Blocks } else { Against::Bytes };
        figures.push((caption, PreEscaped(plot::lines(&series, against, range.clone())?)));
    }
    let mut single: BTreeMap<(u32, Window), Vec<&Row>> = BTreeMap::new();
    for ((ranks, window, ..), rows) in curves.iter().filter(|(_, rows)| rows.len() == 1) {
        single.entry((*ranks, *window)).or_default().push(rows[0]);
    }
    let range = plot::range(single.values().flatten().flat_map(|row| row.us.values().copied()));
    for ((ranks, window), rows) in &single {
        let what = if suite == Suite::Op { "atomics" } else { suite.label() };
        figures.push((name(&[what, window.label(), &format!("{ranks} ranks")]), bars(rows, range.end)));
    }
    Ok(html! {
        h2 { (suite.label()) }
        p { (explanation(suite)) }
        p class="legend" { @for library in libraries {
            span { span style=(colour(*library)) { (plot::style(*library).1) " " } (library.label()) } } }
        div class="plots" { @for (caption, plot) in &figures { figure { figcaption { (caption) } (plot) } } }
    })
}

/// Horizontal bars that begin at 0, with their values, in groups below their names.
fn bars(rows: &[&Row], most: f64) -> Markup {
    html! {
        div class="bars" { @for row in rows {
            b { (name(&[row.key.sync.label(), row.key.op.label(), row.key.shape.label()])) ", µs" }
            @for (library, us) in &row.us {
                span { (short(*library)) }
                span { i style=(format!("width: {:.2}%; background: currentColor; {}", 85.0 * us / most, colour(*library))) {}
                    (number(Some(*us))) }
            }
        } }
    }
}

fn colour(library: Library) -> String {
    let plotters::style::RGBColor(r, g, b) = plot::style(library).0;
    format!("color: #{r:02x}{g:02x}{b:02x}")
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
        Suite::Limit => "A cache line between two cores, a copy, an atomic addition.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Note;
    use crate::record::tests::record;

    fn results() -> Results {
        let mut results = Results::here("title");
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
        let plots = (page.matches("<svg").count(), page.matches("class=\"bars\"").count());
        assert_eq!(plots, (1, 2), "lines of put; bars of cas and of the barrier");
        let legend = &page[page.find("class=\"legend\"").unwrap()..page.find("<figure>").unwrap()];
        for library in Library::ALL {
            assert!(legend.contains(library.label()), "{library} is not in the legend");
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
        let page = html(&results).unwrap();
        assert!(page.contains("&lt;script&gt;") && page.contains("&lt;u&gt;"));
        assert!(!page.contains("<script>") && !page.contains("<u>"));
    }

    #[test]
    fn html_with_few_records_is_whole() {
        let mut results = Results::here("title");
        let page = html(&results).unwrap();
        assert!(!page.contains("<svg") && page.contains("All times"));
        results.records = vec![record(Library::Mpich, Op::Put, 8, 1.0), record(Library::Mpich, Op::Put, 64, 1.0)];
        let page = html(&results).unwrap();
        assert!(page.contains("MPICH") && !page.contains("Intel MPI"));
    }
}
