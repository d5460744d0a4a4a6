//! Factors and norms against plain arithmetic.

use super::*;

fn random(seed: &mut u64) -> f64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn random_matrix(n_rows: usize, n_cols: usize, seed: &mut u64) -> Matrix {
    let mut matrix = Matrix::zeros(n_rows, n_cols);
    for row in 0..n_rows {
        matrix
            .row_mut(row)
            .iter_mut()
            .for_each(|x| *x = random(seed));
    }
    matrix
}

/// |A^T B y| for A, B given transposed: the ladder's lower rung, whatever vector it is fed.
fn power_lower_bound(at: &Matrix, bt: &Matrix, seed: &mut u64) -> f64 {
    let mut y: Vec<f64> = (0..bt.n_rows).map(|_| random(seed)).collect();
    let mut sigma = 0.0;
    for _ in 0..3000 {
        let length = dot(&y, &y).sqrt();
        y.iter_mut().for_each(|v| *v /= length);
        let inner = bt.transposed().times(&y); // B y, [d]
        let x = at.times(&inner); // A^T B y, [n]
        sigma = dot(&x, &x).sqrt();
        let back = at.transposed().times(&x);
        y = bt.times(&back);
    }
    sigma
}

#[test]
fn products_equal_the_definition_for_every_shape() {
    let mut seed = 1;
    for (k, m, n) in [
        (1, 1, 1),
        (3, 5, 9),
        (65, 12, 8),
        (130, 7, 17),
        (64, 64, 64),
    ] {
        let a = random_matrix(k, m, &mut seed);
        let b = random_matrix(k, n, &mut seed);
        let c = product_transposed(&a, &b);
        let g = gram(&a);
        for i in 0..m {
            for j in 0..n {
                let mut sum = 0.0;
                (0..k).for_each(|r| sum += a.row(r)[i] * b.row(r)[j]);
                assert_eq!(
                    c.row(i)[j].to_bits(),
                    f64::to_bits(sum),
                    "{k} {m} {n}: {i} {j}"
                );
            }
            for j in 0..m {
                let mut sum = 0.0;
                (0..k).for_each(|r| sum += a.row(r)[i.min(j)] * a.row(r)[i.max(j)]);
                assert_eq!(
                    g.row(i)[j].to_bits(),
                    f64::to_bits(sum),
                    "gram {k} {m}: {i} {j}"
                );
            }
        }
    }
}

#[test]
fn cholesky_gives_the_matrix_back_and_refuses_an_indefinite_one() {
    let mut seed = 2;
    let a = random_matrix(40, 13, &mut seed);
    let g = gram(&a);
    let r = cholesky(g.clone()).unwrap();
    let back = gram(&r);
    let bound = gamma(2 * 14) * g.trace();
    for i in 0..13 {
        for j in 0..13 {
            assert!((back.row(i)[j] - g.row(i)[j]).abs() <= bound);
        }
    }
    assert!(cholesky(g.clone().shifted(-g.trace())).is_none());
    assert!(cholesky(Matrix::zeros(3, 3)).is_none());
}

#[test]
fn largest_singular_value_is_above_and_close() {
    let mut seed = 3;
    for (d, n) in [(1, 3), (2, 2), (8, 64), (64, 96), (24, 8), (80, 200)] {
        let at = random_matrix(n, d, &mut seed);
        let bt = random_matrix(n, d, &mut seed);
        let upper = largest_singular_value_upper(&GramBound::new(&at), &GramBound::new(&bt));
        let lower = power_lower_bound(&at, &bt, &mut seed);
        assert!(lower <= upper, "{d} {n}: {lower} > {upper}");
        // 1e-6 is the first excess tried; the square root halves it, near-ties of the top two cost the rest.
        assert!(upper <= lower * (1.0 + 2e-4), "{d} {n}: {lower} {upper}");
    }
}

#[test]
fn largest_eigenvalue_of_known_matrices() {
    // diag(1..=10) has 10; all ones has d; the zero matrix 0; a multiple of the identity is its own bound.
    let cases = [
        (
            Matrix::from_fn(10, 10, |i, j| if i == j { i as f64 + 1.0 } else { 0.0 }),
            10.0,
        ),
        (Matrix::from_fn(9, 9, |_, _| 1.0), 9.0),
        (
            Matrix::from_fn(5, 5, |i, j| if i == j { 3.5 } else { 0.0 }),
            3.5,
        ),
        (Matrix::zeros(4, 4), 0.0),
    ];
    for (m, expected) in cases {
        let found = largest_eigenvalue_upper(&m);
        assert!(
            found >= expected && found <= expected * (1.0 + 1e-5),
            "{found} {expected}"
        );
    }
}

#[test]
fn degenerate_weights_are_bounded_too() {
    // Rank one, zero, and disjoint row spaces: the last has sigma 0, and the bound is at the rounding level.
    let zero = GramBound::new(&Matrix::zeros(16, 4));
    let one = GramBound::new(&Matrix::from_fn(16, 4, |i, _| i as f64));
    assert_eq!(largest_singular_value_upper(&zero, &one), 0.0);
    let exact = 4.0 * (0..16).map(|i| f64::from(i * i)).sum::<f64>();
    let found = largest_singular_value_upper(&one, &one);
    assert!(
        found >= exact && found <= exact * 1.00001,
        "{found} {exact}"
    );
    // Queries in channels 0 and 1, keys in 2 and 3: nothing meets.
    let left = GramBound::new(&Matrix::from_fn(16, 4, |i, j| {
        if j < 2 { (i + j) as f64 } else { 0.0 }
    }));
    let right = GramBound::new(&Matrix::from_fn(16, 4, |i, j| {
        if j < 2 { 0.0 } else { (i + j) as f64 }
    }));
    let size = (left.trace * right.trace).sqrt();
    assert!(largest_singular_value_upper(&left, &right) <= 1e-6 * size);
    let huge = GramBound::new(&Matrix::from_fn(4, 2, |_, _| 1e300));
    assert_eq!(
        largest_singular_value_upper(&huge, &one_of(2)),
        f64::INFINITY
    );
}

fn one_of(d: usize) -> GramBound {
    GramBound::new(&Matrix::from_fn(4, d, |_, _| 1.0))
}

#[test]
fn seminorm_is_the_norm_of_the_product() {
    let mut seed = 5;
    let wt = random_matrix(50, 6, &mut seed);
    let x: Vec<f64> = (0..6).map(|_| random(&mut seed)).collect();
    let direct = norm(&wt.times(&x));
    let bound = GramBound::new(&wt).seminorm(&x, 0.0);
    assert!(
        direct <= bound * (1.0 + 1e-15) && bound <= direct * (1.0 + 1e-12),
        "{direct} {bound}"
    );
}
