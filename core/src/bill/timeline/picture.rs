//! The timeline as a page: ranks down, time across.

use maud::{Markup, html};

use super::{Timeline, ends, slice};
use crate::plot::{page, time};

/// Width of the picture, and of the names of ranks.
const WIDTH: (f64, f64) = (1400.0, 60.0);
/// Height of a row.
const ROW: f64 = 16.0;
/// Most ranks, slices and arrows of a picture. The file for Perfetto has all of them.
const MAX_DRAWN: (usize, usize) = (512, 40_000);

/// Colors of slices by category, with what they are.
const COLORS: [(&str, &str, &str); 5] = [
    ("call", "#9ecae1", "call"),
    ("wait", "#e6804a", "wait"),
    ("function", "#74b474", "function for another rank"),
    ("signal", "#333", "signal"),
    ("message", "#8a63b0", "message that arrives"),
];

struct Slice {
    rank: usize,
    begin: f64,
    end: f64,
    category: String,
    name: String,
}

impl Timeline {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let (most_ranks, most) = MAX_DRAWN;
        let ranks = self.ranks.len().min(most_ranks);
        let mut slices: Vec<Slice> = Vec::new();
        for (rank, events) in self.ranks.iter().enumerate().take(ranks) {
            for (event, end) in events.iter().zip(ends(events)) {
                let Some(value) = slice(rank as u32, event, end) else { continue };
                let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
                let begin = value["ts"].as_f64().unwrap_or(0.0);
                let end = begin + value["dur"].as_f64().unwrap_or(0.0);
                slices.push(Slice { rank, begin, end, category: text("cat"), name: text("name") });
            }
        }
        // Long slices are drawn first, so that those inside of them are above.
        slices.sort_by(|a, b| (b.end - b.begin).total_cmp(&(a.end - a.begin)));
        let begin = slices.iter().map(|s| s.begin).fold(f64::INFINITY, f64::min).min(1e300);
        let end = slices.iter().map(|s| s.end).fold(begin, f64::max);
        let across = |us: f64| WIDTH.1 + (WIDTH.0 - WIDTH.1 - 10.0) * (us - begin) / (end - begin).max(1e-9);
        let height = ROW * (ranks as f64 + 2.0);
        let left_out =
            self.ranks.len() > ranks || slices.len() > most || self.dropped.iter().any(|dropped| *dropped > 0);
        let title = format!("Timeline of {} ranks, {}", self.ranks.len(), time(1000.0 * (end - begin).max(0.0)));
        let arrows = self.arrows();
        let arrows = arrows.iter().filter(|(_, from, to)| (from.0.max(to.0) as usize) < ranks).take(most);
        let body = html! {
            p {
                @for (_, color, name) in COLORS { span style=(format!("color: {color}")) { "■ " } (name) "   " }
                "— from what a wait was for to its end"
            }
            @if left_out { p { "Not all ranks and events are shown; the .json file has more." } }
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {} {height}", WIDTH.0)) width=(WIDTH.0) height=(height) font-family="sans-serif" font-size="10" {
                @for rank in 0..ranks {
                    text x="2" y=(row(rank) + 0.7 * ROW) { "rank " (rank) }
                    line x1=(WIDTH.1) x2=(WIDTH.0) y1=(row(rank)) y2=(row(rank)) stroke="#eee" {}
                }
                @for slice in slices.iter().take(most) { (drawn(slice, &across)) }
                @for (_, from, to) in arrows {
                    @let y = |rank: u32| row(rank as usize) + 0.5 * ROW;
                    @let x = |ns: u64| format!("{:.2}", across(ns as f64 / 1e3));
                    line x1=(x(from.1)) y1=(y(from.0)) x2=(x(to.1)) y2=(y(to.0)) stroke="#555" stroke-width="0.5" {}
                }
                @for n in 0..=10 {
                    @let us = begin + (end - begin) * f64::from(n) / 10.0;
                    text x=(format!("{:.1}", across(us))) y=(height - 0.4 * ROW) text-anchor="middle" { (time(1000.0 * (us - begin))) }
                }
            }
        };
        page(&title, &body)
    }
}

fn row(rank: usize) -> f64 {
    ROW * (rank as f64 + 0.5)
}

fn drawn(slice: &Slice, across: &impl Fn(f64) -> f64) -> Markup {
    let color = COLORS.iter().find(|(category, ..)| *category == slice.category).map_or("#999", |(_, color, _)| color);
    let (from, to) = (across(slice.begin), across(slice.end));
    // Waits and marks are lower than the calls that they are in.
    let inset = if slice.category == "call" { 1.0 } else { 4.0 };
    let [x, width, y, height] =
        [from, (to - from).max(0.6), row(slice.rank) + inset, ROW - 2.0 * inset].map(|v| format!("{v:.2}"));
    let title = format!("rank {}: {}, {}", slice.rank, slice.name, time(1000.0 * (slice.end - slice.begin)));
    html! { rect x=(x) y=(y) width=(width) height=(height) fill=(color) { title { (title) } } }
}
