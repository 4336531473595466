//! Pages, and plots as SVG: measured points and curves against a size or a number, with a logarithmic axis of times;
//! and the tick marks of axes.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all pages.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; border-bottom: 1px solid #ccc; }
.sides { display: flex; flex-wrap: wrap; gap: 1.5rem 3rem; align-items: flex-start; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: left; border-bottom: 1px solid #eee; }
th { background: #f4f4f4; font-weight: 600; } .n { text-align: right; }
body:has(.timeline) { max-width: 1420px; } .timeline { touch-action: pan-y; user-select: none; }
.timeline .arrow { visibility: hidden; } #arrows:checked ~ svg .arrow, .timeline .arrow.on { visibility: visible; }
.timeline rect.on { stroke: #000; }
#tip { position: fixed; padding: .2rem .5rem; background: #222; color: #fff; font-size: 12px; white-space: pre; pointer-events: none; }
";

/// Size of the plot including its margins, without its legend.
const SIZE: (f64, f64) = (460.0, 300.0);
/// Margins: left, top, right, bottom.
const MARGINS: [f64; 4] = [62.0, 26.0, 12.0, 40.0];
/// The first colors, which are also distinct to color-blind readers (Okabe and Ito), dark enough for white paper.
const COLORS: [&str; 6] = ["#005aa8", "#d55e00", "#008f68", "#b85693", "#222222", "#707070"];
/// Corners of the point markers, one shape for each color in turn, so that curves are distinct without color.
const SIGNS: [&[(f64, f64)]; 5] = [
    &[(-1.5, -3.0), (1.5, -3.0), (3.0, -1.5), (3.0, 1.5), (1.5, 3.0), (-1.5, 3.0), (-3.0, 1.5), (-3.0, -1.5)],
    &[(0.0, -4.0), (4.0, 3.0), (-4.0, 3.0)],
    &[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)],
    &[(0.0, -4.5), (4.0, 0.0), (0.0, 4.5), (-4.0, 0.0)],
    &[(-1.0, -4.0), (1.0, -4.0), (1.0, 4.0), (-1.0, 4.0)],
];
/// Width of the lines in the legend, and height of its rows.
const LEGEND: (f64, f64) = (32.0, 14.0);
/// Size of the font of labels.
const FONT: f64 = 11.0;
/// Horizontal and vertical space between the labels of tick marks.
const GAP: (f64, f64) = (10.0, 11.0);

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
    /// Bytes, logarithmic, with a position for 0.
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

    fn mark(self, x: f64) -> String {
        if self == Self::Bytes { size(x as u64) } else { format!("{x}") }
    }

    /// Rows of tick marks, from fine to coarse: integers; or powers of two, with 0 in the position of 1.
    fn rows(self, low: f64, high: f64) -> Box<dyn Iterator<Item = Vec<f64>>> {
        match self {
            Self::Number(_) => Box::new(whole(low, high)),
            Self::Bytes | Self::Powers(_) if high < 4.0 * low => Box::new([vec![low, high], vec![low]].into_iter()),
            Self::Bytes | Self::Powers(_) => Box::new((1..=64).map(move |step| {
                let powers = (0..64).step_by(step).map(|power| 2_f64.powi(power));
                let powers = powers.map(|bytes| if bytes == 1.0 && low == 0.0 { 0.0 } else { bytes });
                powers.filter(|bytes| (low..=high).contains(bytes)).collect()
            })),
        }
    }
}

/// The style in which a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// A marker for each point.
    Marks,
    /// Markers, with lines between them.
    Line,
    /// A dashed line.
    Dashed,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The curve's name in the legend.
    pub name: String,
    /// The number of the curve's color. Curves of one color belong together.
    pub color: usize,
    /// The style in which the curve is drawn.
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
    /// Range in nanoseconds that the axis of times includes in any case, so that plots can be compared.
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
        let (first, last) = span(&mut all().map(|(x, _)| *x));
        let xs = marks(self.axis.rows(first, last), across, |x| text_width(&self.axis.mark(x), FONT) + GAP.0);
        let ys = marks(logarithmic(10_f64.powf(low), 10_f64.powf(high)), down, |_| FONT + GAP.1);
        let points = |curve: &Curve| -> Vec<(f64, f64)> {
            curve.points.iter().filter(is_drawn).map(|(x, y)| (across(*x), down(*y))).collect()
        };
        let names = self.curves.iter().map(|curve| text_width(&curve.name, FONT));
        let wide = SIZE.0 + LEGEND.0 + names.fold(text_width(&self.title, 13.0) - width, f64::max).ceil();
        let total = SIZE.1.max(top + LEGEND.1 * (self.curves.len() + 1) as f64);
        let view = format!("0 0 {wide} {total}");
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(wide) height=(total) font-family="sans-serif" font-size=(FONT) fill="#333" {
                text x=(margin_left) y="16" font-size="13" font-weight="600" { (self.title) }
                @for y in ys {
                    line x1=(margin_left) x2=(margin_left + width) y1=(down(y)) y2=(down(y)) stroke="#e2e2e2" {}
                    text x=(margin_left - 5.0) y=(down(y) + 4.0) text-anchor="end" { (time(y)) }
                }
                @for x in xs {
                    line x1=(across(x)) x2=(across(x)) y1=(top + height) y2=(top + height + 4.0) stroke="#333" {}
                    text x=(across(x)) y=(top + height + 16.0) text-anchor="middle" { (self.axis.mark(x)) }
                }
                text x=(margin_left + width / 2.0) y=(SIZE.1 - 6.0) text-anchor="middle" { (self.axis.label()) }
                rect x=(margin_left) y=(top) width=(width) height=(height) fill="none" stroke="#333" {}
                @for (n, curve) in self.curves.iter().enumerate() {
                    (drawn(curve, &points(curve)))
                    @let y = top + LEGEND.1 * (n as f64 + 0.5);
                    (drawn(curve, &[(SIZE.0 + 6.0, y), (SIZE.0 + 26.0, y)]))
                    text x=(SIZE.0 + LEGEND.0) y=(y + 4.0) { (curve.name) }
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

/// An upper bound of the width of a text in a sans-serif font of this size.
#[must_use]
pub fn text_width(text: &str, font: f64) -> f64 {
    0.65 * font * text.chars().count() as f64
}

/// The tick marks of an axis: those of the first of some rows, from fine to coarse, whose labels do not overlap.
/// `extent` is the part of the axis that a label takes, which is centered at its mark.
pub fn marks(
    rows: impl IntoIterator<Item = Vec<f64>>,
    place: impl Fn(f64) -> f64,
    extent: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let fits = |pair: &[f64]| {
        let [a, b] = [pair[0], pair[1]];
        (place(b) - place(a)).abs() >= f64::midpoint(extent(a), extent(b))
    };
    rows.into_iter().find(|row| row.windows(2).all(fits)).unwrap_or_default()
}

/// Rows of marks of a linear axis, from fine to coarse: multiples of 1, 2 and 5 times a power of ten. The last one has at most
/// one mark.
pub fn linear(low: f64, high: f64) -> impl Iterator<Item = Vec<f64>> {
    let span = if high > low { high - low } else { high.abs().max(1.0) };
    let least = (span / 100.0).log10().floor() as i32;
    let steps = (least..=least + 3).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| (factor, power)));
    steps.map(move |(factor, power)| {
        // A product with a negative power of ten would not be the nearest number.
        let scale = 10_f64.powi(power.abs());
        let of = |n: f64| if power < 0 { n * factor / scale } else { n * factor * scale };
        let first = (low / of(1.0)).ceil();
        (0..).map(|n| of(first + f64::from(n))).take_while(|mark| *mark <= high).collect()
    })
}

/// The rows of [`linear`] that are integers.
pub fn whole(low: f64, high: f64) -> impl Iterator<Item = Vec<f64>> {
    linear(low, high).filter(|row| row.iter().all(|mark| mark.fract() == 0.0))
}

/// Rows of tick marks of a logarithmic axis, from fine to coarse: 1, 2 and 5 of each decade, or 1 of some decades. A
/// range of less than a decade has the marks of a linear axis.
fn logarithmic(low: f64, high: f64) -> impl Iterator<Item = Vec<f64>> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let rows = (0..10).map(move |row| {
        let steps: &[f64] = if row == 0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = decades.clone().filter(|decade| decade % row.max(1) == 0);
        let marks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        marks.filter(|mark| (low..=high).contains(mark)).collect()
    });
    let is_narrow = high < 10.0 * low;
    is_narrow.then(|| linear(low, high)).into_iter().flatten().chain(rows)
}

/// Formats nanoseconds in a suitable unit.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        t if t < 1e3 => (ns, "ns"),
        t if t < 1e6 => (ns / 1e3, "µs"),
        t if t < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    // The text has three significant digits.
    let digits = if value.abs() < 1e-9 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Formats a number of bytes in binary units.
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
        // Two points and two markers of the legend are drawn; a time of 0 is not.
        assert!(svg.matches("<polygon").count() == 4 && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = Plot { curves: vec![curve("none", Drawn::Line, &[(1.0, 0.0)])], ..plot };
        assert_eq!(empty.svg().into_string(), "");
    }

    /// Labels of marks do not overlap, whatever the range; and an axis has at least two labels if there is room.
    #[test]
    fn labels_do_not_overlap() {
        let highs = [1.5, 7.0, 64.0, 1000.0, 12_345.0, 1e6, 3e9];
        let spans = [0.0, 1.0, 8.0, 900.0].into_iter().flat_map(|low| highs.map(|high| (low, low + high)));
        for (low, high) in spans {
            for axis in [Axis::Bytes, Axis::Powers("ranks"), Axis::Number("n")] {
                let (left, right) = (axis.place(low), axis.place(high));
                let across = |x| 386.0 * (axis.place(x) - left) / (right - left);
                let extent = |x| text_width(&axis.mark(x), FONT);
                let row = marks(axis.rows(low, high), across, |x| extent(x) + GAP.0);
                assert!(row.len() > 1 || high - low < 2.0, "{axis:?} from {low} to {high}: {row:?}");
                for pair in row.windows(2) {
                    let ends = (across(pair[0]) + extent(pair[0]) / 2.0, across(pair[1]) - extent(pair[1]) / 2.0);
                    assert!(ends.0 < ends.1 && low <= pair[0] && pair[1] <= high, "{axis:?}: {row:?}");
                }
            }
            let low = low.max(0.5);
            let down = |y: f64| 234.0 * (y / low).log10() / (high / low).log10();
            let row = marks(logarithmic(low, high), down, |_| FONT + GAP.1);
            assert!(
                row.len() > 1 && row.windows(2).all(|pair| down(pair[1]) - down(pair[0]) >= FONT + GAP.1),
                "{row:?}"
            );
        }
        assert_eq!(
            marks(Axis::Bytes.rows(0.0, 1e6), |x| 20.0 * Axis::Bytes.place(x), |_| 70.0)[..3],
            [0.0, 16.0, 256.0]
        );
        assert_eq!(marks(linear(0.0, 0.9), |x| x, |_| 0.3), [0.0, 0.5]);
    }

    #[test]
    fn times_and_sizes_have_three_digits_and_a_unit() {
        let times = [0.0, 0.125, 99.96, 1234.0, 20_000.0, 1.5e6, 3e9].map(time);
        assert_eq!(times, ["0 ns", "0.125 ns", "100 ns", "1.23 µs", "20 µs", "1.5 ms", "3 s"]);
        assert_eq!([8, 1536, 65536, 1 << 20].map(size), ["8 B", "1.5 KiB", "64 KiB", "1 MiB"]);
    }
}
