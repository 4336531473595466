//! Least squares with robustness against outliers.

/// Number of standard deviations at which Huber's function begins to lower the weight: 95 % efficient for normal
/// residuals.
const HUBER: f64 = 1.345;

/// Number of standard deviations at which Tukey's biweight becomes 0: 95 % efficient for normal residuals.
const TUKEY: f64 = 4.685;

/// Median of the absolute values of normal residuals, in standard deviations.
const MEDIAN: f64 = 0.6745;

/// Minimum standard deviation, relative like the residuals. No model is more accurate; with a smaller value, a curve
/// with many parameters that passes through most points by chance would ignore the others.
const MIN_DEVIATION: f64 = 0.01;

/// Maximum number of rounds of reweighting for each function.
const ROUNDS: usize = 15;

fn huber(residual: f64) -> f64 {
    if residual.abs() <= HUBER { 1.0 } else { HUBER / residual.abs() }
}

fn tukey(residual: f64) -> f64 {
    let inside = 1.0 - (residual / TUKEY).powi(2);
    if inside > 0.0 { inside * inside } else { 0.0 }
}

/// Robust standard deviation of the residuals of a fit with `parameters`, which makes about as many of them vanish.
fn deviation(residuals: &[f64], parameters: usize) -> f64 {
    let mut sizes: Vec<_> = residuals.iter().map(|r| r.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let rest = &sizes[(parameters - 1).min(sizes.len().saturating_sub(1))..];
    rest.get(rest.len() / 2).map_or(0.0, |median| median / MEDIAN).max(MIN_DEVIATION)
}

/// Solves for parameters with weights, repeatedly with the weights that follow from the residuals of the last solution.
/// Returns the parameters and the weights; `None` if there is no finite solution.
pub(super) fn reweight<const N: usize>(
    start: [f64; N],
    residuals: impl Fn(&[f64; N]) -> Vec<f64>,
    mut solve: impl FnMut(&[f64], [f64; N]) -> Option<[f64; N]>,
) -> Option<([f64; N], Vec<f64>)> {
    let (mut parameters, mut weights) = (start, vec![1.0; residuals(&start).len()]);
    for function in [huber, tukey] {
        for _ in 0..ROUNDS {
            let residuals = residuals(&parameters);
            let deviation = deviation(&residuals, N);
            let new: Vec<_> = residuals.iter().map(|r| function(r / deviation)).collect();
            let settled = new.iter().zip(&weights).all(|(new, old)| (new - old).abs() < 0.01);
            weights = new;
            if settled {
                break;
            }
            parameters = solve(&weights, parameters)?;
        }
    }
    parameters.iter().chain(&weights).all(|value| value.is_finite()).then_some((parameters, weights))
}

/// Equations that are linear in N parameters.
pub(super) struct Linear<const N: usize> {
    /// Lower bounds: 0 or negative infinity.
    least: [f64; N],
    rows: Vec<[f64; N]>,
    targets: Vec<f64>,
}

impl<const N: usize> Linear<N> {
    pub(super) fn new(least: [f64; N]) -> Self {
        Self { least, rows: Vec::new(), targets: Vec::new() }
    }

    /// Adds the equation `row` · parameters = `target`, with a residual in units of `scale`.
    pub(super) fn add(&mut self, row: [f64; N], target: f64, scale: f64) {
        self.rows.push(row.map(|value| value / scale));
        self.targets.push(target / scale);
    }

    pub(super) fn residuals(&self, parameters: &[f64; N]) -> Vec<f64> {
        let product = |row: &[f64; N]| row.iter().zip(parameters).map(|(a, b)| a * b).sum::<f64>();
        self.rows.iter().zip(&self.targets).map(|(row, target)| product(row) - target).collect()
    }

    /// The robust solution.
    pub(super) fn fit(&self) -> Option<([f64; N], Vec<f64>)> {
        let start = self.solve(&vec![1.0; self.rows.len()])?;
        reweight(start, |parameters| self.residuals(parameters), |weights, _| self.solve(weights))
    }

    /// The least squares solution with equal weights, and the robust one. If the equations hold only approximately, the
    /// latter may ignore points that are not outliers.
    #[cfg(feature = "tune")]
    pub(super) fn both(&self) -> [Option<([f64; N], Vec<f64>)>; 2] {
        let equal = vec![1.0; self.rows.len()];
        [self.solve(&equal).map(|parameters| (parameters, equal)), self.fit()]
    }

    /// The least squares solution. A parameter that would be below its bound is 0, as is one that no equation contains.
    pub(super) fn solve(&self, weights: &[f64]) -> Option<[f64; N]> {
        let (mut products, mut right) = ([[0.0; N]; N], [0.0; N]);
        for ((row, target), weight) in self.rows.iter().zip(&self.targets).zip(weights) {
            for i in 0..N {
                right[i] += weight * row[i] * target;
                for j in 0..N {
                    products[i][j] += weight * row[i] * row[j];
                }
            }
        }
        let norms: [f64; N] = std::array::from_fn(|i| products[i][i].sqrt());
        let mut free: [bool; N] = norms.map(|norm| norm > 0.0);
        loop {
            // Columns are scaled to length 1; the small term keeps a system with dependent columns solvable.
            let element = |i: usize, j: usize| match (i == j, free[i] && free[j]) {
                (true, true) => 1.0 + 1e-13,
                (true, false) => 1.0,
                (false, true) => products[i][j] / (norms[i] * norms[j]),
                (false, false) => 0.0,
            };
            let matrix: [[f64; N]; N] = std::array::from_fn(|i| std::array::from_fn(|j| element(i, j)));
            let vector = std::array::from_fn(|i| if free[i] { right[i] / norms[i] } else { 0.0 });
            let scaled = solution(matrix, vector)?;
            let worst = (0..N).filter(|i| free[*i] && scaled[*i] < self.least[*i]);
            match worst.min_by(|a, b| scaled[*a].total_cmp(&scaled[*b])) {
                Some(worst) => free[worst] = false,
                None => return Some(std::array::from_fn(|i| if free[i] { scaled[i] / norms[i] } else { 0.0 })),
            }
        }
    }
}

/// Solves a symmetric system by Cholesky's decomposition; `None` if its matrix is not positive definite.
fn solution<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for j in 0..N {
        for i in j..N {
            let before: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - before;
            if i == j && (rest <= 0.0 || rest.is_nan()) {
                return None;
            }
            matrix[i][j] = if i == j { rest.sqrt() } else { rest / matrix[j][j] };
        }
    }
    for i in 0..N {
        let before: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - before) / matrix[i][i];
    }
    for i in (0..N).rev() {
        let after: f64 = (i + 1..N).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - after) / matrix[i][i];
    }
    Some(right)
}
