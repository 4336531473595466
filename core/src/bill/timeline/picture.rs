//! The timeline as a page: ranks down, time across. The picture is complete without its script (`picture.js`), which
//! zooms and shows details of the slice under the pointer.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::{Event, MOMENT, Moment, Timeline, begin, ends, slice};
use crate::plot::{linear, marks, page, text_width, time};

/// Widths of the picture, of the names of ranks, and of the space at the right, like all sizes here in units of the
/// picture.
const WIDTH: [f64; 3] = [1400.0, 60.0, 30.0];
/// Height of a row.
const ROW: f64 = 16.0;
/// Size of the font.
const FONT: f64 = 10.0;
/// Maximum number of ranks, and of slices and arrows, of a picture. The file for Perfetto has all of them.
const MAX_DRAWN: (usize, usize) = (512, 40_000);

/// Colors of slices by category, with a description.
const COLORS: [(&str, &str, &str); 5] = [
    ("call", "#9ecae1", "call"),
    ("wait", "#e6804a", "wait"),
    ("function", "#74b474", "function for another rank"),
    ("signal", "#333", "signal"),
    ("message", "#8a63b0", "message that arrives"),
];

/// A slice, whose times are nanoseconds.
struct Slice {
    rank: usize,
    begin: u64,
    end: u64,
    category: &'static str,
    color: &'static str,
    title: String,
}

impl Slice {
    fn new(rank: usize, event: &Event<String>, end: u64, first: u64) -> Option<Self> {
        let value = slice(rank as u32, event, end)?;
        let (category, color, _) = *COLORS.iter().find(|(category, ..)| value["cat"] == *category)?;
        let begin = begin(event);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut title = format!("{}\nrank {rank}, {}", text(&value["name"]), text(&value["args"]["of"]));
        add(&mut title, "", &value["args"]);
        let at = time(begin.saturating_sub(first) as f64);
        let ns = end.saturating_sub(begin);
        match category {
            "signal" | "message" => title += &format!("\nat {at}"),
            "call" if ns <= MOMENT => title += &format!("\nat {at}, without a wait"),
            _ => title += &format!("\n{} from {at}", time(ns as f64)),
        }
        Some(Self { rank, begin, end, category, color, title })
    }
}

/// Adds the arguments of a slice that are numbers to its title.
fn add(title: &mut String, key: &str, value: &Value) {
    match value {
        Value::Null | Value::String(_) => {}
        Value::Object(all) => all.iter().for_each(|(key, value)| add(title, key, value)),
        value => *title += &format!(", {key} {value}"),
    }
}

impl Timeline {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let (most_ranks, most) = MAX_DRAWN;
        let ranks = self.ranks.len().min(most_ranks);
        let first = self.ranks.iter().take(ranks).flatten().map(begin).min().unwrap_or(0);
        let mut slices: Vec<Slice> = Vec::new();
        for (rank, events) in self.ranks.iter().enumerate().take(ranks) {
            let ended = events.iter().zip(ends(events));
            slices.extend(ended.filter_map(|(event, end)| Slice::new(rank, event, end, first)));
        }
        // Long slices are drawn first, so that the slices inside them are above them.
        slices.sort_by_key(|slice| std::cmp::Reverse(slice.end.saturating_sub(slice.begin)));
        let last = slices.iter().map(|slice| slice.end).max().unwrap_or(first);
        let scale = Scale { first, total: last.saturating_sub(first).max(1) };
        let height = ROW * (ranks as f64 + 2.0);
        let left_out =
            self.ranks.len() > ranks || slices.len() > most || self.dropped.iter().any(|dropped| *dropped > 0);
        slices.truncate(most);
        // The sort is stable, so the slices of a rank stay in their order.
        slices.sort_by_key(|slice| slice.rank);
        let arrows = self.arrows();
        let arrows = arrows.iter().filter(|(_, from, to)| (from.0.max(to.0) as usize) < ranks).take(most);
        let [width, left, right] = WIDTH;
        let inside = width - left - right;
        let body = html! {
            p {
                @for (_, color, name) in COLORS { span style=(format!("color: {color}")) { "■ " } (name) "   " }
                "→ from what a wait was for to its end"
            }
            @if left_out { p { "Not all ranks and events are shown; the .json file has more." } }
            p id="controls" hidden {
                @for (name, text) in [("in", "+"), ("out", "−"), ("left", "←"), ("right", "→"), ("whole", "whole")] {
                    button name=(name) { (text) } " "
                }
                "The wheel zooms, dragging moves. What is under the pointer shows its name and its arrows."
            }
            input id="arrows" type="checkbox"; " "
            label for="arrows" { "all arrows" }
            svg class="timeline" data-plot=(format!("{left} {inside} {}", scale.total)) xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) font-family="sans-serif" font-size=(FONT) {
                defs {
                    clipPath id="plot" { rect width=(inside) height=(height) {} }
                    marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto" { path d="M0 1L8 4L0 7z" fill="#333" {} }
                }
                rect width="100%" height="100%" fill="#fff" {}
                g class="axis" stroke-width="0.5" text-anchor="middle" { (axis(&scale, height)) }
                @for rank in 0..ranks { text x="2" y=(row(rank) + 0.7 * ROW) { "rank " (rank) } }
                g transform=(format!("translate({left} 0)")) clip-path="url(#plot)" {
                    @for rank in 0..ranks {
                        line x2=(inside) y1=(row(rank)) y2=(row(rank)) stroke="#eee" {}
                    }
                    @for of_rank in slices.chunk_by(|a, b| a.rank == b.rank) {
                        g data-rank=(of_rank[0].rank) { @for slice in of_rank { (drawn(slice, &scale)) } }
                    }
                    g stroke="#333" stroke-width="0.7" {
                        @for (name, from, to) in arrows { (arrow(name, *from, *to, &scale)) }
                    }
                }
            }
            div id="tip" hidden {}
            script { (PreEscaped(include_str!("picture.js"))) }
        };
        page(&format!("Timeline of {} ranks, {}", self.ranks.len(), time(scale.total as f64)), &body)
    }
}

/// The time at the left end, and the time from there to the right end, in nanoseconds.
struct Scale {
    first: u64,
    total: u64,
}

impl Scale {
    /// Nanoseconds since the left end.
    fn since(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.first)
    }

    /// Horizontal distance in the picture for a time in nanoseconds.
    fn distance(&self, since: f64) -> f64 {
        let [width, left, right] = WIDTH;
        (width - left - right) * since / self.total as f64
    }
}

fn axis(scale: &Scale, height: f64) -> Markup {
    let total = scale.total as f64;
    let all = marks(linear(0.0, total), |ns| scale.distance(ns), |ns| text_width(&time(ns), FONT) + 2.0 * ROW);
    html! {
        @for ns in all {
            @let x = format!("{:.2}", WIDTH[1] + scale.distance(ns));
            line x1=(x) x2=(x) y1="0" y2=(height - ROW) stroke="#ccc" {}
            text x=(x) y=(height - 0.25 * ROW) { (time(ns)) }
        }
    }
}

fn row(rank: usize) -> f64 {
    ROW * (rank as f64 + 0.5)
}

fn drawn(slice: &Slice, scale: &Scale) -> Markup {
    let (begin, end) = (scale.since(slice.begin), scale.since(slice.end));
    let (from, to) = (scale.distance(begin as f64), scale.distance(end as f64));
    // Waits and marks are drawn lower than the calls that contain them.
    let inset = if slice.category == "call" { 1.0 } else { 4.0 };
    let [x, width] = [from, (to - from).max(0.6)].map(|v| format!("{v:.2}"));
    html! {
        rect class="slice" data-t=(format!("{begin} {end}")) x=(x) y=(row(slice.rank) + inset) width=(width) height=(ROW - 2.0 * inset) fill=(slice.color) {
            title { (slice.title) }
        }
    }
}

fn arrow(name: &str, from: Moment, to: Moment, scale: &Scale) -> Markup {
    let (begin, end) = (scale.since(from.1), scale.since(to.1));
    let [x1, x2] = [begin, end].map(|ns| format!("{:.2}", scale.distance(ns as f64)));
    let y = |rank: u32| row(rank as usize) + 0.5 * ROW;
    let took = time(end.saturating_sub(begin) as f64);
    html! {
        line class="arrow" marker-end="url(#head)" data-t=(format!("{begin} {end}")) data-ranks=(format!("{} {}", from.0, to.0)) x1=(x1) y1=(y(from.0)) x2=(x2) y2=(y(to.0)) {
            title { (name) "\nfrom rank " (from.0) " to rank " (to.0) ", " (took) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, TraceEvent};
    use super::*;

    /// Rank 1 waits for a message of rank 0, in a team without a name, with hostile names of operations.
    fn timeline() -> Timeline {
        let event = |at, what| Event { at, account: Some((0, 0)), what };
        let (send, receive) = ("<b>send</b>".to_owned(), "</script>\"receive".to_owned());
        let sender = vec![
            event(5_000, TraceEvent::Called { operation: send, number: 1, peer: Some(1) }),
            event(9_000, TraceEvent::Signalled { kind: Kind::Message(7), to: 1, number: 1, value: 4096 }),
        ];
        let waited = TraceEvent::Waited { operation: receive.clone(), from: None, is_collective: false, ns: 8_000 };
        let receiver = vec![
            event(2_000, TraceEvent::Called { operation: receive, number: 1, peer: Some(0) }),
            event(10_500, waited),
            event(10_600, TraceEvent::Arrived { tag: 7, from: 0, number: 1, len: 4096 }),
        ];
        Timeline { ranks: vec![sender, receiver], dropped: vec![0, 0] }
    }

    #[test]
    fn page_names_every_event_and_escapes_names() {
        let page = timeline().page();
        let titles: Vec<&str> = page.split("<title>").skip(2).map(|s| s.split("</title>").next().unwrap()).collect();
        assert_eq!(titles.len(), page.matches("class=\"slice\"").count() + page.matches("class=\"arrow\"").count());
        for title in [
            "&lt;b&gt;send&lt;/b&gt;\nrank 0, team 0, call 1, peer 1\nat 3 µs, without a wait",
            "message to 1\nrank 0, team 0, bytes 4096, tag 7\nat 7 µs",
            "&lt;/script&gt;&quot;receive: waits\nrank 1, team 0\n8 µs from 500 ns",
            "message from 0\nrank 1, team 0, bytes 4096, tag 7\nat 8.6 µs",
            "message\nfrom rank 0 to rank 1, 1.6 µs",
        ] {
            assert!(titles.contains(&title), "{title} is not in {titles:#?}");
        }
        // The only script is the page's own, and nothing is loaded.
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (1, 1));
        assert!(page.matches("http").eq(["http"]) && !page.contains("src=") && !page.contains("<b>"), "{page}");
    }

    #[test]
    fn picture_is_complete_without_its_script() {
        let page = timeline().page();
        let picture = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap()];
        for part in
            ["data-plot=\"60 1310 8601\"", ">2 µs<", ">rank 1<", "data-t=\"3000 3100\" x=\"456.", "data-ranks=\"0 1\""]
        {
            assert!(picture.contains(part), "{part} is not in {picture}");
        }
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(!Timeline { ranks: vec![Vec::new()], dropped: vec![0] }.page().contains("NaN"));
    }
}
