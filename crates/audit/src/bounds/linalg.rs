//! Small dense matrices in f64 with bounds on every rounding: products, Cholesky, and the largest eigenvalue from above.
//!
//! Notation of the comments: `u = 2^-53`, `gamma(n) = n u / (1 - n u)` (Higham, *Accuracy and Stability of Numerical
//! Algorithms*, chapter 3). A sum of `n` products in any order is off by at most `gamma(n) |x|.|y|`. Every product below is a
//! multiplication followed by an addition, never fused, in ascending order of the summation index, so a result has the same
//! bits on every machine and for every thread count.
//!
//! Underflow is left out of the bounds: weights are f32, and what f64 products of them lose below 1e-308 does not reach the
//! last digit of anything reported.

use std::ops::Range;

/// Rows of a register tile, one vector register each.
const TILE_ROWS: usize = 8;
/// Multiple to which rows are padded: a whole tile, and a whole vector of any machine.
const PADDING: usize = 8;
/// Summation indices per pass, so that a panel of 64 columns stays in the first-level cache.
const PASS: usize = 64;

/// `n u / (1 - n u)`, rounded up; infinite where `n u` reaches 1.
pub(super) fn gamma(n: usize) -> f64 {
    let nu = n as f64 * (f64::EPSILON / 2.0);
    if nu < 1.0 {
        up(nu / (1.0 - nu))
    } else {
        f64::INFINITY
    }
}

/// A little more than `x >= 0`: covers the rounding of up to eight operations on non-negative numbers that led to `x`.
pub(super) fn up(x: f64) -> f64 {
    x * (1.0 + 8.0 * f64::EPSILON)
}

/// A dense matrix, row-major, each row padded with zeros to a multiple of [`PADDING`].
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// Number of rows.
    pub(super) n_rows: usize,
    /// Number of columns that count.
    pub(super) n_cols: usize,
    stride: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// `[n_rows, n_cols]` of zeros.
    pub(super) fn zeros(n_rows: usize, n_cols: usize) -> Self {
        let stride = n_cols.next_multiple_of(PADDING);
        Self {
            n_rows,
            n_cols,
            stride,
            data: vec![0.0; n_rows * stride],
        }
    }

    /// From a function of row and column.
    pub(super) fn from_fn(n_rows: usize, n_cols: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let mut matrix = Self::zeros(n_rows, n_cols);
        for row in 0..n_rows {
            for (col, x) in matrix.row_mut(row).iter_mut().enumerate() {
                *x = f(row, col);
            }
        }
        matrix
    }

    /// One row, without the padding.
    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.stride..][..self.n_cols]
    }

    /// One row, without the padding.
    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.data[row * self.stride..][..self.n_cols]
    }

    /// A copy of some rows and columns.
    pub(super) fn block(&self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let mut block = Self::zeros(rows.len(), cols.len());
        for (target, row) in rows.enumerate() {
            block
                .row_mut(target)
                .copy_from_slice(&self.row(row)[cols.clone()]);
        }
        block
    }

    /// Sum of the diagonal.
    pub(super) fn trace(&self) -> f64 {
        (0..self.n_rows).map(|i| self.row(i)[i]).sum()
    }

    /// `self + shift * I`.
    pub(super) fn shifted(mut self, shift: f64) -> Self {
        for i in 0..self.n_rows {
            self.row_mut(i)[i] += shift;
        }
        self
    }

    /// Whether every entry is finite.
    pub(super) fn is_finite(&self) -> bool {
        self.data.iter().all(|x| x.is_finite())
    }

    /// `self * x`; each entry is off by at most `gamma(n_cols)` of its sum of magnitudes.
    pub(super) fn times(&self, x: &[f64]) -> Vec<f64> {
        (0..self.n_rows).map(|i| dot(self.row(i), x)).collect()
    }

    /// The largest sum of magnitudes of a row: an upper bound of the spectral norm of a symmetric matrix.
    pub(super) fn max_row_sum(&self) -> f64 {
        let sums = (0..self.n_rows).map(|i| self.row(i).iter().map(|x| x.abs()).sum::<f64>());
        sums.fold(0.0, f64::max) * (1.0 + gamma(self.n_cols))
    }

    fn transposed(&self) -> Self {
        Self::from_fn(self.n_cols, self.n_rows, |i, j| self.row(j)[i])
    }

    fn scaled(mut self, factor: f64) -> Self {
        self.data.iter_mut().for_each(|x| *x *= factor);
        self
    }
}

/// Inner product in four interleaved sums (any order of summation has the same bound).
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0f64; 4];
    let (x4, x_rest) = x.as_chunks::<4>();
    let (y4, y_rest) = y[..x.len()].as_chunks::<4>();
    for (a, b) in x4.iter().zip(y4) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(a, b)| a * b).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Euclidean norm, rounded up.
pub(super) fn norm(x: &[f64]) -> f64 {
    up((dot(x, x) * (1.0 + gamma(x.len() + 4))).sqrt())
}

/// `a^T b` for `a: [k, m]`, `b: [k, n]`; entry (i, j) is off by at most `gamma(k) |a_i|.|b_j|` (columns).
pub(super) fn product_transposed(a: &Matrix, b: &Matrix) -> Matrix {
    let mut c = Matrix::zeros(a.n_cols.next_multiple_of(TILE_ROWS), b.n_cols);
    accumulate(a, b, &mut c, false);
    c.n_rows = a.n_cols;
    c
}

/// `a^T b` where the result is known to be symmetric: computes the upper half and mirrors it.
fn symmetric_product_transposed(a: &Matrix, b: &Matrix) -> Matrix {
    let mut c = Matrix::zeros(a.n_cols.next_multiple_of(TILE_ROWS), b.n_cols);
    accumulate(a, b, &mut c, true);
    c.n_rows = a.n_cols;
    for i in 1..c.n_rows {
        for j in 0..i {
            c.data[i * c.stride + j] = c.data[j * c.stride + i];
        }
    }
    c
}

/// `a^T a`: the Gram matrix of the columns of `a: [n, d]`.
pub(super) fn gram(a: &Matrix) -> Matrix {
    symmetric_product_transposed(a, a)
}

/// `c += a^T b`. With `upper` only tiles that touch the diagonal or lie above it.
fn accumulate(a: &Matrix, b: &Matrix, c: &mut Matrix, upper: bool) {
    assert_eq!(a.n_rows, b.n_rows, "inner dimensions");
    pulp::Arch::new().dispatch(Accumulate { a, b, c, upper });
}

/// The loops of [`accumulate`], for the machine's vector width. Lanes are columns of the result, so the width changes no sum.
struct Accumulate<'a> {
    a: &'a Matrix,
    b: &'a Matrix,
    c: &'a mut Matrix,
    upper: bool,
}

impl pulp::WithSimd for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) {
        let Self { a, b, c, upper } = self;
        let lanes = S::F64_LANES;
        assert!(
            PADDING.is_multiple_of(lanes),
            "rows are padded to whole vectors"
        );
        let (b_stride, c_stride) = (b.stride / lanes, c.stride / lanes);
        let (c_vectors, _) = S::as_mut_simd_f64s(&mut c.data);
        for start in (0..a.n_rows).step_by(PASS) {
            let end = (start + PASS).min(a.n_rows);
            let a_pass = &a.data[start * a.stride..end * a.stride];
            let (b_pass, _) = S::as_simd_f64s(&b.data[start * b.stride..end * b.stride]);
            for i in (0..a.n_cols).step_by(TILE_ROWS) {
                let first = if upper { i / lanes } else { 0 };
                for j in first..b.n_cols.div_ceil(lanes) {
                    // Carrying the sum from pass to pass keeps the order of summation that of a single pass.
                    let mut tile: [S::f64s; TILE_ROWS] =
                        std::array::from_fn(|row| c_vectors[(i + row) * c_stride + j]);
                    let rows = a_pass
                        .chunks_exact(a.stride)
                        .zip(b_pass.chunks_exact(b_stride));
                    for (a_row, b_row) in rows {
                        // Rows are padded to whole tiles: the chunk is never missing.
                        if let Some(x) = a_row[i..].first_chunk::<TILE_ROWS>() {
                            let y = b_row[j];
                            for row in 0..TILE_ROWS {
                                let product = simd.mul_f64s(simd.splat_f64s(x[row]), y);
                                tile[row] = simd.add_f64s(tile[row], product);
                            }
                        }
                    }
                    for (row, sums) in tile.into_iter().enumerate() {
                        c_vectors[(i + row) * c_stride + j] = sums;
                    }
                }
            }
        }
    }
}

/// The upper factor `R` of `R^T R = A + E`, `|E|_2 <= gamma(d + 1) |R|_F^2`; `None` where a pivot is not positive.
///
/// Success proves that the smallest eigenvalue of `A` is at least `-gamma(d + 1) / (1 - gamma(d + 1)) * trace(A)`
/// (Higham, theorem 10.3, with `|R|_F^2 = trace(A + E)`).
pub(super) fn cholesky(mut a: Matrix) -> Option<Matrix> {
    let (d, stride) = (a.n_rows, a.stride);
    for k in 0..d {
        let (done, below) = a.data.split_at_mut((k + 1) * stride);
        let pivot_row = &mut done[k * stride..][..d];
        let pivot = pivot_row[k];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        let root = pivot.sqrt();
        pivot_row[..k].fill(0.0);
        pivot_row[k] = root;
        pivot_row[k + 1..].iter_mut().for_each(|x| *x /= root);
        for (offset, row) in below.chunks_exact_mut(stride).take(d - k - 1).enumerate() {
            let i = k + 1 + offset;
            let factor = pivot_row[i];
            for (x, r) in row[i..d].iter_mut().zip(&pivot_row[i..d]) {
                *x -= factor * r;
            }
        }
    }
    Some(a)
}

/// An upper bound of the largest eigenvalue of a symmetric matrix whose diagonal is not negative.
///
/// Power iteration finds a value, which proves nothing; then Cholesky of `tau I - M` proves `M <= tau I`. Where it fails, `tau`
/// is raised until it does not. Usually within 1e-6 of the truth, never below it.
pub(super) fn largest_eigenvalue_upper(m: &Matrix) -> f64 {
    let d = m.n_rows;
    let trace = m.trace();
    if !m.is_finite() {
        return f64::INFINITY;
    }
    let ceiling = up(m.max_row_sum());
    if d == 0 || trace <= 0.0 || ceiling == 0.0 {
        return ceiling;
    }
    let estimate = rayleigh_estimate(m, ceiling).clamp(trace / d as f64, ceiling);
    let mut excess = 1e-6;
    loop {
        let tau = estimate * (1.0 + excess);
        if tau >= ceiling {
            return ceiling;
        }
        let rest = m.clone().scaled(-1.0).shifted(tau);
        // Forming the diagonal rounds each entry by u tau at most; see `cholesky` for the rest.
        let slack = (gamma(1) + gamma(2 * d + 8)) * (d as f64 * tau + trace.abs());
        if cholesky(rest).is_some() {
            return up(tau + slack);
        }
        excess *= 8.0;
    }
}

/// A lower estimate of the largest eigenvalue: the Rayleigh quotient after power iterations with `(M / scale)^8`.
fn rayleigh_estimate(m: &Matrix, scale: f64) -> f64 {
    let mut power = m.clone().scaled(1.0 / scale);
    for _ in 0..3 {
        let square = symmetric_product_transposed(&power, &power);
        let largest = square.trace();
        if largest.is_nan() || largest <= 0.0 {
            return 0.0;
        }
        power = square.scaled(1.0 / largest);
    }
    // The heaviest column is a fair start and cannot be orthogonal to the top eigenvector unless it is zero.
    let heaviest = (0..m.n_rows).max_by(|&i, &j| power.row(i)[i].total_cmp(&power.row(j)[j]));
    let mut x = power.row(heaviest.unwrap_or(0)).to_vec();
    for _ in 0..24 {
        let length = dot(&x, &x).sqrt();
        if length.is_nan() || length <= 0.0 {
            return 0.0;
        }
        x.iter_mut().for_each(|v| *v /= length);
        x = power.times(&x);
    }
    let (squared, image) = (dot(&x, &x), m.times(&x));
    if squared > 0.0 {
        dot(&x, &image) / squared
    } else {
        0.0
    }
}

/// A symmetric matrix that is provably at least a Gram matrix `W W^T` in the Loewner order.
#[derive(Clone, Debug)]
pub(super) struct GramBound {
    /// The Gram matrix as computed, `[d, d]`.
    pub(super) gram: Matrix,
    /// `gram + shift I >= W W^T`.
    pub(super) shift: f64,
    /// Upper bound of `|W|_F^2 = trace(W W^T)`.
    pub(super) trace: f64,
}

impl GramBound {
    /// From `W^T: [n, d]`, whose entries may be off by `u` relative to themselves (one rounding when they were formed).
    ///
    /// The product is off by at most `gamma(n) |w_i| |w_j|` in entry (i, j), in Frobenius norm `gamma(n) |W|_F^2`; one
    /// relative rounding of W's entries adds `(2u + u^2) |W|_F^2`; and the trace read off the result is off by
    /// `gamma(n + d)`. `gamma(n + d + 16)` of the trace covers all three with room.
    pub(super) fn new(w_transposed: &Matrix) -> Self {
        let (n, d) = (w_transposed.n_rows, w_transposed.n_cols);
        let gram = gram(w_transposed);
        let trace = up(gram.trace() * (1.0 + gamma(n + d + 16)));
        Self {
            shift: up(trace * gamma(n + d + 16)),
            gram,
            trace,
        }
    }

    /// Upper bound of `|W^T x|` for every `x` within `x_error` of the given one: `sqrt(x^T (G + shift) x)` and the
    /// rounding of that form, `gamma(2 d + 2) |G|_F |x|^2`.
    pub(super) fn seminorm(&self, x: &[f64], x_error: f64) -> f64 {
        let length = norm(x);
        let form = dot(x, &self.gram.times(x)).max(0.0);
        let slack = (self.shift + gamma(2 * x.len() + 8) * self.trace) * length * length;
        up(up(form + up(slack)).sqrt() + self.trace.sqrt() * x_error)
    }

    /// Upper bound of the Euclidean norm of row `i` of W.
    pub(super) fn row_norm(&self, i: usize) -> f64 {
        up((self.gram.row(i)[i] + self.shift).max(0.0).sqrt())
    }

    /// A quick upper bound of W's spectral norm.
    pub(super) fn spectral_norm_quick(&self) -> f64 {
        let rows = self.gram.max_row_sum() + self.shift;
        up(rows.min(self.trace).sqrt())
    }

    /// An upper bound of W's spectral norm, tight to about 1e-6.
    pub(super) fn spectral_norm(&self) -> f64 {
        up((largest_eigenvalue_upper(&self.gram) + self.shift).sqrt())
    }
}

/// Upper bound of the largest singular value of `A^T B`, for `A: [d, n]`, `B: [d, n']` given by their Gram matrices; tight to
/// about 1e-6. Only d x d matrices are formed.
///
/// With `G >= A A^T` and `R^T R >= B B^T`: `sigma^2 = lambda_max(A A^T B B^T) <= lambda_max(R G R^T)`, because
/// `lambda_max(X Y)` grows with X and with Y in the Loewner order.
pub(super) fn largest_singular_value_upper(a: &GramBound, b: &GramBound) -> f64 {
    let d = a.gram.n_rows;
    if !(a.trace.is_finite() && b.trace.is_finite()) {
        return f64::INFINITY;
    }
    if a.trace == 0.0 || b.trace == 0.0 {
        return 0.0;
    }
    // Cholesky itself is off by gamma(d + 1) |R|_F^2 at most; twice that, added beforehand, keeps R^T R above.
    let mut shift = b.shift + gamma(2 * d + 16) * b.trace;
    let factor = loop {
        if let Some(factor) = cholesky(b.gram.clone().shifted(shift)) {
            break factor;
        }
        // Not reached by the theorem in `cholesky`; a larger shift is still a bound.
        shift *= 2.0;
    };
    let g = a.gram.clone().shifted(a.shift);
    let lower = factor.transposed();
    // Two products of inner length d: off by (2 gamma(d) + gamma(d)^2) |R|_F^2 |G|_F in norm, and |G|_F <= trace(G).
    let trace_b = b.trace + 2.0 * shift * d as f64;
    let trace_a = a.trace + a.shift * d as f64;
    let product_slack = gamma(3 * d + 8) * trace_a * trace_b;
    // (G L)^T L = L^T G L, L = R^T: `product_transposed(x, y)` is x^T y, and G is symmetric.
    let half = product_transposed(&g, &lower);
    let m = symmetric_product_transposed(&lower, &half);
    up(up(largest_eigenvalue_upper(&m) + product_slack).sqrt())
}

#[cfg(test)]
#[path = "linalg_tests.rs"]
mod tests;
