//! The bill as a page: which rank waited for which as a picture, and the calls by cost, for the whole job and each window and team.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::report::{Charge, Line, Report};
use crate::plot::page;

/// Maximum number of rows of a picture. Ranks of larger jobs share rows.
const ROWS: u32 = 48;
/// Maximum number of pictures of windows and teams.
const PICTURES: usize = 50;

/// The whole page.
pub(super) fn html(report: &Report) -> String {
    // Pictures of the accounts with the longest waits only, since each may have thousands of cells.
    let mut by_cost: Vec<(usize, f64)> = report.bill.iter().map(waited).enumerate().collect();
    by_cost.sort_by(|a, b| b.1.total_cmp(&a.1));
    let pictured: BTreeSet<usize> = by_cost.iter().take(PICTURES).map(|(line, _)| *line).collect();
    let all: Vec<&Charge> = report.bill.iter().flat_map(|line| &line.waits).collect();
    let title = format!("The bill of {} ranks, {:.3} s", report.ranks, report.seconds);
    let body = html! {
        p {
            "Each rank waited for others for " (seconds(all.iter().map(|c| c.seconds).sum::<f64>() / f64::from(report.ranks.max(1))))
            " on average. A wait is charged to the rank that was late: not to one that itself waited for it in the same call."
        }
        (picture(&all, report.ranks, report.seconds))
        @if report.bill.len() > PICTURES { p { "The " (PICTURES) " with the longest waits have a picture." } }
        @for (i, line) in report.bill.iter().enumerate() { (section(line, report, pictured.contains(&i))) }
    };
    page(&title, &body)
}

/// The time that all ranks have waited in calls of a window or team.
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
                    td class="n" { (seconds(time)) }
                    td class="n" { @if let Some(calls) = calls.filter(|calls| *calls > 0) { (seconds(time / calls as f64)) } }
                }
            }
        }
    }
}

/// A time, in a unit that suits it.
fn seconds(time: f64) -> String {
    match time {
        0.0 => "0".to_owned(),
        t if t < 1e-6 => format!("{:.0} ns", t * 1e9),
        t if t < 1e-3 => format!("{:.1} µs", t * 1e6),
        t if t < 1.0 => format!("{:.1} ms", t * 1e3),
        t => format!("{t:.2} s"),
    }
}

/// Who waited for whom: a row for each rank that waited, a column for each rank that was late.
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
    let most = times.values().copied().fold(f64::MIN_POSITIVE, f64::max);
    let named = |cell: u32| {
        let (first, last) = (cell * share, ((cell + 1) * share - 1).min(ranks - 1));
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    };
    let is_unknown = times.keys().any(|(_, late)| late.is_none());
    let columns = || (0..cells).map(Some).chain(is_unknown.then_some(None));
    let cell = |row: u32, late: Option<u32>| {
        let time = times.get(&(row, late)).copied().unwrap_or(0.0);
        let who = late.map_or("a rank that is not known".to_owned(), named);
        let title =
            format!("{} waited {} for {who} ({:.1} %)", named(row), seconds(time), 100.0 * time / total.max(1e-9));
        // White to red; a wait that is short beside the longest one still shows.
        let depth = if time > 0.0 { 92.0 - 52.0 * (time / most).sqrt() } else { 97.0 };
        let color = format!("background: hsl(12 {}% {depth:.0}%)", if time > 0.0 { 85 } else { 0 });
        html! { td style=(color) title=(title) {} }
    };
    html! {
        table class="heat" {
            caption { "Rows waited for columns; the darkest is " (seconds(most)) "." }
            tr { th {} @for late in columns() { th { (late.map_or("?".to_owned(), named)) } } }
            @for row in 0..cells { tr { th { (named(row)) } @for late in columns() { (cell(row, late)) } } }
        }
    }
}
