//! Matrix products on slices: the safe face of `gemm`, for code that works below the tensor library.
#![allow(
    unsafe_code,
    reason = "the interface of `gemm` is raw pointers; every call is checked first"
)]

use rayon::prelude::*;

/// A matrix inside a slice: element (`r`, `c`) lies at `r * row_stride + c * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Dense rows, `[rows, cols]`.
    ///
    /// # Panics
    /// If the slice is shorter than `rows * cols`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` elements, `row_stride` elements apart.
    ///
    /// # Panics
    /// If a row lies outside the slice.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        let needed = extent(rows, cols, row_stride);
        assert!(
            needed <= data.len(),
            "matrix [{rows}, {cols}] needs {needed} elements, the slice has {}",
            data.len()
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride: 1,
        }
    }

    /// The transposed matrix, without moving anything.
    #[must_use]
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

fn extent(rows: usize, cols: usize, row_stride: usize) -> usize {
    if rows == 0 || cols == 0 {
        0
    } else {
        (rows - 1) * row_stride + cols
    }
}

/// What [`multiply`] does with what is already in its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Replaces it.
    Set,
    /// Adds to it.
    Add,
}

/// Rows or columns of the output that one task computes. A constant, because the blocking inside `gemm` follows the sizes it is
/// given: with the same pieces every number of threads gives the same bits.
const PIECE: usize = 512;

/// `out = a b` or `out += a b`, with `out` dense rows `[a.rows, b.cols]`, in f32.
///
/// Runs on the current rayon pool; the result does not depend on its size.
///
/// # Panics
/// If the shapes do not agree.
pub fn multiply(out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, store: Store) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert!(
        b.rows == k,
        "matrix product of [{m}, {k}] and [{}, {n}]",
        b.rows
    );
    assert!(
        out.len() == m * n,
        "product of [{m}, {k}] and [{k}, {n}] has {} elements, out has {}",
        m * n,
        out.len()
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if store == Store::Set {
            out.fill(0.0);
        }
        return;
    }
    let product = Product {
        out: out.as_mut_ptr(),
        a,
        b,
        add: store == Store::Add,
    };
    // Cut along the longer side, in equal pieces.
    let by_rows = m >= n;
    let long = m.max(n);
    let pieces = long.div_ceil(PIECE);
    let size = long.div_ceil(pieces);
    let run = |piece: usize| {
        let (first, end) = (piece * size, ((piece + 1) * size).min(long));
        if by_rows {
            product.run(first..end, 0..n);
        } else {
            product.run(0..m, first..end);
        }
    };
    if pieces == 1 {
        run(0);
    } else {
        (0..pieces).into_par_iter().with_max_len(1).for_each(run);
    }
}

struct Product<'a> {
    /// Dense rows `[a.rows, b.cols]`, borrowed exclusively by the caller.
    out: *mut f32,
    a: Matrix<'a>,
    b: Matrix<'a>,
    add: bool,
}

// SAFETY: `out` is only reached through `run`, whose calls take disjoint parts of it.
unsafe impl Sync for Product<'_> {}

impl Product<'_> {
    fn run(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) {
        let (a, b, n) = (self.a, self.b, self.b.cols);
        assert!(rows.end <= a.rows && cols.end <= n, "a piece of the output");
        // Slices never exceed isize::MAX bytes, so strides inside them fit.
        let stride = |s: usize| s as isize;
        let left = &a.data[rows.start * a.row_stride..];
        let right = &b.data[cols.start * b.col_stride..];
        // SAFETY: the piece lies inside `out`, which has `a.rows * b.cols` elements, and no other piece overlaps it; the last
        // elements of `a` and `b` lie inside their slices by the assertions of their constructors, which transposing keeps.
        unsafe {
            gemm::gemm(
                rows.len(),
                cols.len(),
                a.cols,
                self.out.add(rows.start * n + cols.start),
                1,
                stride(n),
                self.add,
                left.as_ptr(),
                stride(a.col_stride),
                stride(a.row_stride),
                right.as_ptr(),
                stride(b.col_stride),
                stride(b.row_stride),
                1.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| {
                let x = (i ^ seed).wrapping_mul(2_654_435_761);
                f64::from(x) as f32 / u32::MAX as f32 - 0.5
            })
            .collect()
    }

    /// Plain loops in f64.
    fn naive(a: Matrix<'_>, b: Matrix<'_>) -> Vec<f64> {
        let at = |m: Matrix<'_>, r: usize, c: usize| {
            f64::from(m.data[r * m.row_stride + c * m.col_stride])
        };
        let mut out = Vec::new();
        for r in 0..a.rows {
            for c in 0..b.cols {
                out.push((0..a.cols).map(|i| at(a, r, i) * at(b, i, c)).sum());
            }
        }
        out
    }

    #[test]
    fn products_equal_plain_loops_in_every_orientation() {
        let (m, k, n) = (37, 65, 41);
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let start = numbers(k * n, 3);
        for (left, right) in [
            (Matrix::new(&a, m, k), Matrix::new(&b, k, n)),
            (Matrix::new(&a, k, m).t(), Matrix::new(&b, k, n)),
            (Matrix::new(&a, m, k), Matrix::new(&b, n, k).t()),
            (
                Matrix::strided(&a, m - 1, k - 4, k).t(),
                Matrix::new(&b, m - 1, n),
            ),
        ] {
            let expected = naive(left, right);
            // Rounding of a sum of k products of numbers below 1/2, twice over.
            let tolerance = 2.0 * 65.0 * 0.25 * f64::from(f32::EPSILON);
            let mut out = start[..expected.len()].to_vec();
            multiply(&mut out, left, right, Store::Add);
            for ((got, want), before) in out.iter().zip(&expected).zip(&start) {
                assert!((f64::from(*got) - want - f64::from(*before)).abs() < tolerance);
            }
            multiply(&mut out, left, right, Store::Set);
            for (got, want) in out.iter().zip(&expected) {
                assert!((f64::from(*got) - want).abs() < tolerance);
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let (m, k, n) = (1300, 517, 260);
        let (a, b) = (numbers(m * k, 4), numbers(k * n, 5));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let mut out = vec![0.0; m * n];
                multiply(
                    &mut out,
                    Matrix::new(&a, m, k),
                    Matrix::new(&b, k, n),
                    Store::Set,
                );
                out
            })
        };
        let one = run(1);
        for threads in [2, 3, 8] {
            assert!(run(threads) == one, "{threads} threads");
        }
        let expected = naive(Matrix::new(&a, m, k), Matrix::new(&b, k, n));
        for (got, want) in one.iter().zip(&expected) {
            assert!((f64::from(*got) - want).abs() < 517.0 * 0.25 * f64::from(f32::EPSILON));
        }
    }
}
