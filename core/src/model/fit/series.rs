//! Points after checking, sorting and reduction to one time each.

use super::{FittedPoint, Point, Quantity, bad};
use crate::error::Result;

/// Abscissas in ascending order, each once, with a time.
pub(super) struct Series {
    quantity: Quantity,
    pub(super) xs: Vec<f64>,
    pub(super) times: Vec<f64>,
    /// Divisors that make residuals relative.
    pub(super) scales: Vec<f64>,
}

impl Series {
    /// A series of at least `least` abscissas; fewer abscissas are an error.
    pub(super) fn new(quantity: Quantity, points: &[Point], least: usize) -> Result<Self> {
        let what = quantity.text();
        let mut times: Vec<(f64, f64)> = Vec::new();
        for point in points {
            let x = point.x;
            if !x.is_finite() || x < 0.0 {
                return Err(bad(
                    format!("{what} at {x}: not a valid abscissa"),
                    "use abscissas that are finite and not negative",
                ));
            }
            if point.times.is_empty() {
                return Err(bad(
                    format!("{what} at {x}: no measured time"),
                    "measure at least one time for each point",
                ));
            }
            if let Some(time) = point.times.iter().find(|time| !time.is_finite() || **time < 0.0) {
                return Err(bad(
                    format!("{what} at {x}: {time} is not a valid time"),
                    "use times that are finite and not negative",
                ));
            }
            // -0 + 0 is 0, which sorts and groups with 0.
            times.extend(point.times.iter().map(|time| (x + 0.0, time + 0.0)));
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let (xs, medians): (Vec<_>, Vec<_>) =
            times.chunk_by(|a, b| a.0 == b.0).map(|same| same[(same.len() - 1) / 2]).unzip();
        if xs.len() < least {
            let cause = format!("{what} at {} different abscissas, but the fit needs {least}", xs.len());
            return Err(bad(cause, "measure at more distinct abscissas"));
        }
        // Times of 0, to which no residual can be relative, use the scale of the smallest other time.
        let smallest = medians.iter().copied().filter(|time| *time > 0.0).reduce(f64::min).unwrap_or(1.0);
        let scales = medians.iter().map(|time| time.max(smallest)).collect();
        Ok(Self { quantity, xs, times: medians, scales })
    }

    /// A series without points, or with at least `least` abscissas; other numbers of abscissas are an error.
    pub(super) fn new_or_none(quantity: Quantity, points: &[Point], least: usize) -> Result<Self> {
        Self::new(quantity, points, if points.is_empty() { 0 } else { least })
    }

    /// Calls `of` with each abscissa, its time and its scale.
    pub(super) fn each(&self, mut of: impl FnMut(f64, f64, f64)) {
        for ((x, time), scale) in self.xs.iter().zip(&self.times).zip(&self.scales) {
            of(*x, *time, *scale);
        }
    }

    /// The points of the series with the times of a model.
    pub(super) fn fitted_points(&self, weights: &[f64], at: impl Fn(f64) -> f64) -> Vec<FittedPoint> {
        let quantity = self.quantity;
        let points = self.xs.iter().zip(&self.times).zip(weights);
        points
            .map(|((x, time), weight)| FittedPoint {
                quantity,
                x: *x,
                measured: *time,
                fitted: at(*x),
                weight: *weight,
            })
            .collect()
    }
}
