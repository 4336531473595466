//! Fit of pLogP.

use super::series::Series;
use super::{Fitted, Quantity, Samples, bad};
use crate::error::Result;
use crate::model::{PLogP, Table};

/// Fits pLogP after Kielmann, Bal, Verstoep 2000, "Fast measurement of LogP parameters for message passing platforms":
/// g(m), os(m) and or(m) are the times of a saturated stream and of the overheads as measured, and L is
/// (RTT(m) - 2 g(m)) / 2 at the smallest m with a round trip, which should be 0.
///
/// If os(m) or or(m) is longer, g(m) is raised to it (up to rounding), so its table has the sizes of all three. L is at
/// least 0. Tables pass through their points, so the residual is that of the round trips alone, whose model is 2 (L +
/// g(m)). The time to reduce a byte is 0.
///
/// # Errors
/// A bad argument: fewer than two sizes of a quantity, a size that is not a whole number below 2^53, or a time that is
/// not finite or negative.
pub fn p_log_p(samples: &Samples) -> Result<Fitted<PLogP>> {
    let series = |quantity, points| Series::new(quantity, points, 2).and_then(whole);
    let send = series(Quantity::SendOverhead, &samples.send_overhead)?;
    let receive = Series::new_or_none(Quantity::ReceiveOverhead, &samples.receive_overhead, 2).and_then(whole)?;
    let stream = series(Quantity::PerMessage, &samples.per_message)?;
    let round_trip = series(Quantity::RoundTrip, &samples.round_trip)?;

    let (send_overhead, receive_overhead, measured_gap) = (table(&send), table(&receive), table(&stream));
    let tables = [&measured_gap, &send_overhead, &receive_overhead];
    let mut sizes: Vec<_> = tables.iter().flat_map(|t| t.0.iter().map(|(bytes, _)| *bytes)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let gap = Table(sizes.into_iter().map(|m| (m, tables.iter().map(|t| t.at(m)).fold(0.0, f64::max))).collect());
    let latency = (round_trip.times[0] / 2.0 - gap.at(round_trip.xs[0] as u64)).max(0.0);

    let at = |table: &Table, bytes: f64| table.at(bytes as u64);
    let points = [(&round_trip, &gap), (&stream, &gap), (&send, &send_overhead), (&receive, &receive_overhead)];
    let points = points.map(|(series, table)| {
        let of = |bytes| {
            if std::ptr::eq(series, &round_trip) { 2.0 * (latency + at(table, bytes)) } else { at(table, bytes) }
        };
        series.fitted_points(&vec![1.0; series.xs.len()], of)
    });
    let model = PLogP { latency, gap, send_overhead, receive_overhead, reduction: 0.0 };
    Ok(Fitted::new(model, points.concat(), &[Quantity::RoundTrip]))
}

fn whole(series: Series) -> Result<Series> {
    match series.xs.iter().find(|x| x.fract() != 0.0 || **x >= (1_u64 << f64::MANTISSA_DIGITS) as f64) {
        Some(x) => Err(bad(format!("{x} is not a valid message length"), "use integral numbers of bytes")),
        None => Ok(series),
    }
}

fn table(series: &Series) -> Table {
    Table(series.xs.iter().zip(&series.times).map(|(x, time)| (*x as u64, *time)).collect())
}
