//! Fit of LoP.

use super::curve::{self, Start, Value, misfit};
use super::robust::Linear;
use super::series::Series;
use super::{FanSamples, Fitted, FittedPoint, Point, Quantity, bad, unfit};
use crate::error::Result;
use crate::model::{LoP, Overhead, RoundTrip};

/// Denominators are e^u - OFFSET + p with u unbounded, so they are positive for p of at least 1, and 1 / p is among the
/// curves.
const OFFSET: f64 = 0.5;

/// Maximum exponent of the saturation term.
const STEEPEST: f64 = 60.0;

/// Fits LoP. Both overheads are λ1 + λ2 / (λ3 + p), and round trips λ1 / (λ2 + p) + λ3 + λ4 (1 - e^(λ5 (p - λ6))), with
/// λ1 of overheads at least 0, and denominators of at least 1/2 from p = 1.
///
/// Parameters of round trips have no meaning of their own; only the times that they yield within the measured range do.
/// λ6 changes only λ3 and λ4 (λ4 e^(λ5 (p - λ6)) = λ4 e^(-λ5 λ6) e^(λ5 p)), so it is fixed to the smallest measured p;
/// and if λ5 or a numerator is small, or a denominator large, several terms have nearly the same shape.
///
/// # Errors
/// A bad argument: fewer than 3 values of p for an overhead or 5 for round trips, p of less than 1, or a time that is
/// not finite or negative.
pub fn lo_p(samples: &FanSamples) -> Result<Fitted<LoP>> {
    let (send_overhead, send) = overhead(Quantity::SendOverhead, &samples.send_overhead)?;
    let (receive_overhead, receive) = match &samples.receive_overhead[..] {
        [] => (Overhead::default(), Vec::new()),
        points => overhead(Quantity::ReceiveOverhead, points)?,
    };
    let (round_trip, round_trips) = round_trip(&samples.round_trip)?;
    let counted = [Quantity::RoundTrip, Quantity::SendOverhead, Quantity::ReceiveOverhead];
    let model = LoP { send_overhead, receive_overhead, round_trip };
    Ok(Fitted::new(model, [round_trips, send, receive].concat(), &counted))
}

fn series(quantity: Quantity, points: &[Point], least: usize) -> Result<Series> {
    let series = Series::new(quantity, points, least)?;
    match series.xs.first() {
        Some(p) if *p < 1.0 => {
            Err(bad(format!("{} is not defined for {p} messages", quantity.text()), "measure at least 1 message"))
        }
        _ => Ok(series),
    }
}

/// Logarithms of λ + OFFSET for starts, where λ is a term of a denominator.
fn denominators() -> impl Iterator<Item = f64> {
    (-2..=8).map(f64::from)
}

/// 1 / (λ + p) and its derivative with respect to u.
fn startup(u: f64, p: f64) -> (f64, f64) {
    let e = u.min(STEEPEST).exp();
    let inverse = 1.0 / (e - OFFSET + p);
    (inverse, -e * inverse * inverse)
}

/// (e^(k z) - 1) / k, which is z for k = 0, and its derivative with respect to k.
fn saturation(k: f64, z: f64) -> (f64, f64) {
    let exponent = (k * z).min(STEEPEST);
    if exponent.abs() < 1e-5 {
        return (z + k * z * z / 2.0, z * z / 2.0 + k * z * z * z / 3.0);
    }
    let value = exponent.exp_m1() / k;
    (value, (z * exponent.exp() - value) / k)
}

/// λ1 is the square of the first parameter.
fn overhead_curve([root, b, u]: &[f64; 3], p: f64) -> Value<3> {
    let (inverse, slope) = startup(*u, p);
    (root * root + b * inverse, [2.0 * root, inverse, b * slope])
}

fn overhead(quantity: Quantity, points: &[Point]) -> Result<(Overhead, Vec<FittedPoint>)> {
    let series = series(quantity, points, 3)?;
    // The other parameters are a linear problem once the denominator is fixed.
    let starts = denominators().flat_map(|u| {
        let mut system = Linear::new([0.0, f64::NEG_INFINITY]);
        series.each(|p, time, scale| system.add([1.0, startup(u, p).0], time, scale));
        // The derivative with respect to a root of 0 is 0, so the search would never leave it.
        let root = |a: f64| a.max(1e-6 * series.times[0]).sqrt();
        system.both().into_iter().flatten().map(move |([a, b], weights)| ([root(a), b, u], weights))
    });
    let ([root, b, u], weights) = curve::fit(overhead_curve, &series, starts).ok_or_else(|| unfit(quantity))?;
    let overhead = Overhead([root * root, b, u.min(STEEPEST).exp() - OFFSET]);
    let points = series.fitted_points(&weights, |p| overhead.at(p));
    Ok((overhead, points))
}

/// a / (λ2 + p) + c + d (e^(k (p - first)) - 1) / k
fn round_trip_curve([a, u, c, d, k]: &[f64; 5], p: f64, first: f64) -> Value<5> {
    let (inverse, slope) = startup(*u, p);
    let (value, by_k) = saturation(*k, p - first);
    (a * inverse + c + d * value, [inverse, a * slope, 1.0, value, d * by_k])
}

fn round_trip(points: &[Point]) -> Result<(RoundTrip, Vec<FittedPoint>)> {
    let series = series(Quantity::RoundTrip, points, 5)?;
    let (first, last) = (series.xs[0], series.xs[series.xs.len() - 1]);
    // Exponents at the last point: saturation and growth, from nearly linear to steep.
    let exponents = [-100.0, -50.0, -25.0, -12.0, -6.0, -3.0, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 6.0, 8.0, 11.0];
    let exponents = exponents.map(|e| e / (last - first));
    // Starts use the best denominators for each exponent, since curves with different exponents differ most.
    let starts = exponents.into_iter().flat_map(|k| {
        let mut best = [const { None::<(f64, Start<5>)> }; 2];
        for u in denominators() {
            let mut system = Linear::new([f64::NEG_INFINITY; 3]);
            let row = |p: f64| [startup(u, p).0, 1.0, saturation(k, p - first).0];
            series.each(|p, time, scale| system.add(row(p), time, scale));
            for (best, found) in best.iter_mut().zip(system.both()) {
                let Some((parameters, weights)) = found else { continue };
                let misfit = misfit(&system.residuals(&parameters));
                if best.as_ref().is_none_or(|(least, _)| misfit < *least) {
                    let [a, c, d] = parameters;
                    *best = Some((misfit, ([a, u, c, d, k], weights)));
                }
            }
        }
        best.into_iter().flatten().map(|(_, start)| start)
    });
    let curve = |parameters: &[f64; 5], p: f64| round_trip_curve(parameters, p, first);
    let unfit = || unfit(Quantity::RoundTrip);
    let ([a, u, c, d, k], weights) = curve::fit(curve, &series, starts).ok_or_else(unfit)?;
    // A term that is linear in p is the limit of a small exponent.
    let least = 1e-8 / (last - first);
    let k = if k.abs() < least { least } else { k };
    let round_trip = RoundTrip([a, u.min(STEEPEST).exp() - OFFSET, c, -d / k, k, first]);
    if !round_trip.0.iter().all(|parameter| parameter.is_finite()) {
        return Err(unfit());
    }
    let points = series.fitted_points(&weights, |p| round_trip.at(p));
    Ok((round_trip, points))
}
