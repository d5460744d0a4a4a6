//! The values that facts hold, and whether an answer has them.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use serde::Deserialize;

use super::lines::{number, word};

/// What is to be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueKind {
    /// A number without a leading zero.
    #[default]
    Number,
    /// A made-up word of lower-case ASCII letters, two a syllable.
    Word,
    /// 32 hexadecimal digits in five groups of 8, 4, 4, 4 and 12.
    Uuid,
}

impl ValueKind {
    /// A value of `size` digits or syllables; a UUID has one size.
    pub(super) fn draw(self, random: &mut ChaCha8Rng, size: u32) -> String {
        match self {
            Self::Number => number(random, size).to_string(),
            Self::Word => word(random, size),
            Self::Uuid => {
                let (high, low) = (random.next_u64(), random.next_u64());
                let (high, low) = (format!("{high:016x}"), format!("{low:016x}"));
                let groups = [&high[..8], &high[8..12], &high[12..], &low[..4], &low[4..]];
                groups.join("-")
            }
        }
    }

    /// Whether a character can be part of a value.
    fn holds(self, c: char) -> bool {
        match self {
            Self::Number => c.is_ascii_digit(),
            Self::Word => c.is_alphabetic(),
            Self::Uuid => c.is_ascii_hexdigit() || c == '-',
        }
    }

    /// The values of an answer, in order: its unbroken runs of characters that a value can have. Prose is full of letters that are
    /// hexadecimal digits, so a run counts as a UUID only with a hyphen after its first character.
    pub fn all_in(self, answer: &str) -> impl Iterator<Item = &str> {
        let runs = answer.split(move |c: char| !self.holds(c));
        runs.filter(move |run| match self {
            Self::Uuid => run.trim_start_matches('-').contains('-'),
            _ => !run.is_empty(),
        })
    }

    /// Whether `answer` holds `n` values and something after the last, so that more text changes none of them.
    pub(super) fn complete(self, answer: &str, n: usize) -> bool {
        self.all_in(answer).count() >= n && {
            let last = self.all_in(answer).nth(n - 1);
            last.is_some_and(|last| !answer.ends_with(last)) || self.all_in(answer).count() > n
        }
    }
}

/// The first integer of an answer: its first unbroken run of ASCII digits, whole. `482135` and `9482130` do not contain the key
/// 48213, and neither `4 8 2 1 3` nor `48,213` is one number here.
#[must_use]
pub fn first_integer(answer: &str) -> Option<&str> {
    ValueKind::Number.all_in(answer).next()
}

/// How many of the values that were asked for are right: the first as many values of the answer are compared with them, digit for
/// digit and letter for letter, in their order, or in any where `any_order` says so.
#[must_use]
pub fn right_values(kind: ValueKind, answer: &str, asked: &[String], any_order: bool) -> usize {
    let mut said: Vec<&str> = kind.all_in(answer).take(asked.len()).collect();
    if !any_order {
        return said.iter().zip(asked).filter(|(a, b)| a == b).count();
    }
    said.sort_unstable();
    said.dedup();
    let is_asked = |value: &&&str| asked.iter().any(|one| one == **value);
    said.iter().filter(is_asked).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn answers_are_matched_on_digit_boundaries() {
        for (answer, right) in [
            ("48213", true),
            (" 48213.", true),
            ("The pass key is 48213. Remember", true),
            ("x48213", true),
            ("482135", false),
            ("9482130", false),
            ("4 8 2 1 3", false),
            ("48,213", false),
            ("7 48213", false),
            ("", false),
            ("none", false),
        ] {
            assert_eq!(first_integer(answer) == Some("48213"), right, "{answer:?}");
            let asked = ["48213".to_owned()];
            let n = right_values(ValueKind::Number, answer, &asked, false);
            assert_eq!(n == 1, right, "{answer:?}");
        }
    }

    #[test]
    fn words_and_uuids_are_matched_whole() {
        let words = |answer: &str| {
            right_values(ValueKind::Word, answer, &["pasevi".to_owned()], false) == 1
        };
        assert!(words(" pasevi.") && words(" pasevi\u{3002}") && words("pasevi"));
        assert!(!words("pasevino") && !words("a pasevi") && !words("pasevi\u{e9}") && !words(""));
        let key = "0badcafe-12ab-34cd-56ef-0123456789ab";
        let uuid = |answer: &str| right_values(ValueKind::Uuid, answer, &[key.to_owned()], false);
        for right in [
            format!(" {key}."),
            format!("a code, faced by {key}"),
            key.to_owned(),
        ] {
            assert_eq!(uuid(&right), 1, "{right}");
        }
        for wrong in [
            format!("{key}0"),
            format!("f{key}"),
            key.replace('-', ""),
            key.to_uppercase(),
        ] {
            assert_eq!(uuid(&wrong), 0, "{wrong}");
        }
    }

    #[test]
    fn several_values_count_one_by_one() {
        let asked = ["11".to_owned(), "22".to_owned(), "33".to_owned()];
        let right = |answer: &str, any| right_values(ValueKind::Number, answer, &asked, any);
        assert_eq!(
            (right("11, 22, 33", false), right("11, 22, 33", true)),
            (3, 3)
        );
        assert_eq!(
            (right("33, 22 and 11", false), right("33, 22 and 11", true)),
            (1, 3)
        );
        // saying one value over and over finds one, and what comes after as many values is not read
        assert_eq!((right("11 11 11", true), right("11 11 11", false)), (1, 1));
        assert_eq!(right("9 9 9 11 22 33", true), 0);
    }

    #[test]
    fn an_answer_is_complete_once_more_text_cannot_change_it() {
        let number = ValueKind::Number;
        for (answer, n, complete) in [
            ("48", 1, false),
            ("48.", 1, true),
            ("", 1, false),
            ("1, 2", 2, false),
            ("1, 2.", 2, true),
            ("1, 1", 2, false),
            ("1, 2, 3", 2, true),
        ] {
            assert_eq!(number.complete(answer, n), complete, "{answer:?}");
        }
    }

    #[test]
    fn values_have_the_form_of_their_kind() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..50 {
            let uuid = ValueKind::Uuid.draw(&mut random, 0);
            let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12]);
            assert_eq!(ValueKind::Uuid.all_in(&uuid).next(), Some(uuid.as_str()));
            let word = ValueKind::Word.draw(&mut random, 3);
            assert_eq!((word.len(), ValueKind::Word.all_in(&word).count()), (6, 1));
            assert_eq!(ValueKind::Number.draw(&mut random, 4).len(), 4);
        }
    }
}
