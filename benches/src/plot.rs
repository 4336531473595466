//! The plots of the report, each an SVG document: time against size, and bars where there is one size.

use std::collections::BTreeMap;

use farside_core::error::{Error, ErrorKind, Result};
use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::prelude::*;

use crate::record::Library;
use crate::table::number;

/// Width and height of a plot of lines.
const LINES_SIZE: (u32, u32) = (520, 340);
/// Its row of names above it.
const LEGEND_HEIGHT: u32 = 30;
const LEGEND_FONT: u32 = 13;
/// Width of a plot of bars, and the height of a bar and of the gap between groups.
const BARS_WIDTH: u32 = 520;
const BAR_HEIGHT: u32 = 17;
const GROUP_GAP: u32 = 14;
/// What an axis with its labels takes.
const AXIS_HEIGHT: u32 = 44;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const MESH: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

/// Colours that also the colour-blind tell apart (Okabe and Ito), dark enough for white paper.
pub(crate) fn colour(library: Library) -> RGBColor {
    match library {
        Library::Farside => RGBColor(0x00, 0x5a, 0xa8),
        Library::Limit => RGBColor(0x70, 0x70, 0x70),
        Library::Loop => RGBColor(0x22, 0x22, 0x22),
        Library::Mpich => RGBColor(0xd5, 0x5e, 0x00),
        Library::IntelMpi => RGBColor(0x00, 0x8f, 0x68),
        Library::OpenMpi => RGBColor(0xb8, 0x56, 0x93),
    }
}

/// Microseconds by bytes, or by blocks, of each library.
pub(crate) type Series = BTreeMap<Library, BTreeMap<u64, f64>>;

/// What time is drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    Bytes,
    Blocks,
}

/// A group of bars: what was measured, and the microseconds of each library.
pub(crate) type Bars = Vec<(String, BTreeMap<Library, f64>)>;

/// Microseconds against bytes or blocks, both logarithmic, a line per library.
pub(crate) fn lines(series: &Series, against: Against) -> Result<String> {
    let points = || series.values().flatten();
    let (Some(first), Some(last)) = (points().map(|(b, _)| *b).min(), points().map(|(b, _)| *b).max()) else {
        return Err(Error::new(ErrorKind::BadArgument, "plot").cause("no points"));
    };
    let (low, high) = points().fold((f64::MAX, 0.0_f64), |(low, high), (_, us)| (low.min(*us), high.max(*us)));
    let (low, high) = (low / 1.6, high * 1.6);
    let mut sizes: Vec<u64> = points().map(|(bytes, _)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let every = sizes.len().div_ceil(7);
    let x_ticks: Vec<f64> = sizes.iter().step_by(every).map(|bytes| *bytes as f64).collect();

    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, LINES_SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        // Above the plot, where it covers no point.
        legend(&root, series.keys().copied())?;
        let x = (first as f64 / 1.35..last as f64 * 1.35).log_scale().base(2.0).with_key_points(x_ticks);
        let y = (low..high).log_scale().with_key_points(decades(low, high));
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_top(LEGEND_HEIGHT)
            .margin_right(24)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(MESH)
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 12).into_font().color(&INK))
            .x_label_formatter(&|x| if against == Against::Bytes { size(*x as u64) } else { tick(*x) })
            .y_label_formatter(&|us| tick(*us))
            .x_desc(if against == Against::Bytes { "size" } else { "blocks" })
            .y_desc("time in µs")
            .axis_desc_style((FONT, 12).into_font().color(&INK))
            .draw()
            .map_err(failed)?;
        // The other way round, so that Farside's line lies on top.
        for (&library, values) in series.iter().rev() {
            let style = colour(library).stroke_width(width(library));
            let values = || values.iter().map(|(bytes, us)| (*bytes as f64, *us));
            if library == Library::Limit {
                chart.draw_series(DashedLineSeries::new(values(), 5, 4, style)).map_err(failed)?;
            } else {
                chart.draw_series(LineSeries::new(values(), style)).map_err(failed)?;
                chart.draw_series(values().map(|at| EmptyElement::at(at) + marker(library, (0, 0)))).map_err(failed)?;
            }
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// The libraries' lines and names in a row.
fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, libraries: impl Iterator<Item = Library>) -> Result<()> {
    let (mut x, y) = (10, 13);
    for library in libraries {
        let style = colour(library).stroke_width(width(library));
        let dash = if library == Library::Limit { 5 } else { 8 };
        for from in [0, 16] {
            let piece = [(x + from, y), (x + from + dash, y)];
            area.draw(&PathElement::new(piece, style)).map_err(failed)?;
        }
        area.draw(&marker(library, (x + 11, y))).map_err(failed)?;
        let font = (FONT, LEGEND_FONT).into_font().color(&INK);
        area.draw(&Text::new(library.title(), (x + 28, y - 6), font)).map_err(failed)?;
        // The width of text is the reader's font's business; this leaves room for a wide one.
        x += 28 + 6 * library.title().len() as i32 + 12;
    }
    Ok(())
}

fn width(library: Library) -> u32 {
    if library == Library::Farside { 3 } else { 2 }
}

/// The sign of a library round a point, told apart without colour: disc, triangle, square, diamond; a dash for the limit.
fn marker(library: Library, (x, y): (i32, i32)) -> Polygon<(i32, i32)> {
    let corners: &[(i32, i32)] = match library {
        Library::Farside => &[(-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2)],
        Library::Limit => &[(-3, -1), (2, -1), (2, 1), (-3, 1)],
        Library::Loop => &[(-1, -4), (1, -4), (1, 4), (-1, 4)],
        Library::Mpich => &[(0, -5), (5, 4), (-5, 4)],
        Library::IntelMpi => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        Library::OpenMpi => &[(0, -6), (5, 0), (0, 6), (-5, 0)],
    };
    let corners: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    Polygon::new(corners, colour(library).filled())
}

/// Horizontal bars with their values, in groups below their names, without grid lines, which would run through the
/// names. The axis starts at 0, or is logarithmic where the
/// values are too far apart for that.
pub(crate) fn bars(groups: &Bars) -> Result<String> {
    let values = || groups.iter().flat_map(|(_, of)| of.values().copied());
    let (low, high) = values().fold((f64::MAX, 0.0_f64), |(low, high), us| (low.min(us), high.max(us)));
    if high <= 0.0 {
        return Err(Error::new(ErrorKind::BadArgument, "plot").cause("no bars"));
    }
    let logarithmic = high / low > 50.0;
    let place = |us: f64| if logarithmic { (us / low).log10() + 0.5 } else { us };

    // A group without a name, such as the only one of a plot, needs no line for it.
    let lines = |name: &str, bars: usize| bars as u32 + u32::from(!name.is_empty());
    let inner: u32 = groups.iter().map(|(name, of)| lines(name, of.len()) * BAR_HEIGHT + GROUP_GAP).sum();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (BARS_WIDTH, inner + AXIS_HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(32)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..place(high) * 1.14, f64::from(inner)..0.0)
            .map_err(failed)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().disable_y_axis().axis_style(INK);
        mesh.label_style((FONT, 12).into_font().color(&INK)).axis_desc_style((FONT, 12).into_font().color(&INK));
        mesh.x_labels(if logarithmic { 0 } else { 6 }).x_label_formatter(&|us| tick(*us));
        mesh.x_desc(if logarithmic { "time in µs, logarithmic" } else { "time in µs" }).draw().map_err(failed)?;

        let area = chart.plotting_area();
        let text = |at: (f64, f64), offset: (i32, i32), what: String, size: u32| {
            let label = Text::new(what, offset, (FONT, size).into_font().color(&INK));
            area.draw(&(EmptyElement::at(at) + label)).map_err(failed)
        };
        let height = f64::from(BAR_HEIGHT);
        let mut top = f64::from(GROUP_GAP) / 2.0;
        for (name, of) in groups {
            if !name.is_empty() {
                text((0.0, top + height / 2.0), (-70, -6), name.clone(), 13)?;
                top += height;
            }
            for (&library, &us) in of {
                let bar = [(0.0, top + 2.0), (place(us), top + height - 1.0)];
                let shade = if library == Library::Limit { 0.55 } else { 1.0 };
                area.draw(&Rectangle::new(bar, colour(library).mix(shade).filled())).map_err(failed)?;
                text((place(us), top + height / 2.0), (5, -5), number(Some(us)), 12)?;
                text((0.0, top + height / 2.0), (-58, -5), short(library).to_owned(), 12)?;
                top += height;
            }
            top += f64::from(GROUP_GAP);
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

const fn short(library: Library) -> &'static str {
    match library {
        Library::Limit => "limit",
        Library::Loop => "by hand",
        other => other.title(),
    }
}

fn failed<E: std::error::Error + Send + std::marker::Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    Error::new(ErrorKind::System, "plot").cause(error.to_string())
}

/// Where the marks of a logarithmic axis are: 1, 2 and 5 of each decade, or only 1 when there are many.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if high / low < 400.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let marks = (first..=last).flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
    marks.filter(|mark| (low..=high).contains(mark)).collect()
}

/// A mark of a time axis, without needless zeros.
fn tick(us: f64) -> String {
    let text = format!("{us:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
    fn lines_have_every_library_and_size() {
        let of = |us: f64| BTreeMap::from([(8, us), (65536, 20.0 * us)]);
        let series = Series::from([(Library::Farside, of(0.1)), (Library::Limit, of(0.05)), (Library::Mpich, of(0.4))]);
        let svg = lines(&series, Against::Bytes).unwrap();
        for text in ["Farside", "limit of the machine", "MPICH", "8 B", "64 KiB", "time in µs"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for library in series.keys() {
            let RGBColor(r, g, b) = colour(*library);
            assert!(svg.contains(&format!("#{r:02X}{g:02X}{b:02X}")), "{library} is not drawn");
        }
        let svg = lines(&series, Against::Blocks).unwrap();
        assert!(svg.contains("blocks") && !svg.contains("KiB"));
        assert_eq!(lines(&Series::new(), Against::Bytes).unwrap_err().kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn bars_have_every_group_and_value() {
        let groups = vec![
            ("fetch_op".to_owned(), BTreeMap::from([(Library::Farside, 0.25), (Library::OpenMpi, 0.5)])),
            ("cas".to_owned(), BTreeMap::from([(Library::OpenMpi, 8000.0)])),
        ];
        let svg = bars(&groups).unwrap();
        for text in ["fetch_op", "cas", "0.250", "0.500", "8000", "Farside", "Open MPI", "logarithmic"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert_eq!(bars(&Vec::new()).unwrap_err().kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn decades_lie_within_the_range() {
        assert_eq!(decades(0.15, 6.0), [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(decades(0.5, 5000.0), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn size_and_tick_are_short() {
        assert_eq!([size(8), size(1536), size(65536), size(1 << 20)], ["8 B", "1.5 KiB", "64 KiB", "1 MiB"]);
        assert_eq!([tick(0.05), tick(10.0), tick(1000.0)], ["0.05", "10", "1000"]);
    }
}
