//! What fills a prompt, unit by unit; the fact goes between two units.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::lines::{below, lines};
use super::task::ProbeTask;
use crate::eval::{EvalError, TextCodec};

/// Room, tokens, that may stay empty in any prompt.
const LEFT_MIN: usize = 64;

/// Filler, encoded once for all cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Haystack {
    units: Vec<Vec<u32>>,
    /// All units as text: a key must not occur in it.
    text: String,
    /// Whether it may be used over and over.
    repeats: bool,
}

impl Haystack {
    /// The filler that a task brings: its sentences, to be repeated, or lines that `seed` draws, `tokens` of them or more.
    ///
    /// # Errors
    /// A task that brings none, and what the tokenizer reports.
    pub fn of_task(
        codec: &dyn TextCodec,
        task: &ProbeTask,
        tokens: usize,
        seed: u64,
    ) -> Result<Self, EvalError> {
        if let Some(template) = &task.line {
            let (mut units, mut drawn) = (Vec::new(), 0);
            for line in lines(template, task.digits, seed) {
                // one unit beyond the need, so that the end is never met
                if drawn > tokens {
                    break;
                }
                let unit = codec.encode(&line).map_err(EvalError::Input)?;
                if unit.is_empty() {
                    return Err(EvalError::Input(
                        "the tokenizer has no tokens for a line".into(),
                    ));
                }
                drawn += unit.len();
                units.push(unit);
            }
            return Ok(Self {
                units,
                // numbers of lines are even and the one asked for is odd: the text need not be searched, and a key does not
                // depend on how many lines were drawn
                text: String::new(),
                repeats: false,
            });
        }
        if task.filler.is_empty() {
            return Err(EvalError::Input(format!(
                "task {} needs a text to hide its fact in",
                task.task
            )));
        }
        Self::new(codec, task.filler.iter().map(String::as_str), true)
    }

    /// The sentences of a text, used once.
    ///
    /// # Errors
    /// A text without sentences, and what the tokenizer reports.
    pub fn of_text(codec: &dyn TextCodec, text: &str) -> Result<Self, EvalError> {
        Self::new(codec, sentences(text), false)
    }

    /// The same units in the order that `seed` draws, every order alike.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for last in (1..self.units.len()).rev() {
            self.units.swap(last, below(&mut random, last + 1));
        }
        self
    }

    fn new<'a>(
        codec: &dyn TextCodec,
        texts: impl IntoIterator<Item = &'a str>,
        repeats: bool,
    ) -> Result<Self, EvalError> {
        let mut all = String::new();
        let mut units = Vec::new();
        for text in texts {
            let unit = codec.encode(text).map_err(EvalError::Input)?;
            all.push_str(text);
            if !unit.is_empty() {
                units.push(unit);
            }
        }
        if units.is_empty() {
            return Err(EvalError::Input("the haystack is empty".into()));
        }
        Ok(Self {
            units,
            text: all,
            repeats,
        })
    }

    /// Whether a value occurs in it.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.text.contains(key)
    }

    /// As many units as fit into `budget` tokens.
    ///
    /// # Errors
    /// A text that may not be repeated and is too short, or whose next sentence is far too long for what is left.
    pub(super) fn fill(&self, budget: usize) -> Result<Vec<&[u32]>, EvalError> {
        let mut used = 0;
        let mut units = Vec::new();
        for unit in self.units.iter().cycle() {
            if used + unit.len() > budget {
                // A prompt far below the length that was asked for would be reported as one of that length.
                let left = budget - used;
                if left > LEFT_MIN && left > budget / 4 {
                    return Err(EvalError::Input(format!(
                        "the next sentence of the text has {} tokens and {left} of {budget} are left to fill: nothing is ever cut, so \
                         give a text with shorter sentences (they end at . ! ? before white space, at \u{3002} \u{ff01} \u{ff1f}, and at blank lines)",
                        unit.len()
                    )));
                }
                return Ok(units);
            }
            if !self.repeats && units.len() == self.units.len() {
                break;
            }
            used += unit.len();
            units.push(unit.as_slice());
        }
        Err(EvalError::Input(format!(
            "the text holds {used} tokens and this length has room for {budget}; give a longer text or smaller lengths"
        )))
    }
}

/// Cuts a text into sentences: after `.`, `!` or `?`, with quotes and brackets that close behind it, where white space follows; after
/// their full-width forms, whatever follows; and at blank lines. Each keeps the white space before it, so that together they are the text.
fn sentences(text: &str) -> Vec<&str> {
    let text = text.trim_end();
    let mut cuts = Vec::new();
    let mut ended = false;
    let mut full_width = false;
    let mut breaks = 0;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            breaks = if c == '\n' { breaks + 1 } else { breaks };
            if ended {
                cuts.push(at);
            }
            ended = false;
        } else {
            if full_width {
                cuts.push(at);
            }
            // the white space of a blank line begins the next paragraph's first sentence
            if breaks > 1 {
                let before = text[..at].trim_end().len();
                if cuts.last().is_none_or(|&last| last < before) {
                    cuts.push(before);
                }
            }
            breaks = 0;
            let closes = matches!(c, '"' | '\'' | ')' | ']' | '\u{201d}' | '\u{2019}');
            ended = matches!(c, '.' | '!' | '?') || (ended && closes);
        }
        full_width = matches!(c, '\u{3002}' | '\u{ff01}' | '\u{ff1f}');
        if full_width {
            ended = true;
        }
    }
    cuts.retain(|&cut| cut > 0);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(text.len()));
    let parts = starts.zip(ends).map(|(start, end)| &text[start..end]);
    parts.filter(|part| !part.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_marks_before_white_space_and_at_blank_lines() {
        let text =
            "One. Two, 3.5 of it! \u{201c}Three?\u{201d} he said.\n\nA heading\n\nFour\nlines.";
        let expected = [
            "One.",
            " Two, 3.5 of it!",
            " \u{201c}Three?\u{201d}",
            " he said.",
            "\n\nA heading",
            "\n\nFour\nlines.",
        ];
        assert_eq!(sentences(text), expected);
        assert_eq!(
            sentences("\u{4eca}\u{3002}\u{5929}\u{ff1f} \u{6c14}\u{3002}"),
            ["\u{4eca}\u{3002}", "\u{5929}\u{ff1f}", " \u{6c14}\u{3002}"]
        );
        assert!(sentences(" \n ").is_empty());
    }

    #[test]
    fn shuffling_keeps_every_unit_and_follows_the_seed() {
        struct Bytes;
        impl TextCodec for Bytes {
            fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
                Ok(text.bytes().map(u32::from).collect())
            }
            fn decode(&self, _: &[u32]) -> Result<String, String> {
                Err("not needed".into())
            }
        }
        let text: String = (0..40).map(|n| format!("Sentence {n}. ")).collect();
        let plain = Haystack::of_text(&Bytes, &text).unwrap();
        let shuffled = |seed| plain.clone().shuffled(seed).units;
        assert_eq!(shuffled(3), shuffled(3));
        assert_ne!(shuffled(3), shuffled(4));
        let sorted = |mut units: Vec<Vec<u32>>| {
            units.sort();
            units
        };
        assert_ne!(shuffled(3), plain.units);
        assert_eq!(sorted(shuffled(3)), sorted(plain.units.clone()));
    }

    /// Every string of up to six of the characters that matter.
    #[test]
    fn sentences_are_the_text() {
        let alphabet = ['a', '.', '"', ' ', '\n', '\u{3002}'];
        for n in 0..=6 {
            for code in 0..alphabet.len().pow(n) {
                let digit = |place| code / alphabet.len().pow(place) % alphabet.len();
                let text: String = (0..n).map(|place| alphabet[digit(place)]).collect();
                assert_eq!(sentences(&text).concat(), text.trim_end(), "{text:?}");
            }
        }
    }
}
