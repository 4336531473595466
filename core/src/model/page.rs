//! Models in readable form: as text, and as a page with the measured points and the fitted curves.

use std::fmt;

use maud::{Markup, html};

use super::fit::{Fitted, FittedPoint, Quantity};
use super::{Fits, Models, Primitive, TransferTimes, Transfers};
use crate::plot::{Axis, Curve, Drawn, Plot, page, size, time};

/// A fitted model.
struct Row {
    primitive: Primitive,
    model: String,
    residual: f64,
    parameters: String,
}

impl Models {
    fn fits(&self) -> impl Iterator<Item = (Primitive, &Fits)> {
        Primitive::ALL.into_iter().filter_map(|primitive| Some((primitive, self.of(primitive)?)))
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (primitive, fits) in self.fits() {
            let mut add =
                |model: String, residual, parameters| rows.push(Row { primitive, model, residual, parameters });
            let m = &fits.log_gp.model;
            let threshold = m.threshold.map_or(String::new(), |bytes| format!(", S {}", size(bytes)));
            let (latency, gap) = (time(m.latency), time(m.gap));
            let (send, receive) = (time(m.send_overhead), time(m.receive_overhead));
            let bytes = [m.gap_per_byte, m.overhead_per_byte, m.reduction].map(|t| format!("{t:.3} ns"));
            let [gap_byte, overhead_byte, reduction] = bytes;
            let text = format!(
                "L {latency}, o_s {send}, o_r {receive}, g {gap}; a byte: G {gap_byte}, O {overhead_byte}, reduced {reduction}{threshold}"
            );
            add("LogGP".into(), fits.log_gp.residual, text);
            let m = &fits.p_log_p.model;
            let (first, last) = m.gap.0.first().zip(m.gap.0.last()).map_or((0, 0), |(a, b)| (a.0, b.0));
            let of = |bytes: u64| {
                let [gap, send, receive] = [&m.gap, &m.send_overhead, &m.receive_overhead].map(|t| time(t.at(bytes)));
                format!("{}: g {gap}, os {send}, or {receive}", size(bytes))
            };
            let text = format!("L {}; {}; {}", time(m.latency), of(first), of(last));
            add("pLogP".into(), fits.p_log_p.residual, text);
            for (posting, Fitted { model, residual, .. }) in &fits.lo_p {
                let of = |p: f64| {
                    let overheads = [&model.send_overhead, &model.receive_overhead].map(|o| time(o.at(p)));
                    format!("p = {p}: RTT {}, o_s {}, o_r {}", time(model.round_trip.at(p)), overheads[0], overheads[1])
                };
                add(format!("LoP, {}", posting.name()), *residual, format!("{}; {}", of(1.0), of(16.0)));
            }
        }
        rows
    }

    /// The cut-offs of transfers with their values in bytes, in the form of `FARSIDE_TRANSFER`; `None` if they were not
    /// measured.
    #[must_use]
    pub fn cut_offs(&self) -> Option<String> {
        let Transfers { cut_offs: c, read_inter } = self.transfers()?;
        let all = [
            ("gather-block", c.gather_block),
            ("multi-w-block", c.multi_w_block),
            ("sgrs-block", c.sgrs_block),
            ("sgrs-message", c.sgrs_bytes),
            ("read-inter", *read_inter),
        ];
        Some(all.map(|(name, bytes)| format!("{name}:{bytes}")).join(","))
    }

    /// The times of each method by block length; the curves cross at the cut-offs.
    fn crossings(&self) -> Plot {
        type Way = (&'static str, fn(&TransferTimes) -> f64);
        let ways: [Way; 4] = [
            ("packed", |t| t.packed),
            ("a write each", |t| t.writes),
            ("gathered", |t| t.gathered),
            ("lists on both sides, computed", |t| t.lists),
        ];
        let curves = ways.iter().enumerate().map(|(color, (name, of))| Curve {
            name: (*name).into(),
            color,
            drawn: Drawn::Line,
            points: self.transfer_times.iter().map(|t| (t.block as f64, of(t))).collect(),
        });
        Plot {
            title: "16 blocks, by the bytes of a block".into(),
            axis: Axis::Bytes,
            curves: curves.collect(),
            range: None,
        }
    }

    /// A page with the parameters, and, at the rank that has measured, a plot of each quantity with the measured times
    /// and the fitted curves. `about` are lines about the measurement.
    #[must_use]
    pub fn page(&self, about: &[String]) -> String {
        let body = html! {
            @for line in about { p { (line) } }
            p { "A point is the lower quartile of the measured times. The residual is the root mean square of the relative ones." }
            table {
                tr { th { "Primitive" } th { "Model" } th { "Residual" } th { "Parameters" } }
                @for row in self.rows() {
                    tr {
                        td { (row.primitive.name()) }
                        td { (row.model) }
                        td class="n" { (percent(row.residual)) }
                        td { (row.parameters) }
                    }
                }
            }
            @if let Some(cut_offs) = self.cut_offs() { p { "Cut-offs of transfers: " (cut_offs) } }
            @if !self.transfer_times.is_empty() { (self.crossings().svg()) }
            @for (primitive, fits) in self.fits() { (plots(primitive, fits)) }
        };
        page(&format!("Models of {}", self.device), &body)
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// The plots of a primitive.
fn plots(primitive: Primitive, fits: &Fits) -> Markup {
    const QUANTITIES: [(Quantity, &str); 4] = [
        (Quantity::RoundTrip, "round trip"),
        (Quantity::PerMessage, "message of a stream"),
        (Quantity::SendOverhead, "send overhead"),
        (Quantity::ReceiveOverhead, "receive overhead"),
    ];
    let curve = |name: &str, color, drawn, points: &[FittedPoint], of: Quantity, y: fn(&FittedPoint) -> f64| {
        let points = points.iter().filter(|point| point.quantity == of).map(|point| (point.x, y(point))).collect();
        Curve { name: name.into(), color, drawn, points }
    };
    let (all, eager) = (&fits.p_log_p.points[..], &fits.log_gp.points[..]);
    let by_size = QUANTITIES.map(|(quantity, name)| Plot {
        title: format!("{}: {name}", primitive.name()),
        axis: Axis::Bytes,
        curves: vec![
            curve("measured", 0, Drawn::Marks, all, quantity, |point| point.measured),
            curve("LogGP", 1, Drawn::Dashed, eager, quantity, |point| point.fitted),
            curve("pLogP", 2, Drawn::Dashed, all, quantity, |point| point.fitted),
        ],
        range: None,
    });
    let by_fan = QUANTITIES.into_iter().filter(|(quantity, _)| *quantity != Quantity::PerMessage);
    let by_fan = by_fan.map(|(quantity, name)| {
        let curves = fits.lo_p.iter().enumerate().flat_map(|(n, (posting, fitted))| {
            let named = |what: &str| format!("{}, {what}", posting.name());
            [
                curve(&named("measured"), n, Drawn::Marks, &fitted.points, quantity, |point| point.measured),
                curve(&named("LoP"), n, Drawn::Dashed, &fitted.points, quantity, |point| point.fitted),
            ]
        });
        let title = format!("{}: {name} of each of p", primitive.name());
        Plot { title, axis: Axis::Number("messages p"), curves: curves.collect(), range: None }
    });
    let all: Vec<Markup> = by_size.into_iter().chain(by_fan).map(|plot| plot.svg()).collect();
    html! {
        h2 { (primitive.name()) }
        div class="sides" { @for svg in all { (svg) } }
    }
}

impl fmt::Display for Models {
    /// A line for each model: its residual and its parameters; then the times and cut-offs of transfers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.rows() {
            let residual = percent(row.residual);
            writeln!(f, "{:<8}  {:<12}  residual {residual:>7}  {}", row.primitive.name(), row.model, row.parameters)?;
        }
        for t in &self.transfer_times {
            let [packed, writes, gathered, lists] = [t.packed, t.writes, t.gathered, t.lists].map(time);
            writeln!(
                f,
                "16 blocks of {:<8}  packed {packed}, a write each {writes}, gathered {gathered}, lists on both sides {lists}",
                size(t.block as u64)
            )?;
        }
        self.cut_offs().map_or(Ok(()), |cut_offs| writeln!(f, "cut-offs  {cut_offs}"))
    }
}
