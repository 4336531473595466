//! Curves that are not linear in their parameters, fitted by the algorithm of Levenberg and Marquardt.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{Const, Dyn, OMatrix, SVector};

use super::robust::reweight;
use super::series::Series;

/// The value of a curve at a point, and its derivatives with respect to the parameters.
pub(super) type Value<const N: usize> = (f64, [f64; N]);

/// Maximum number of evaluations of the curve per parameter. If terms have nearly the same shape, a search would
/// otherwise continue for long in a flat valley.
const EVALUATIONS_PER_PARAMETER: usize = 60;

struct Problem<'a, const N: usize, F> {
    curve: &'a F,
    series: &'a Series,
    weights: &'a [f64],
    parameters: SVector<f64, N>,
}

impl<const N: usize, F: Fn(&[f64; N], f64) -> Value<N>> LeastSquaresProblem<f64, Dyn, Const<N>> for Problem<'_, N, F> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Const<N>>;
    type ParameterStorage = Owned<f64, Const<N>>;

    fn set_params(&mut self, parameters: &SVector<f64, N>) {
        self.parameters.copy_from(parameters);
    }

    fn params(&self) -> SVector<f64, N> {
        self.parameters
    }

    fn residuals(&self) -> Option<OMatrix<f64, Dyn, Const<1>>> {
        let residuals = residuals(self.curve, self.series, &self.parameters.into());
        let weighted = residuals.iter().zip(self.weights).map(|(residual, weight)| residual * weight.sqrt());
        Some(OMatrix::<f64, Dyn, Const<1>>::from_iterator(residuals.len(), weighted))
    }

    fn jacobian(&self) -> Option<OMatrix<f64, Dyn, Const<N>>> {
        let Series { xs, scales, .. } = self.series;
        let parameters = self.parameters.into();
        let mut jacobian = OMatrix::<f64, Dyn, Const<N>>::zeros(xs.len());
        for (row, ((x, scale), weight)) in xs.iter().zip(scales).zip(self.weights).enumerate() {
            for (column, derivative) in (self.curve)(&parameters, *x).1.into_iter().enumerate() {
                jacobian[(row, column)] = derivative * weight.sqrt() / scale;
            }
        }
        Some(jacobian)
    }
}

fn residuals<const N: usize>(
    curve: &impl Fn(&[f64; N], f64) -> Value<N>,
    series: &Series,
    parameters: &[f64; N],
) -> Vec<f64> {
    let points = series.xs.iter().zip(&series.times).zip(&series.scales);
    points.map(|((x, time), scale)| (curve(parameters, *x).0 - time) / scale).collect()
}

/// Sum of the absolute residuals, which outliers disturb less than that of the squares.
pub(super) fn misfit(residuals: &[f64]) -> f64 {
    let sum: f64 = residuals.iter().map(|residual| residual.abs()).sum();
    if sum.is_finite() { sum } else { f64::INFINITY }
}

/// Start of a search, with weights for the points.
pub(super) type Start<const N: usize> = ([f64; N], Vec<f64>);

/// Fits a curve to a series of at least N points. Each start is followed to its minimum, and the best minimum is fitted
/// robustly. Returns the parameters and the weights of the points.
pub(super) fn fit<const N: usize>(
    curve: impl Fn(&[f64; N], f64) -> Value<N>,
    series: &Series,
    starts: impl IntoIterator<Item = Start<N>>,
) -> Option<([f64; N], Vec<f64>)> {
    let of = |parameters: &[f64; N]| residuals(&curve, series, parameters);
    let minimum = |weights: &[f64], parameters: [f64; N]| {
        let problem = Problem { curve: &curve, series, weights, parameters: parameters.into() };
        // The result of a search that reaches its limit is still an improvement; that of one that overflows may not be.
        let search = LevenbergMarquardt::new().with_tol(1e-8).with_patience(EVALUATIONS_PER_PARAMETER);
        let found: [f64; N] = search.minimize(problem).0.parameters.into();
        Some(if misfit(&of(&found)).is_finite() { found } else { parameters })
    };
    let minima = starts.into_iter().filter_map(|(parameters, weights)| minimum(&weights, parameters));
    let best = minima.min_by(|a, b| misfit(&of(a)).total_cmp(&misfit(&of(b))))?;
    reweight(best, of, minimum)
}
