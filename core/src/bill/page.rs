//! The bill as a page: a picture that shows which rank waited for which, and the calls ordered by cost, for the whole
//! job and for each window and team.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::report::{Charge, Line, Report};
use crate::plot::{linear, marks, page, text_width, time, whole};

/// Maximum number of rows of a picture. Ranks of larger jobs share rows.
const ROWS: u32 = 48;
/// Maximum number of pictures of windows and teams.
const PICTURES: usize = 50;

/// The whole page.
pub(super) fn html(report: &Report) -> String {
    // Only the accounts with the longest waits get a picture, since each picture may have thousands of cells.
    let mut by_cost: Vec<(usize, f64)> = report.bill.iter().map(waited).enumerate().collect();
    by_cost.sort_by(|a, b| b.1.total_cmp(&a.1));
    let pictured: BTreeSet<usize> = by_cost.iter().take(PICTURES).map(|(line, _)| *line).collect();
    let all: Vec<&Charge> = report.bill.iter().flat_map(|line| &line.waits).collect();
    let title = format!("The bill of {} ranks, {:.3} s", report.ranks, report.seconds);
    let body = html! {
        p {
            "Each rank waited for others for " (spent(all.iter().map(|c| c.seconds).sum::<f64>() / f64::from(report.ranks.max(1))))
            " on average. A wait is charged to the rank that was late: not to one that itself waited for it in the same call."
        }
        (picture(&all, report.ranks, report.seconds))
        @if report.bill.len() > PICTURES { p { "The " (PICTURES) " with the longest waits have a picture." } }
        @for (i, line) in report.bill.iter().enumerate() { (section(line, report, pictured.contains(&i))) }
    };
    page(&title, &body)
}

/// The total time that ranks have waited in calls of a window or team.
fn waited(line: &Line) -> f64 {
    line.waits.iter().map(|charge| charge.seconds).sum()
}

fn section(line: &Line, report: &Report, is_pictured: bool) -> Markup {
    let waits: Vec<&Charge> = line.waits.iter().collect();
    html! {
        h2 { (line.account) @if let Some(name) = &line.name { " “" (name) "”" } ", " (line.ranks.len()) " ranks" }
        div class="sides" {
            (costs(line))
            @if !line.operations.is_empty() {
                table {
                    tr { th { "Messages and copies" } th { "Count" } th { "Bytes" } }
                    @for (kind, amount) in &line.operations {
                        tr { td { (kind) } td class="n" { (amount.count) } td class="n" { (amount.bytes) } }
                    }
                }
            }
            @if is_pictured { (picture(&waits, report.ranks, report.seconds)) }
        }
    }
}

/// The calls of a window or team, those with the longest waits first.
fn costs(line: &Line) -> Markup {
    let mut waited: BTreeMap<&str, f64> = line.calls.keys().map(|name| (name.as_str(), 0.0)).collect();
    for charge in &line.waits {
        *waited.entry(&charge.operation).or_default() += charge.seconds;
    }
    let mut rows: Vec<(&str, f64)> = waited.into_iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    html! {
        table {
            tr { th { "Call" } th { "Calls" } th { "Waited, all ranks" } th { "A call" } }
            @for (name, time) in rows {
                @let calls = line.calls.get(name).copied();
                tr {
                    td { (name) }
                    td class="n" { @if let Some(calls) = calls { (calls) } }
                    td class="n" { (spent(time)) }
                    td class="n" { @if let Some(calls) = calls.filter(|calls| *calls > 0) { (spent(time / calls as f64)) } }
                }
            }
        }
    }
}

/// A time in seconds, formatted with a suitable unit.
fn spent(seconds: f64) -> String {
    time(1e9 * seconds)
}

/// Size of the font, like all sizes here in units of the picture.
const FONT: f64 = 11.0;
/// Height of the labels of columns and of the scale, with their space.
const LINE: f64 = 18.0;
/// Width of the column of waits for a rank that is not known, with its name.
const UNKNOWN: (f64, &str) = (70.0, "not known");
/// Number of swatches of the scale, and the width of one.
const SWATCHES: (u32, f64) = (26, 10.0);

/// The color, from white to red, for a fraction of the longest time. A comparatively short time is still visible.
fn color(part: f64) -> String {
    format!("hsl(12 85% {:.0}%)", 92.0 - 52.0 * part.sqrt())
}

/// The picture of waits: a row for each rank that waited, a column for each rank that was late.
fn picture(charges: &[&Charge], ranks: u32, total: f64) -> Markup {
    if charges.is_empty() || ranks == 0 {
        return html! {};
    }
    let share = ranks.div_ceil(ROWS);
    let cells = ranks.div_ceil(share);
    let mut times: BTreeMap<(u32, Option<u32>), f64> = BTreeMap::new();
    for charge in charges {
        *times.entry((charge.rank / share, charge.waited_for.map(|rank| rank / share))).or_default() += charge.seconds;
    }
    let most = times.values().copied().fold(1e-9, f64::max);
    let named = |cell: u32| {
        let (first, last) = (cell * share, ((cell + 1) * share - 1).min(ranks - 1));
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    };
    let is_unknown = times.keys().any(|(_, late)| late.is_none());
    // The positions of cells, and the labels that fit.
    let (across, down) = ((880.0 / f64::from(cells)).clamp(15.0, 110.0), (880.0 / f64::from(cells)).clamp(15.0, 30.0));
    let left = LINE + text_width(&named(cells - 1), FONT);
    let top = 2.0 * LINE;
    let right = left + across * f64::from(cells);
    let bottom = top + down * f64::from(cells);
    let row = |cell: f64| top + down * (cell + 0.5);
    let column = |cell: f64| left + across * (cell + 0.5);
    let name = |cell: f64| named(cell as u32);
    let labels = || whole(0.0, f64::from(cells - 1));
    let rows = marks(labels(), row, |_| FONT + 2.0);
    let columns = marks(labels(), column, |cell| text_width(&name(cell), FONT) + 4.0);
    let width = (right + if is_unknown { UNKNOWN.0 + 20.0 } else { 10.0 }).max(left + 340.0).ceil();
    let height = bottom + 4.0 * LINE;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) font-family="sans-serif" font-size=(FONT) fill="#333" {
            rect width="100%" height="100%" fill="#fff" {}
            text x=(left) y="13" { "The rank of a row waited for the rank of a column:" }
            @for cell in rows { text x=(left - 6.0) y=(row(cell) + 4.0) text-anchor="end" { (name(cell)) } }
            @for cell in columns { text x=(column(cell)) y=(top - 5.0) text-anchor="middle" { (name(cell)) } }
            rect x=(left) y=(top) width=(right - left) height=(bottom - top) fill="#f5f5f5" {}
            @if is_unknown {
                text x=(right + 10.0 + UNKNOWN.0 / 2.0) y=(top - 5.0) text-anchor="middle" { (UNKNOWN.1) }
                rect x=(right + 10.0) y=(top) width=(UNKNOWN.0) height=(bottom - top) fill="#f5f5f5" {}
            }
            @for ((waited, late), time) in times.iter().filter(|(_, time)| **time > 0.0) {
                @let (x, width) = late.map_or((right + 10.0, UNKNOWN.0), |late| (left + across * f64::from(late), across));
                @let y = top + down * f64::from(*waited);
                @let percent = format!("{:.1} %", 100.0 * time / total.max(1e-9));
                @let who = late.map_or("a rank that is not known".to_owned(), named);
                @let texts = [format!("{}, {percent}", spent(*time)), spent(*time)];
                rect x=(x) y=(y) width=(width - 1.0) height=(down - 1.0) fill=(color(time / most)) {
                    title { (named(*waited)) " waited " (spent(*time)) " for " (who) " (" (percent) ")" }
                }
                @if let Some(text) = texts.iter().find(|text| text_width(text, FONT) < width) {
                    text x=(x + width / 2.0) y=(y + down / 2.0 + 4.0) text-anchor="middle" pointer-events="none" { (text) }
                }
            }
            (scale(left, bottom + LINE, most))
            text x=(left) y=(bottom + 3.0 * LINE + 8.0) { "time waited; in cells also as a part of " (spent(total)) }
        }
    }
}

/// The colors of the times up to the longest one, with an axis.
fn scale(left: f64, top: f64, most: f64) -> Markup {
    let (swatches, swatch) = SWATCHES;
    let along = |seconds: f64| left + f64::from(swatches) * swatch * seconds / most;
    let marked = marks(linear(0.0, most), along, |seconds| text_width(&spent(seconds), FONT) + 10.0);
    html! {
        @for n in 0..swatches {
            rect x=(left + swatch * f64::from(n)) y=(top) width=(swatch) height="10" fill=(color((f64::from(n) + 0.5) / f64::from(swatches))) {}
        }
        @for seconds in marked {
            line x1=(along(seconds)) x2=(along(seconds)) y1=(top) y2=(top + 14.0) stroke="#333" {}
            text x=(along(seconds)) y=(top + LINE + 8.0) text-anchor="middle" { (spent(seconds)) }
        }
    }
}
