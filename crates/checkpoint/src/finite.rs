//! Whether stored weights are finite, without widening them.
//!
//! In f32, f16 and bf16 alike a number is NaN or infinite exactly where all bits of its exponent are ones, so the bytes of the map
//! can be compared as they are, at the speed of memory.

use std::ops::Range;

use crate::error::{CheckpointError, quoted};
use crate::pieces::{Part, each_piece};
use crate::safetensors::{Dtype, TensorFile, TensorInfo};

/// What such a value means, and what to do about it.
pub(crate) const ADVICE: &str = "the checkpoint is damaged or was saved from a diverged run: fetch it again, or use an earlier one";

/// Exponents of the formats that are read as weights.
const F32: u32 = 0x7f80_0000;
const F16: u16 = 0x7c00;
const BF16: u16 = 0x7f80;

/// Elements of a tensor, row-major, that some weight is made of.
pub(crate) struct Stored<'t> {
    pub(crate) file: &'t TensorFile,
    pub(crate) tensor: &'t TensorInfo,
    pub(crate) elements: Range<usize>,
}

impl Stored<'_> {
    /// Takes in elements of the same tensor that begin in these or right behind them; `false` where they are others.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        let joins = std::ptr::eq(self.tensor, next.tensor)
            && (self.elements.start..=self.elements.end).contains(&next.elements.start);
        if joins {
            self.elements.end = self.elements.end.max(next.elements.end);
        }
        joins
    }

    fn bytes(&self) -> &[u8] {
        let width = width(self.tensor.dtype);
        let range = self.elements.start * width..self.elements.end * width;
        &self.file.tensor_bytes(self.tensor)[range]
    }
}

fn width(dtype: Dtype) -> usize {
    // the layout admits no other formats than these three
    if dtype == Dtype::F32 { 4 } else { 2 }
}

/// Refuses the first tensor that holds a NaN or an infinity in one of these elements, of which the caller gives an order.
pub(crate) fn check(stored: &[Stored<'_>]) -> Result<(), CheckpointError> {
    let parts: Vec<Part<'_>> = stored
        .iter()
        .map(|s| Part {
            file: Some(s.file),
            bytes: s.bytes(),
        })
        .collect();
    let dtype = |part: usize| stored[part].tensor.dtype;
    let bad = each_piece(&parts, |part, piece| {
        any(dtype(part), piece).then_some(part)
    });
    match bad.into_iter().flatten().next() {
        None => Ok(()),
        Some(part) => Err(refused(&stored[part])),
    }
}

/// Values compared before the first look at the outcome: a loop without an exit is one that the compiler makes vectors of.
const BLOCK: usize = 4096;

/// Whether a value is NaN or infinite.
fn any(dtype: Dtype, bytes: &[u8]) -> bool {
    match dtype {
        Dtype::F32 => bytes.as_chunks().0.chunks(BLOCK).any(|block| {
            let bad = |&b| u32::from(u32::from_le_bytes(b) & F32 == F32);
            block.iter().fold(0, |any, b| any | bad(b)) != 0
        }),
        Dtype::F16 => any_of_16_bits(bytes, F16),
        _ => any_of_16_bits(bytes, BF16),
    }
}

fn any_of_16_bits(bytes: &[u8], exponent: u16) -> bool {
    bytes.as_chunks().0.chunks(BLOCK).any(|block| {
        let bad = |&b| u16::from(u16::from_le_bytes(b) & exponent == exponent);
        block.iter().fold(0, |any, b| any | bad(b)) != 0
    })
}

/// The message about elements of which at least one is not finite.
fn refused(stored: &Stored<'_>) -> CheckpointError {
    let value: fn(&[u8]) -> f32 = match stored.tensor.dtype {
        Dtype::F32 => |b| b.try_into().map_or(f32::NAN, f32::from_le_bytes),
        Dtype::F16 => |b| {
            b.try_into()
                .map_or(f32::NAN, |b| half::f16::from_le_bytes(b).to_f32())
        },
        _ => |b| {
            b.try_into()
                .map_or(f32::NAN, |b| half::bf16::from_le_bytes(b).to_f32())
        },
    };
    let values = stored.bytes().chunks_exact(width(stored.tensor.dtype));
    let mut bad = values
        .map(value)
        .enumerate()
        .filter(|(_, x)| !x.is_finite());
    let (position, first) = bad.next().unwrap_or((0, f32::NAN));
    let count = 1 + bad.count();
    CheckpointError::malformed(format!(
        "tensor {}: {count} of {} values read are not finite, the first at {:?} is {first}; {ADVICE}",
        quoted(&stored.tensor.name),
        stored.elements.len(),
        index(stored.elements.start + position, &stored.tensor.shape),
    ))
    .in_file(stored.file.path())
}

/// Position in a tensor of this shape, from the one in its row-major list.
fn index(flat: usize, shape: &[u64]) -> Vec<u64> {
    let mut rest = flat as u64;
    let mut index = vec![0; shape.len()];
    for (place, &extent) in index.iter_mut().zip(shape).rev() {
        *place = rest % extent.max(1);
        rest /= extent.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code of the 16-bit formats, and every exponent of f32, alone among good values in each place of a block and past it.
    #[test]
    fn exponents_of_all_ones_and_no_others() {
        for code in 0..=u16::MAX {
            let cases = [
                (Dtype::F16, half::f16::from_bits(code).is_finite()),
                (Dtype::Bf16, half::bf16::from_bits(code).is_finite()),
            ];
            for (dtype, finite) in cases {
                assert_eq!(
                    any(dtype, &code.to_le_bytes()),
                    !finite,
                    "{dtype:?} {code:#x}"
                );
            }
            let code = u32::from(code) << 16 | 1;
            let finite = f32::from_bits(code).is_finite();
            assert_eq!(any(Dtype::F32, &code.to_le_bytes()), !finite, "{code:#x}");
        }
        for (dtype, bad) in [
            (Dtype::F32, &f32::NEG_INFINITY.to_le_bytes()[..]),
            (Dtype::F16, &half::f16::NAN.to_le_bytes()[..]),
            (Dtype::Bf16, &half::bf16::INFINITY.to_le_bytes()[..]),
        ] {
            for n in [1, 7, BLOCK, 2 * BLOCK + 3] {
                let good = vec![0x11; n * bad.len()];
                assert!(!any(dtype, &good));
                for place in 0..n {
                    let mut bytes = good.clone();
                    bytes[place * bad.len()..][..bad.len()].copy_from_slice(bad);
                    assert!(any(dtype, &bytes), "{dtype:?} {place} of {n}");
                }
            }
        }
    }

    #[test]
    fn positions_are_those_of_the_shape() {
        assert_eq!(index(23, &[2, 3, 4]), [1, 2, 3]);
        assert_eq!(index(6, &[4, 3]), [2, 0]);
        assert_eq!(index(5, &[9]), [5]);
        assert_eq!(index(0, &[]), [0u64; 0]);
    }
}
