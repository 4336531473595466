//! Pages, and plots as SVG: measured points and curves against a size or a number, on a logarithmic axis of times.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all pages.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; border-bottom: 1px solid #ccc; }
.sides { display: flex; flex-wrap: wrap; gap: 1.5rem 3rem; align-items: flex-start; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: left; border-bottom: 1px solid #eee; }
th { background: #f4f4f4; font-weight: 600; } .n { text-align: right; }
.heat td, .heat th { border: 1px solid #fff; padding: 0; min-width: 1.5rem; height: 1.5rem; text-align: center; font-weight: normal; }
.heat th { padding: 0 .3rem; background: none; color: #666; } .heat caption { text-align: left; color: #444; padding-bottom: .3rem; }
";

/// Size of the plot without its legend, margins included.
const SIZE: (f64, f64) = (460.0, 300.0);
/// Margins: left, top, right, bottom.
const MARGINS: [f64; 4] = [62.0, 26.0, 12.0, 40.0];
/// Width of the legend, and height of its lines.
const LEGEND: (f64, f64) = (230.0, 14.0);
/// Most marks of an axis.
const MARKS: usize = 8;
/// The first colors, which are also distinct to color-blind readers (Okabe and Ito), dark enough for white paper.
const COLORS: [&str; 6] = ["#005aa8", "#d55e00", "#008f68", "#b85693", "#222222", "#707070"];
/// Corners of the marks of points, one for each color in turn, so that curves are distinct without color.
const SIGNS: [&[(f64, f64)]; 5] = [
    &[(-1.5, -3.0), (1.5, -3.0), (3.0, -1.5), (3.0, 1.5), (1.5, 3.0), (-1.5, 3.0), (-3.0, 1.5), (-3.0, -1.5)],
    &[(0.0, -4.0), (4.0, 3.0), (-4.0, 3.0)],
    &[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)],
    &[(0.0, -4.5), (4.0, 0.0), (0.0, 4.5), (-4.0, 0.0)],
    &[(-1.0, -4.0), (1.0, -4.0), (1.0, 4.0), (-1.0, 4.0)],
];

/// A page in the style of all pages.
#[must_use]
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { h1 { (title) } (body) }
        }
    };
    page.into_string()
}

/// The quantity on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Bytes, logarithmic; 0 is where 1 would be on a linear beginning.
    Bytes,
    /// A number of messages or ranks, linear.
    Number(&'static str),
    /// A number, logarithmic.
    Powers(&'static str),
}

impl Axis {
    fn place(self, x: f64) -> f64 {
        match self {
            Self::Bytes | Self::Powers(_) => (x + 1.0).log2(),
            Self::Number(_) => x,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Bytes => "size",
            Self::Number(name) | Self::Powers(name) => name,
        }
    }

    fn tick(self, x: f64) -> String {
        if self == Self::Bytes { size(x as u64) } else { format!("{x}") }
    }
}

/// The way in which a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// A mark for each point.
    Marks,
    /// Marks, with lines between them.
    Line,
    /// A dashed line.
    Dashed,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// The number of its color. Curves of one color belong together.
    pub color: usize,
    /// How it is drawn.
    pub drawn: Drawn,
    /// Bytes or number, and nanoseconds. Times of 0 are not drawn.
    pub points: Vec<(f64, f64)>,
}

/// A plot of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub axis: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Nanoseconds that the axis of times has in any case, so that plots can be compared.
    pub range: Option<[f64; 2]>,
}

impl Plot {
    /// The plot as an SVG element; empty if there is nothing to draw.
    #[must_use]
    pub fn svg(&self) -> Markup {
        let is_drawn = |(x, y): &&(f64, f64)| x.is_finite() && *x >= 0.0 && y.is_finite() && *y > 0.0;
        let all = || self.curves.iter().flat_map(|curve| &curve.points).filter(is_drawn);
        if all().next().is_none() {
            return html! {};
        }
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (least, most) = span(&mut all().map(|(_, y)| *y).chain(self.range.into_iter().flatten()));
        let (left, right) = span(&mut all().map(|(x, _)| self.axis.place(*x)));
        let (low, high) = ((least / 1.3).log10(), (most * 1.3).log10());
        let [margin_left, top, margin_right, bottom] = MARGINS;
        let (width, height) = (SIZE.0 - margin_left - margin_right, SIZE.1 - top - bottom);
        let across = |x: f64| margin_left + width * (self.axis.place(x) - left) / (right - left).max(1e-9);
        let down = |y: f64| top + height * (high - y.log10()) / (high - low);
        let mut xs: Vec<f64> = all().map(|(x, _)| *x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let xs = xs.iter().step_by(xs.len().div_ceil(MARKS));
        let points = |curve: &Curve| -> Vec<(f64, f64)> {
            curve.points.iter().filter(is_drawn).map(|(x, y)| (across(*x), down(*y))).collect()
        };
        let total = SIZE.1.max(top + LEGEND.1 * (self.curves.len() + 1) as f64);
        let view = format!("0 0 {} {total}", SIZE.0 + LEGEND.0);
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(SIZE.0 + LEGEND.0) height=(total) font-family="sans-serif" font-size="11" fill="#333" {
                text x=(margin_left) y="16" font-size="13" font-weight="600" { (self.title) }
                @for y in decades(10_f64.powf(low), 10_f64.powf(high)) {
                    line x1=(margin_left) x2=(margin_left + width) y1=(down(y)) y2=(down(y)) stroke="#e2e2e2" {}
                    text x=(margin_left - 5.0) y=(down(y) + 4.0) text-anchor="end" { (time(y)) }
                }
                @for x in xs {
                    line x1=(across(*x)) x2=(across(*x)) y1=(top + height) y2=(top + height + 4.0) stroke="#333" {}
                    text x=(across(*x)) y=(top + height + 16.0) text-anchor="middle" { (self.axis.tick(*x)) }
                }
                text x=(margin_left + width / 2.0) y=(SIZE.1 - 6.0) text-anchor="middle" { (self.axis.label()) }
                rect x=(margin_left) y=(top) width=(width) height=(height) fill="none" stroke="#333" {}
                @for (n, curve) in self.curves.iter().enumerate() {
                    (drawn(curve, &points(curve)))
                    @let y = top + LEGEND.1 * (n as f64 + 0.5);
                    (drawn(curve, &[(SIZE.0 + 6.0, y), (SIZE.0 + 26.0, y)]))
                    text x=(SIZE.0 + 32.0) y=(y + 4.0) { (curve.name) }
                }
            }
        }
    }
}

/// A color, which is distinct from those of neighbouring numbers.
#[must_use]
pub fn color(number: usize) -> String {
    let far = || format!("hsl({} 75% 38%)", (210.0 + 137.5 * number as f64) % 360.0);
    COLORS.get(number).map_or_else(far, |color| (*color).to_owned())
}

fn drawn(curve: &Curve, points: &[(f64, f64)]) -> Markup {
    let color = color(curve.color);
    let path = |points: &mut dyn Iterator<Item = (f64, f64)>| -> String {
        points.map(|(x, y)| format!("{x:.1},{y:.1} ")).collect()
    };
    let line = path(&mut points.iter().copied());
    let sign =
        |(x, y): &(f64, f64)| path(&mut SIGNS[curve.color % SIGNS.len()].iter().map(|(dx, dy)| (x + dx, y + dy)));
    let dashes = if curve.drawn == Drawn::Dashed { "5 4" } else { "" };
    html! {
        @if curve.drawn != Drawn::Marks {
            polyline points=(line.trim_end()) fill="none" stroke=(color) stroke-width="1.5" stroke-dasharray=(dashes) {}
        }
        @if curve.drawn != Drawn::Dashed {
            @for point in points { polygon points=(sign(point).trim_end()) fill=(color) {} }
        }
    }
}

/// The marks of a logarithmic axis: 1, 2 and 5 of each decade, or only 1 where there are many.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low < 400.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let marks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
    marks.filter(|mark| (low..=high).contains(mark)).collect()
}

/// Nanoseconds, in a unit that suits them.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        t if t < 1e3 => (ns, "ns"),
        t if t < 1e6 => (ns / 1e3, "µs"),
        t if t < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    // Three digits.
    let digits = if value.abs() < 1e-9 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// A number of bytes in binary units.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x400 => return format!("{bytes} B"),
        0x400..0x10_0000 => (0x400, "KiB"),
        _ => (0x10_0000, "MiB"),
    };
    let text = format!("{:.1}", bytes as f64 / f64::from(unit));
    format!("{} {name}", text.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_has_every_curve_and_mark() {
        let curve = |name: &str, drawn, points: &[(f64, f64)]| Curve {
            name: name.into(),
            color: 1,
            drawn,
            points: points.into(),
        };
        let curves = vec![
            curve("<measured>", Drawn::Marks, &[(0.0, 100.0), (4096.0, 2500.0), (8192.0, 0.0)]),
            curve("fitted", Drawn::Dashed, &[(0.0, 110.0), (4096.0, 2400.0)]),
        ];
        let plot = Plot { title: "round trip".into(), axis: Axis::Bytes, curves, range: Some([100.0, 2e4]) };
        let svg = plot.svg().into_string();
        for text in ["round trip", "0 B", "4 KiB", "200 ns", "20 µs", "&lt;measured&gt;", "fitted", "polyline"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        // Two points and two marks of the legend; a time of 0 has no place.
        assert!(svg.matches("<polygon").count() == 4 && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = Plot { curves: vec![curve("none", Drawn::Line, &[(1.0, 0.0)])], ..plot };
        assert_eq!(empty.svg().into_string(), "");
    }

    #[test]
    fn times_and_sizes_have_three_digits_and_a_unit() {
        let times = [0.0, 0.125, 99.96, 1234.0, 20_000.0, 1.5e6, 3e9].map(time);
        assert_eq!(times, ["0 ns", "0.125 ns", "100 ns", "1.23 µs", "20 µs", "1.5 ms", "3 s"]);
        assert_eq!([8, 1536, 65536, 1 << 20].map(size), ["8 B", "1.5 KiB", "64 KiB", "1 MiB"]);
    }
}
