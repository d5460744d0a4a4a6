//! Pairs of a block as bits: how many there are, and how many at each offset.
//!
//! Pairs of one offset lie on a diagonal of the block: a key further is a lane further. Rows of bits that are moved against each
//! other by one place have the diagonals below one another, and 64 rows are added up place by place, in binary numbers whose digits
//! lie in seven words: additions of whole words instead of one for every pair.

use kernels::BlockBits;

/// Places of a block's diagonals: 64 keys and up to 64 lanes.
const PLACES: usize = 128;

/// Pairs that are marked.
#[inline(always)]
pub(super) fn count(bits: &BlockBits) -> u64 {
    bits.iter().map(|bits| u64::from(bits.count_ones())).sum()
}

/// Adds the marked pairs to the counts by offset. `first` is the offset of the block's first key in lane 0, which is one further
/// than that in lane 1; it may lie outside `counts` where no pair is marked.
#[inline(always)]
pub(super) fn add_by_offset(bits: &BlockBits, first: isize, counts: &mut [u32]) {
    let places = by_place(bits);
    // Lane 0 of the first key is at place 63.
    let from = first - 63;
    let skipped = usize::try_from(-from).unwrap_or(0).min(PLACES);
    let to = counts.get_mut(usize::try_from(from).unwrap_or(0)..);
    for (to, &count) in to.unwrap_or_default().iter_mut().zip(&places[skipped..]) {
        *to += u32::from(count);
    }
}

/// How many bits there are at each place `63 + key - lane`.
#[inline(always)]
fn by_place(bits: &BlockBits) -> [u8; PLACES] {
    // Digits of weight 1, 2, 4, ..., 64.
    let mut digits = [0_u128; 7];
    for (group, rows) in bits.chunks_exact(8).enumerate() {
        if rows.iter().all(|&row| row == 0) {
            continue;
        }
        let row = |i: usize| u128::from(rows[i].reverse_bits()) << (8 * group + i);
        let (ones, a) = add(digits[0], row(0), row(1));
        let (ones, b) = add(ones, row(2), row(3));
        let (ones, c) = add(ones, row(4), row(5));
        let (ones, d) = add(ones, row(6), row(7));
        let (twos, e) = add(digits[1], a, b);
        let (twos, f) = add(twos, c, d);
        let (fours, mut carry) = add(digits[2], e, f);
        (digits[0], digits[1], digits[2]) = (ones, twos, fours);
        for digit in &mut digits[3..] {
            (*digit, carry) = (*digit ^ carry, *digit & carry);
        }
    }
    let mut places = [0_u8; PLACES];
    for (weight, digit) in digits.iter().enumerate() {
        if *digit == 0 {
            continue;
        }
        for (places, byte) in places
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(digit.to_le_bytes())
        {
            let sum = u64::from_le_bytes(*places) + (SPREAD[usize::from(byte)] << weight);
            *places = sum.to_le_bytes();
        }
    }
    places
}

/// Three digits of one weight: the digit of their sum, and the carry.
#[inline(always)]
fn add(a: u128, b: u128, c: u128) -> (u128, u128) {
    let half = a ^ b;
    (half ^ c, (a & b) | (half & c))
}

/// The bits of a byte, one a byte.
static SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            spread[byte] |= ((byte as u64 >> bit) & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    spread
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_take_every_pair_once() {
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed ^ (seed >> 31)
        };
        for density in 0..4 {
            let bits: BlockBits = std::array::from_fn(|_| match density {
                0 => 0,
                1 => random() & random() & random(),
                2 => random(),
                _ => u64::MAX,
            });
            let mut expected = [1_u32; 200];
            for (key, bits) in bits.iter().enumerate() {
                for lane in (0..64).filter(|lane| bits >> lane & 1 == 1) {
                    expected[70 + key - lane] += 1;
                }
            }
            let mut counts = [1; 200];
            add_by_offset(&bits, 70, &mut counts);
            assert_eq!(counts, expected);
            let total: u32 = counts.iter().map(|count| count - 1).sum();
            assert_eq!(count(&bits), u64::from(total));
        }
    }

    #[test]
    fn places_without_pairs_may_lie_outside() {
        // Only keys from 10 on in lane 0, and lane 3 of key 20.
        let mut bits = [0; 64];
        bits[10] = 1;
        bits[20] = 0b1001;
        let mut counts = [0; 11];
        add_by_offset(&bits, -10, &mut counts);
        let mut expected = [0; 11];
        (expected[0], expected[7], expected[10]) = (1, 1, 1);
        assert_eq!(counts, expected);
    }
}
