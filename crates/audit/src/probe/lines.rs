//! Made-up names and numbers for lists: lines that fill a prompt, and the name that is asked for.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Names of lines begin with these.
const FIRST_OF_LINES: &[u8] = b"bdfgklmn";
/// Names that are asked for begin with these, so that none of them is in a line.
const FIRST_OF_NEEDLES: &[u8] = b"prstvz";
const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
const VOWELS: &[u8] = b"aeiou";

/// Lines without end, a function of the seed: `template` with a name and an even number of `digits` digits.
pub(super) fn lines(template: &str, digits: u32, seed: u64) -> impl Iterator<Item = String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || {
        let name = name(&mut random, FIRST_OF_LINES);
        let number = number(&mut random, digits) & !1;
        template
            .replace("{name}", &name)
            .replace("{key}", &number.to_string())
    })
}

/// A name that no line has.
pub(super) fn needle_name(random: &mut ChaCha8Rng) -> String {
    name(random, FIRST_OF_NEEDLES)
}

/// A number of exactly `digits` digits, uniform: 64 bits over at most 9e8 values have a bias of 5e-11, far below what any number of
/// samples can show.
pub(super) fn number(random: &mut ChaCha8Rng, digits: u32) -> u64 {
    let low = 10u64.pow(digits - 1);
    low + random.next_u64() % (9 * low)
}

/// Four syllables: 30 million names and more.
fn name(random: &mut ChaCha8Rng, first: &[u8]) -> String {
    spell(random, first, 4)
}

/// A made-up word that can be asked for.
pub(super) fn word(random: &mut ChaCha8Rng, syllables: u32) -> String {
    spell(random, CONSONANTS, syllables)
}

fn spell(random: &mut ChaCha8Rng, first: &[u8], syllables: u32) -> String {
    let mut pick = |from: &[u8]| char::from(from[(random.next_u64() % from.len() as u64) as usize]);
    let mut name = String::with_capacity(8);
    for syllable in 0..syllables {
        name.push(pick(if syllable == 0 { first } else { CONSONANTS }));
        name.push(pick(VOWELS));
    }
    name
}

/// A whole number below `n`. The bias of the remainder is `n / 2^64`.
pub(super) fn below(random: &mut ChaCha8Rng, n: usize) -> usize {
    (random.next_u64() % n.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_neither_the_name_nor_the_number_that_is_asked_for() {
        let all: Vec<String> = lines("{name}: {key}", 5, 3).take(2000).collect();
        assert_eq!(
            all,
            lines("{name}: {key}", 5, 3).take(2000).collect::<Vec<_>>()
        );
        for line in &all {
            let (name, number) = line.split_once(": ").unwrap();
            assert_eq!((name.len(), number.len()), (8, 5));
            assert!(FIRST_OF_LINES.contains(&name.as_bytes()[0]));
            assert_eq!(number.parse::<u64>().unwrap() % 2, 0);
        }
        let mut random = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..100 {
            assert!(FIRST_OF_NEEDLES.contains(&needle_name(&mut random).as_bytes()[0]));
        }
    }
}
