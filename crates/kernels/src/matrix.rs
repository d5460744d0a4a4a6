//! Matrix products on slices: the safe face of `gemm`, for code that works below the tensor library.
#![allow(
    unsafe_code,
    reason = "the interface of `gemm` is raw pointers; every call is checked first"
)]

use std::cell::RefCell;

use rayon::prelude::*;

use crate::lanes::{Isa, Lanes, dispatch};
use crate::tile::Buffer;

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

    /// Whether columns are contiguous and rows are not.
    fn is_transposed(&self) -> bool {
        self.row_stride == 1 && self.col_stride > 1
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

/// Columns of the output in the widest register tile inside `gemm`: a piece that is a multiple of them has no narrow end.
const COLUMN_UNIT: usize = 64;
/// Rows of that tile.
const ROW_UNIT: usize = 6;
/// Most rows or columns of a piece that is cut along one side.
const PIECE: usize = 516;
/// Most rows of a piece whose right matrix is transposed first: enough to make that cheap.
const TALL: usize = 1024;
/// Most columns of such a piece if there are few pieces along the rows: what is transposed stays in a core's own cache.
const NARROW: usize = 256;
/// Multiplications that are worth a task of their own.
const TASK: usize = 1 << 21;

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
    let (rows, cols) = grid(m, k, n, b.is_transposed());
    let run = |piece: usize| {
        product.run(
            rows.range(piece / cols.pieces),
            cols.range(piece % cols.pieces),
        );
    };
    let pieces = rows.pieces * cols.pieces;
    if pieces == 1 {
        run(0);
    } else {
        (0..pieces).into_par_iter().with_max_len(1).for_each(run);
    }
}

/// A side of the output in equal pieces, the last of which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    len: usize,
    size: usize,
    pieces: usize,
}

impl Cut {
    fn new(len: usize, size: usize) -> Self {
        Self {
            len,
            size,
            pieces: len.div_ceil(size),
        }
    }

    fn whole(len: usize) -> Self {
        Self::new(len, len)
    }

    /// Pieces of a multiple of `unit` and at most `most`. A few pieces are sized so that two threads finish together; of the sizes
    /// that do, the largest.
    fn balanced(len: usize, unit: usize, most: usize) -> Self {
        let units = len.div_ceil(unit);
        let most = (most / unit).min(units);
        if units.div_ceil(most) >= 16 {
            return Self::new(len, most * unit);
        }
        let busier = |size: usize| units.div_ceil(size).div_ceil(2) * size;
        let sizes = (most / 2).max(1)..=most;
        let size = sizes.rev().min_by_key(|&size| busier(size));
        Self::new(len, size.unwrap_or(most) * unit)
    }

    fn range(&self, piece: usize) -> std::ops::Range<usize> {
        piece * self.size..((piece + 1) * self.size).min(self.len)
    }
}

/// How the output is cut into tasks: by the sizes alone, because the blocking inside `gemm` follows the sizes it is given. With the
/// same pieces every number of threads gives the same bits.
fn grid(m: usize, k: usize, n: usize, transposed: bool) -> (Cut, Cut) {
    if m * k * n < 2 * TASK {
        (Cut::whole(m), Cut::whole(n))
    } else if transposed && m >= TRANSPOSE_ROWS {
        let rows = Cut::new(m, m.div_ceil(m.div_ceil(TALL)));
        let cols = if rows.pieces >= 4 {
            let pieces = n.div_ceil(2 * NARROW);
            Cut::new(n, n.div_ceil(pieces).next_multiple_of(COLUMN_UNIT))
        } else {
            Cut::balanced(n, COLUMN_UNIT, NARROW)
        };
        (rows, cols)
    } else if m >= n {
        (Cut::balanced(m, ROW_UNIT, PIECE), Cut::whole(n))
    } else {
        (Cut::whole(m), Cut::balanced(n, COLUMN_UNIT, PIECE))
    }
}

/// From this many rows on, the right matrix of a product is transposed before `gemm` sees it: its own packing of a transposed
/// matrix takes four times as long as a transposition and the packing of the result.
const TRANSPOSE_ROWS: usize = 64;

thread_local! {
    /// The transposed columns of a piece.
    static SCRATCH: RefCell<Buffer> = RefCell::new(Buffer::new(0));
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
        let (a, b) = (self.a, self.b);
        assert!(
            rows.end <= a.rows && cols.end <= b.cols,
            "a piece of the output"
        );
        let right = &b.data[cols.start * b.col_stride..];
        if !b.is_transposed() || rows.len() < TRANSPOSE_ROWS {
            return self.run_on(rows, cols, right, (b.row_stride, b.col_stride));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let (k, n) = (b.rows, cols.len());
            if scratch.as_slice().len() < k * n {
                *scratch = Buffer::new(k * n);
            }
            let to = &mut scratch.as_mut_slice()[..k * n];
            let from = Transposed {
                data: right,
                stride: b.col_stride,
            };
            dispatch!(Isa::detect(), transpose, (from: Transposed<'_>, k: usize, to: &mut [f32]) = (from, k, to));
            self.run_on(rows, cols, to, (n, 1));
        });
    }

    /// The product of the rows with `right`, `[b.rows, cols.len()]` with these strides from row to row and column to column.
    fn run_on(
        &self,
        rows: std::ops::Range<usize>,
        cols: std::ops::Range<usize>,
        right: &[f32],
        (row_stride, col_stride): (usize, usize),
    ) {
        let (a, n) = (self.a, self.b.cols);
        let needed = (a.cols - 1) * row_stride + (cols.len() - 1) * col_stride + 1;
        assert!(needed <= right.len(), "the columns of a piece");
        // Slices never exceed isize::MAX bytes, so strides inside them fit.
        let stride = |s: usize| s as isize;
        let left = &a.data[rows.start * a.row_stride..];
        // SAFETY: the piece lies inside `out`, which has `a.rows * b.cols` elements, and no other piece overlaps it; the last
        // elements of `a` lie inside its slice by the assertions of its constructors, which transposing keeps, those of `right`
        // by the assertion above.
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
                stride(col_stride),
                stride(row_stride),
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

/// The transpose of a row-major `[rows, cols]` matrix, a row-major `[cols, rows]` one, on the current rayon pool.
///
/// # Panics
/// If `data` does not have `rows * cols` elements.
pub fn transposed(data: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    /// Columns of a task: whole cache lines of every row.
    const BAND: usize = 16;
    assert!(
        data.len() == rows * cols,
        "a matrix [{rows}, {cols}] has {} elements, not {}",
        rows * cols,
        data.len()
    );
    let mut out = vec![0.0; data.len()];
    if data.is_empty() {
        return out;
    }
    let bands = out.par_chunks_mut(BAND * rows).enumerate();
    bands.for_each(|(band, to)| {
        let from = Transposed {
            data: &data[band * BAND..],
            stride: cols,
        };
        let k = to.len() / rows;
        dispatch!(Isa::detect(), transpose, (from: Transposed<'_>, k: usize, to: &mut [f32]) = (from, k, to));
    });
    out
}

/// Rows of `k` elements, `stride` apart: the columns of a transposed matrix.
#[derive(Clone, Copy)]
struct Transposed<'a> {
    data: &'a [f32],
    stride: usize,
}

/// `to[c, r] = from[r, c]` for `c < k`; as many rows as fit into `to`.
#[inline(always)]
fn transpose<S: Lanes>(s: S, from: Transposed<'_>, k: usize, to: &mut [f32]) {
    let (w, n) = (S::WIDTH, to.len() / k);
    assert!(
        n == 0 || (n - 1) * from.stride + k <= from.data.len(),
        "rows to transpose"
    );
    for r in (0..n).step_by(w) {
        for c in (0..k).step_by(w) {
            if r + w <= n && c + w <= k {
                // SAFETY: rows `r .. r + w` of `from` have elements `c .. c + w`, and the other way round in `to`.
                unsafe {
                    let at = from.data.as_ptr().add(r * from.stride + c);
                    s.transpose(at, from.stride, to.as_mut_ptr().add(c * n + r), n);
                }
                continue;
            }
            for r in r..n.min(r + w) {
                for c in c..k.min(c + w) {
                    to[c * n + r] = from.data[r * from.stride + c];
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "matrix_tests.rs"]
mod tests;
