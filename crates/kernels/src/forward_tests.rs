//! The kernel against the reference, on every instruction set.

use super::*;
use crate::common::{Bias, Case, bits, shape};
use crate::{CapOrder, reference};

fn cases() -> Vec<Case> {
    let mut capped = shape(100, 2, 24);
    capped.soft_cap = Some((4.0, CapOrder::BeforeBias));
    let mut both = shape(131, 2, 64);
    both.causal = false;
    let mut padded = Case::random(shape(200, 2, 20), 4).by_key();
    padded.key_valid = Some((0..200).map(|j| j > 90 && j % 7 != 0).collect());
    let mut bad = Case::random(shape(150, 1, 18), 5);
    bad.v[18 * 100] = f32::NAN;
    // Weights, and a factor between two maxima, that are below 2^-126 in f32 but not 0.
    let mut steep = Case::random(shape(300, 1, 16), 6);
    steep.q.fill(0.25);
    for (j, k) in steep.k.iter_mut().enumerate() {
        *k = -((j / 16 % 64) as f32) - if j / 16 < 100 { 30.0 } else { 0.0 };
    }
    let mut jump = steep.clone();
    jump.bias = Bias::None;
    jump.q.fill(0.5);
    jump.k.fill(0.0);
    jump.k[100 * 16..101 * 16].fill(95.0 / 2.0);
    vec![
        steep,
        jump,
        Case::random(shape(1, 1, 1), 1),
        Case::random(shape(7, 3, 33), 1),
        Case::random(shape(300, 2, 64), 2),
        Case::random(capped, 3),
        Case::random(both, 3),
        padded,
        bad,
    ]
}

fn run(isa: Isa, case: &Case) -> (Vec<f32>, Vec<f32>) {
    let s = case.shape;
    let mut out = vec![0.0; s.n_queries * s.n_heads * s.head_width];
    let mut lse = vec![0.0; s.n_queries * s.n_heads];
    let options = AttentionOptions::default();
    attention_on(isa, &case.input(), &options, &mut out, &mut lse, None);
    (out, lse)
}

#[test]
fn every_instruction_set_equals_the_reference() {
    for &isa in Isa::available() {
        for (i, case) in cases().iter().enumerate() {
            let (out, lse) = run(isa, case);
            let (expected, expected_lse) = reference::attention(&case.input());
            let (mut t_out, mut t_lse) = case.tolerances();
            if isa == Isa::Portable {
                // Unfused: two roundings where the bound counts one.
                (t_out, t_lse) = (t_out.times(2.0), t_lse.times(2.0));
            }
            t_out.check(&format!("{isa:?}, case {i}"), &expected, &out);
            t_lse.check(&format!("{isa:?}, case {i}, lse"), &expected_lse, &lse);
        }
    }
}

/// A row meets no other row, so neither the tile nor the number of lanes can change it.
#[cfg(target_arch = "x86_64")]
#[test]
fn vector_width_does_not_change_a_bit() {
    if !Isa::available().contains(&Isa::Avx512) {
        eprintln!("SKIPPED: this processor has no AVX-512 to compare");
        return;
    }
    for (i, case) in cases().iter().enumerate() {
        let (wide, narrow) = (run(Isa::Avx512, case), run(Isa::Avx2, case));
        assert!(bits(&wide.0) == bits(&narrow.0), "case {i}");
        assert!(bits(&wide.1) == bits(&narrow.1), "case {i}, lse");
    }
}
