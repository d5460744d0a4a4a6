//! Products against plain loops.

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
    let at =
        |m: Matrix<'_>, r: usize, c: usize| f64::from(m.data[r * m.row_stride + c * m.col_stride]);
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
fn transposing_moves_every_element() {
    for (rows, cols) in [
        (1, 1),
        (1, 40),
        (40, 1),
        (16, 32),
        (17, 33),
        (50, 7),
        (35, 200),
    ] {
        let data: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
        let got = transposed(&data, rows, cols);
        for r in 0..rows {
            for c in 0..cols {
                assert_eq!(got[c * rows + r], data[r * cols + c]);
            }
        }
    }
    assert!(transposed(&[], 0, 4).is_empty());
}

#[test]
fn pieces_cover_the_output_and_fill_two_threads() {
    for (m, k, n) in [
        (4096, 256, 768),
        (4096, 1024, 256),
        (1024, 768, 2304),
        (1024, 3072, 768),
        (524, 768, 32_000),
        (2304, 1024, 768),
        (256, 4096, 256),
        (768, 4096, 256),
        (1300, 517, 61),
        (70, 65_537, 1),
    ] {
        for transposed in [false, true] {
            let (rows, cols) = grid(m, k, n, transposed);
            for (cut, len) in [(rows, m), (cols, n)] {
                let mut next = 0;
                for piece in 0..cut.pieces {
                    let range = cut.range(piece);
                    assert!(range.start == next && !range.is_empty(), "{cut:?}");
                    next = range.end;
                }
                assert_eq!(next, len, "{cut:?}");
            }
            let pieces = rows.pieces * cols.pieces;
            let even = pieces.is_multiple_of(2) || pieces >= 16;
            assert!(n < 64 || even, "[{m}, {k}, {n}]: {pieces} pieces");
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for transposed in [false, true] {
        threads_change_no_bit(transposed);
    }
}

fn threads_change_no_bit(transposed: bool) {
    let (m, k, n) = (1300, 517, 260);
    let (a, b) = (numbers(m * k, 4), numbers(k * n, 5));
    let b = if transposed {
        Matrix::new(&b, n, k).t()
    } else {
        Matrix::new(&b, k, n)
    };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let mut out = vec![0.0; m * n];
            multiply(&mut out, Matrix::new(&a, m, k), b, Store::Set);
            out
        })
    };
    let one = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == one, "{threads} threads");
    }
    let expected = naive(Matrix::new(&a, m, k), b);
    for (got, want) in one.iter().zip(&expected) {
        assert!((f64::from(*got) - want).abs() < 517.0 * 0.25 * f64::from(f32::EPSILON));
    }
}
