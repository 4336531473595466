//! Fits the parameters of the [models](crate::model::Model) of a network to measured times: pure functions without
//! communication and clock.
//!
//! Measured times have a tail on one side, since interrupts only make a time longer. So the time of a [`Point`] is the
//! lower median of its times. Over the points, residuals are relative to the measured times, because sizes and times
//! span many powers of ten, and points are reweighted until the fit converges: first by Huber's function, whose fit has
//! one minimum, then by Tukey's biweight, which gives outliers the weight 0 (Holland, Welsch 1977, "Robust regression
//! using iteratively reweighted least-squares"). Curves that are not linear in their parameters are fitted by the
//! algorithm of Levenberg and Marquardt (Moré 1978); those of [`lo_p`], with the feature `tune`.
//!
//! Times may be in any unit; the parameters have the same unit.
//!
//! ```
//! use farside_core::model::fit::{self, Point};
//!
//! let times = |x: f64| vec![2.0 + x / 4.0, 2.0 + x / 4.0, 50.0 + x];
//! let points: Vec<_> = [8.0, 64.0, 512.0].map(|x| Point { x, times: times(x) }).into();
//! let line = fit::line(&points)?.model;
//! assert!((line.constant - 2.0).abs() < 1e-6 && (line.slope - 0.25).abs() < 1e-6);
//! # Ok::<_, farside_core::Error>(())
//! ```

#[cfg(feature = "tune")]
mod curve;
#[cfg(feature = "tune")]
mod lo_p;
mod log_gp;
mod p_log_p;
mod robust;
mod series;
#[cfg(all(test, feature = "tune"))]
mod tests;

use serde::Serialize;

#[cfg(feature = "tune")]
pub use lo_p::lo_p;
pub use log_gp::log_gp;
pub use p_log_p::p_log_p;

use crate::error::{Error, ErrorKind, Result};
use robust::Linear;
use series::Series;

/// Times measured at one abscissa. Points with the same abscissa count as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Bytes of a message, or number of messages p.
    pub x: f64,
    /// At least one time; each is finite and at least 0.
    pub times: Vec<f64>,
}

/// Times by message size, for [`log_gp`] and [`p_log_p`]. Each field holds points of at least two sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Round trips of a ping-pong, with messages of the same size in both directions.
    pub round_trip: Vec<Point>,
    /// Times per message of a stream to one receiver: the time of the stream divided by its number of messages. The
    /// stream is long enough to make the latency of the last message negligible.
    pub per_message: Vec<Point>,
    /// Times for which a send keeps the processor busy: only those of posting.
    pub send_overhead: Vec<Point>,
    /// Times for which the receive of an arrived message keeps the processor busy; empty if they are zero, as for RDMA
    /// writes.
    pub receive_overhead: Vec<Point>,
}

/// Times for messages of one size by the number of messages p, which is at least 1, for [`lo_p`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FanSamples {
    /// Send overheads of each of p consecutively sent messages; at least 3 values of p.
    pub send_overhead: Vec<Point>,
    /// Receive overheads of each of p messages, as above; empty if they are zero, as for RDMA writes.
    pub receive_overhead: Vec<Point>,
    /// Round trips of each of p messages of a 1:p and p:1 ping-pong; at least 5 values of p.
    pub round_trip: Vec<Point>,
}

/// The kind of a measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum Quantity {
    /// A time that was passed to `line`.
    Time,
    /// A round trip.
    RoundTrip,
    /// A message of a stream.
    PerMessage,
    /// A send overhead.
    SendOverhead,
    /// A receive overhead.
    ReceiveOverhead,
}

/// A measured time and the fitted one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FittedPoint {
    /// Kind of the times.
    pub quantity: Quantity,
    /// Bytes of a message, or number of messages p.
    pub x: f64,
    /// Lower median of the measured times.
    pub measured: f64,
    /// Time according to the model.
    pub fitted: f64,
    /// Weight in the fit, from 0 for an outlier to 1.
    pub weight: f64,
}

/// LoP is fitted only with the feature `tune`.
///
/// # Errors
/// `Unsupported`.
#[cfg(not(feature = "tune"))]
pub fn lo_p(_samples: &FanSamples) -> Result<Fitted<super::LoP>> {
    let e = Error::new(ErrorKind::Unsupported, "fit a model").cause("this build cannot fit the LoP model");
    Err(e.remedy("build farside-core with its feature `tune`"))
}

/// A fitted model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted<M> {
    /// The model with its parameters.
    pub model: M,
    /// Root mean square of (fitted - measured) / measured over the points, by their weights.
    pub residual: f64,
    /// All points, by quantity and abscissa.
    pub points: Vec<FittedPoint>,
}

impl<M> Fitted<M> {
    /// Makes the result from points of all quantities; the residual is over the quantities in `counted`.
    fn new(model: M, points: Vec<FittedPoint>, counted: &[Quantity]) -> Self {
        let (mut sum, mut weights) = (0.0, f64::MIN_POSITIVE);
        for point in points.iter().filter(|p| counted.contains(&p.quantity)) {
            let scale = if point.measured > 0.0 { point.measured } else { point.fitted };
            let residual = if scale > 0.0 { (point.fitted - point.measured) / scale } else { 0.0 };
            sum += point.weight * residual * residual;
            weights += point.weight;
        }
        Self { model, residual: (sum / weights).sqrt(), points }
    }
}

/// A time that grows with the abscissa: constant + slope · x.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Time at x = 0.
    pub constant: f64,
    /// Time for each unit of x.
    pub slope: f64,
}

/// Fits a line through points of at least two abscissas. Both parameters may be negative.
///
/// # Errors
/// A bad argument: fewer points, or a time or abscissa that is not finite or negative.
pub fn line(points: &[Point]) -> Result<Fitted<Line>> {
    let series = Series::new(Quantity::Time, points, 2)?;
    let mut system = Linear::new([f64::NEG_INFINITY; 2]);
    series.each(|x, y, scale| system.add([1.0, x], y, scale));
    let (parameters, weights) = system.fit().ok_or_else(|| unfit(Quantity::Time))?;
    let [constant, slope] = parameters;
    let points = series.fitted_points(&weights, |x| constant + slope * x);
    Ok(Fitted::new(Line { constant, slope }, points, &[Quantity::Time]))
}

fn bad(cause: String, remedy: &str) -> Error {
    Error::new(ErrorKind::BadArgument, "fit a model").cause(cause).remedy(remedy)
}

/// The error for times so large or so small that the fit overflows.
fn unfit(quantity: Quantity) -> Error {
    bad(format!("{}: no finite parameters fit the times", quantity.text()), "give times in microseconds")
}

impl Quantity {
    fn text(self) -> &'static str {
        match self {
            Self::Time => "times",
            Self::RoundTrip => "round trips",
            Self::PerMessage => "times per message",
            Self::SendOverhead => "send overheads",
            Self::ReceiveOverhead => "receive overheads",
        }
    }
}
