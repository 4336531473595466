//! The plots of the report: time against size, as an SVG document.

use std::collections::BTreeMap;
use std::ops::Range;

use farside_core::error::{Error, ErrorKind, Result};
use plotters::coord::combinators::BindKeyPoints;
use plotters::prelude::*;

use crate::record::Library;
use crate::table::number;

const SIZE: (u32, u32) = (520, 320);
const FONT: (&str, u32) = ("sans-serif", 12);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const MESH: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

/// The style of a library: a color that is also distinct to color-blind readers (Okabe and Ito), dark enough for white
/// paper; and a marker, as corners round a point, that is distinct without color.
pub(crate) fn style(library: Library) -> (RGBColor, &'static str, &'static [(i32, i32)]) {
    let octagon = &[(-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2)];
    match library {
        Library::Farside => (RGBColor(0x00, 0x5a, 0xa8), "●", octagon),
        Library::Limit => (RGBColor(0x70, 0x70, 0x70), "╌", &[(-3, -1), (2, -1), (2, 1), (-3, 1)]),
        Library::Loop => (RGBColor(0x22, 0x22, 0x22), "❙", &[(-1, -4), (1, -4), (1, 4), (-1, 4)]),
        Library::Mpich => (RGBColor(0xd5, 0x5e, 0x00), "▲", &[(0, -5), (5, 4), (-5, 4)]),
        Library::IntelMpi => (RGBColor(0x00, 0x8f, 0x68), "■", &[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
        Library::OpenMpi => (RGBColor(0xb8, 0x56, 0x93), "◆", &[(0, -6), (5, 0), (0, 6), (-5, 0)]),
    }
}

/// Microseconds by bytes, or by blocks, of each library.
pub(crate) type Series = BTreeMap<Library, BTreeMap<u64, f64>>;

/// The quantity on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    Bytes,
    Blocks,
}

/// The range of some times, with a margin: the time axis that neighbouring plots share.
pub(crate) fn range(times_us: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = times_us.fold((f64::MAX, 0.0_f64), |(low, high), us| (low.min(us), high.max(us)));
    low / 1.6..high * 1.6
}

/// Microseconds within `range` against bytes or blocks, both logarithmic, with a line for each library.
pub(crate) fn lines(series: &Series, against: Against, range: Range<f64>) -> Result<String> {
    let mut sizes: Vec<u64> = series.values().flatten().map(|(bytes, _)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return Err(Error::new(ErrorKind::BadArgument, "plot").cause("no points"));
    };
    let x_ticks: Vec<f64> = sizes.iter().step_by(sizes.len().div_ceil(7)).map(|bytes| *bytes as f64).collect();
    let x = (*first as f64 / 1.35..*last as f64 * 1.35).log_scale().base(2.0).with_key_points(x_ticks);
    let y_ticks = decades(&range);
    let mut svg = String::new();
    draw(&mut svg, series, against, x, range.log_scale().with_key_points(y_ticks))
        .map_err(|error| Error::new(ErrorKind::System, "plot").cause(error.to_string()))?;
    Ok(svg)
}

type Axis = plotters::coord::combinators::WithKeyPoints<plotters::coord::combinators::LogCoord<f64>>;

fn draw(
    svg: &mut String,
    series: &Series,
    against: Against,
    x: Axis,
    y: Axis,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root);
    chart.margin(8).margin_right(24).x_label_area_size(38).y_label_area_size(58);
    let mut chart = chart.build_cartesian_2d(x, y)?;
    let (bytes, font) = (against == Against::Bytes, FONT.into_font().color(&INK));
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(MESH)
        .light_line_style(TRANSPARENT)
        .label_style(font.clone())
        .x_label_formatter(&|x| if bytes { size(*x as u64) } else { tick(*x) })
        .y_label_formatter(&|us| tick(*us))
        .x_desc(if bytes { "size" } else { "blocks" })
        .y_desc("time in µs")
        .axis_desc_style(font)
        .draw()?;
    // In reverse order, so that Farside's line is on top.
    for (&library, values) in series.iter().rev() {
        let (colour, _, corners) = style(library);
        let line = colour.stroke_width(if library == Library::Farside { 3 } else { 2 });
        let values = || values.iter().map(|(bytes, us)| (*bytes as f64, *us));
        if library == Library::Limit {
            chart.draw_series(DashedLineSeries::new(values(), 5, 4, line))?;
        } else {
            chart.draw_series(LineSeries::new(values(), line))?;
            let sign = |at| EmptyElement::at(at) + Polygon::new(corners, colour.filled());
            chart.draw_series(values().map(sign))?;
        }
    }
    root.present()?;
    Ok(())
}

/// The marks of a logarithmic axis: 1, 2 and 5 of each decade, or only 1 when there are many.
fn decades(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let steps: &[f64] = if range.end / range.start < 400.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let marks = (first..=last).flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
    marks.filter(|mark| range.contains(mark)).collect()
}

/// The label of a mark of an axis, without needless zeros.
fn tick(value: f64) -> String {
    let text = number(Some(value));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A number of bytes in the binary units.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", tick(bytes as f64 / 1024.0)),
        _ => format!("{} MiB", tick(bytes as f64 / 1_048_576.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_every_library_and_size_and_the_given_range() {
        let of = |us: f64| BTreeMap::from([(8, us), (65536, 20.0 * us)]);
        let series = Series::from([(Library::Farside, of(0.1)), (Library::Limit, of(0.05)), (Library::Mpich, of(0.4))]);
        let svg = lines(&series, Against::Bytes, 0.005..200.0).unwrap();
        for text in ["8 B", "64 KiB", "time in µs", "0.01", "100"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for library in series.keys() {
            let RGBColor(r, g, b) = style(*library).0;
            assert!(svg.contains(&format!("#{r:02X}{g:02X}{b:02X}")), "{library} is not drawn");
        }
        let svg = lines(&series, Against::Blocks, 0.01..20.0).unwrap();
        assert!(svg.contains("blocks") && !svg.contains("KiB"));
        assert_eq!(lines(&Series::new(), Against::Bytes, 0.1..1.0).unwrap_err().kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn decades_lie_within_the_range() {
        assert_eq!(decades(&(0.15..6.0)), [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(decades(&(0.5..5000.0)), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn size_and_tick_are_short() {
        assert_eq!([size(8), size(1536), size(65536), size(1 << 20)], ["8 B", "1.5 KiB", "64 KiB", "1 MiB"]);
        assert_eq!([tick(0.05), tick(10.0), tick(1000.0)], ["0.05", "10", "1000"]);
    }
}
