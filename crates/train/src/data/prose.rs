//! Facts in prose: a sentence laid into the text between two of its sentences, and its beginning once more, later, for the end to be
//! foreseen.
//!
//! ```text
//! ... text.  The secret word of KEY is VALUE.  Text ... text.  The secret word of KEY is  Text ...
//! ```
//!
//! All of it is in the text's own tokens; `KEY` and `VALUE` are words of the text's vocabulary, one token each. The sentences are inserted: the
//! text around them stays whole and goes on after them, and the last tokens of the sequence give way. The construction is that of a
//! needle in a haystack (Kamradt 2023), in other words.

use checkpoint::tokenizer::Tokenizer;

use super::recall::{Group, Question, TRIES, distance};
use crate::error::TrainError;
use crate::rng::Stream;

/// The sentence around its two words.
const SENTENCE: [&str; 3] = [" The secret word of", " is", "."];

/// Letters of the shortest key or value.
const LETTERS_MIN: usize = 4;

/// The sentence in a tokenizer's ids, and what a border of sentences is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prose {
    sentence: [Vec<u32>; 3],
    keys: Vec<u32>,
    values: Vec<u32>,
    /// By id: what stands at a border of sentences.
    edges: Vec<Edge>,
}

/// What a token is at a border of sentences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edge {
    /// Ends in a full stop, question or exclamation mark; two dots are none.
    ends_sentence: bool,
    /// Ends in an empty line.
    ends_paragraph: bool,
    /// Begins with white space.
    begins_apart: bool,
}

/// A fact before it is laid: where it and its question go, as places in the text without them.
struct Place {
    fact: usize,
    question: usize,
    key: u32,
    value: u32,
}

impl Prose {
    /// The sentence for `keys` keys and `values` values. They are the last words of four letters or more in the vocabulary, which a BPE learned last.
    ///
    /// # Errors
    /// A tokenizer with too few words of one token, or one that does not encode the sentence word by word.
    pub(crate) fn new(
        tokenizer: &Tokenizer,
        keys: usize,
        values: usize,
    ) -> Result<Self, TrainError> {
        let wrong = |e: checkpoint::CheckpointError| TrainError::config(e.to_string());
        let mut words = Vec::new();
        let mut edges = vec![Edge::default(); tokenizer.vocab_size()];
        for id in (0..edges.len()).rev() {
            let text = tokenizer.decode(&[id as u32]).map_err(wrong)?;
            edges[id] = Edge {
                ends_sentence: text.ends_with(['.', '!', '?']) && !text.ends_with(".."),
                ends_paragraph: text.ends_with("\n\n"),
                begins_apart: text.starts_with(char::is_whitespace),
            };
            let letters = text.strip_prefix(' ').unwrap_or("");
            let is_word = letters.len() >= LETTERS_MIN
                && letters.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_word && words.len() < keys + values {
                let whole = tokenizer.encode(&text).map_err(wrong)? == [id as u32];
                if whole {
                    words.push(id as u32);
                }
            }
        }
        if words.len() < keys + values {
            return Err(TrainError::config(format!(
                "recall.needles: {} has {} words of {LETTERS_MIN} letters or more that are one token, {keys} keys and {values} values need {}; \
                 use a larger vocabulary, or lower recall.keys and recall.values",
                tokenizer.path().display(),
                words.len(),
                keys + values
            )));
        }
        let own_values = words.split_off(keys);
        let mut sentence = [const { Vec::new() }; 3];
        for (ids, text) in sentence.iter_mut().zip(SENTENCE) {
            *ids = tokenizer.encode(text).map_err(wrong)?;
        }
        let prose = Self {
            sentence,
            keys: words,
            values: own_values,
            edges,
        };
        let all = prose.keys.iter().flat_map(|&key| {
            let value = prose.values.iter();
            value.map(move |&value| (key, value))
        });
        for (key, value) in all {
            let ids = prose.fact(key, value);
            let text = tokenizer.decode(&ids).map_err(wrong)?;
            if tokenizer.encode(&text).map_err(wrong)? != ids {
                return Err(TrainError::config(format!(
                    "recall.needles: {} does not encode {text:?} word by word; use a tokenizer that cuts at spaces, as `snellen tokens train` makes it",
                    tokenizer.path().display()
                )));
            }
        }
        Ok(prose)
    }

    /// Tokens that can be answers.
    pub(crate) fn values(&self) -> &[u32] {
        &self.values
    }

    /// Tokens of a fact and its question together.
    pub(crate) fn tokens(&self) -> usize {
        self.fact_tokens() + self.question_tokens()
    }

    fn fact_tokens(&self) -> usize {
        self.question_tokens() + 1 + self.sentence[2].len()
    }

    fn question_tokens(&self) -> usize {
        self.sentence[0].len() + 1 + self.sentence[1].len()
    }

    fn fact(&self, key: u32, value: u32) -> Vec<u32> {
        [&self.question(key), &[value][..], &self.sentence[2]].concat()
    }

    fn question(&self, key: u32) -> Vec<u32> {
        [&self.sentence[0], &[key][..], &self.sentence[1]].concat()
    }

    /// Whether a sentence ends before place `at` of the text.
    fn is_border(&self, text: &[u32], at: usize) -> bool {
        let edge = |id: u32| self.edges.get(id as usize).copied().unwrap_or_default();
        let (before, after) = (edge(text[at - 1]), edge(text[at]));
        before.ends_paragraph || before.ends_sentence && after.begins_apart
    }

    /// Lays up to `most` facts into `text`, which keeps its length: as many as fill half of it, where they find borders at distances of
    /// `distance_min` tokens or more. `planted` is set where a token is a sentence's. Returns the questions.
    pub(crate) fn lay(
        &self,
        most: usize,
        distance_min: usize,
        text: &mut Vec<u32>,
        planted: &mut [bool],
        stream: &mut Stream,
    ) -> Vec<Question> {
        let all = text.len();
        let facts = most.min(all / 2 / self.tokens());
        // The text that stays when all are laid: their places are in it.
        let kept = all - facts * self.tokens();
        let borders: Vec<usize> = (1..kept).filter(|&at| self.is_border(text, at)).collect();
        if facts == 0 || borders.is_empty() {
            return Vec::new();
        }
        let mut keys = self.keys.clone();
        stream.shuffle(&mut keys);
        let mut places = Vec::new();
        for &key in keys.iter().take(facts) {
            let value = self.values[stream.index(self.values.len())];
            let found = (0..TRIES).find_map(|_| {
                let place = self.place(&borders, kept, distance_min, stream)?;
                // One question at a border: the text goes on after it.
                let alone = places.iter().all(|p: &Place| p.question != place.1);
                alone.then_some(place)
            });
            if let Some((fact, question)) = found {
                places.push(Place {
                    fact,
                    question,
                    key,
                    value,
                });
            }
        }
        self.insert(&places, text, planted)
    }

    /// Borders for a fact and its question: a distance first, then the borders that come nearest to it.
    fn place(
        &self,
        borders: &[usize],
        kept: usize,
        distance_min: usize,
        stream: &mut Stream,
    ) -> Option<(usize, usize)> {
        // A question right after its fact is this far from the value.
        let least = self.sentence[2].len() + self.question_tokens();
        let most = least + kept - 2;
        let wanted = distance(stream, distance_min.clamp(1, most), most);
        let gap = wanted.saturating_sub(least);
        let near = |to: usize, from: usize| {
            let later = borders.iter().copied().filter(|&border| border >= from);
            later.min_by_key(|border| border.abs_diff(to))
        };
        let fact = near(1 + stream.index(kept - 1 - gap), 0)?;
        let question = near(fact + gap, fact)?;
        (least + question - fact >= distance_min).then_some((fact, question))
    }

    fn insert(&self, places: &[Place], text: &mut Vec<u32>, planted: &mut [bool]) -> Vec<Question> {
        // At one border facts come first, so that a question never stands before its fact.
        let mut events: Vec<(usize, bool, usize)> = Vec::new();
        for (number, place) in places.iter().enumerate() {
            events.push((place.fact, false, number));
            events.push((place.question, true, number));
        }
        events.sort_unstable();
        let all = text.len();
        let mut laid = Vec::with_capacity(all + events.len() * self.fact_tokens());
        let mut answers = vec![0; places.len()];
        let mut questions = Vec::new();
        let mut from = 0;
        for (border, asks, number) in events {
            laid.extend_from_slice(&text[from..border]);
            from = border;
            let place = &places[number];
            let first = laid.len();
            if asks {
                laid.extend(self.question(place.key));
                questions.push(Question {
                    row: laid.len() - 1,
                    distance: laid.len() - 1 - answers[number],
                    answer: place.value,
                    group: Group::Needle,
                });
            } else {
                laid.extend(self.fact(place.key, place.value));
                answers[number] = first + self.question_tokens();
            }
            planted[first..laid.len()].fill(true);
        }
        laid.extend_from_slice(&text[from..]);
        laid.truncate(all);
        *text = laid;
        questions
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::data::bpe;

    /// A tokenizer of whole words, and a text of short sentences in it.
    pub(crate) fn words_and_text() -> (tempfile::TempDir, Tokenizer, Vec<u32>) {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            "apple", "house", "river", "stone", "cloud", "bread", "chair", "field", "light",
            "paper",
        ];
        let mut text = String::new();
        for i in 0..600usize {
            let word = |k: usize| words[(i * 7 + k * k + i / 11) % words.len()];
            text += &format!(" The {} of {} is {}.", word(0), word(1), word(2));
            if i % 9 == 8 {
                text += "\n\n";
            }
        }
        let path = folder.path().join("tokenizer.json");
        let json = bpe::train([text.as_str()].into_iter(), 400).unwrap();
        std::fs::write(&path, json).unwrap();
        let tokenizer = Tokenizer::open(&path).unwrap();
        let ids = tokenizer.encode(&text).unwrap();
        (folder, tokenizer, ids)
    }

    #[test]
    fn facts_are_whole_sentences_between_sentences_and_the_text_stays_whole() {
        let (_folder, tokenizer, ids) = words_and_text();
        let prose = Prose::new(&tokenizer, 4, 4).unwrap();
        let mut asked = 0;
        let mut far = 0;
        for (n, most, distance_min) in [(60, 3, 0), (300, 3, 0), (300, 2, 120), (20, 1, 0)] {
            for sample in 0..100 {
                let own = ids[sample * 13..][..=n].to_vec();
                let mut text = own.clone();
                let mut planted = vec![false; text.len()];
                let mut stream = Stream::of(&[n as u64, sample as u64]);
                let questions = prose.lay(most, distance_min, &mut text, &mut planted, &mut stream);
                assert_eq!(text.len(), own.len());
                assert!(questions.len() <= most);
                asked += questions.len();
                for q in &questions {
                    far += usize::from(2 * q.distance >= n);
                    assert!(q.distance >= distance_min && prose.values().contains(&q.answer));
                    assert_eq!(text[q.row - q.distance], q.answer);
                    assert!(planted[q.row] && planted[q.row - q.distance]);
                    assert!(
                        !planted[q.row + 1],
                        "the text goes on where the answer is due"
                    );
                    // fact and question in words: the same key, nothing cut
                    let lead = prose.question_tokens();
                    let said = |from: usize, to: usize| tokenizer.decode(&text[from..to]).unwrap();
                    let question = said(q.row + 1 - lead, q.row + 1);
                    let at = q.row - q.distance - lead;
                    let fact = said(at, at + prose.fact_tokens());
                    assert!(question.starts_with(" The secret word of "), "{question}");
                    let value = tokenizer.decode(&[q.answer]).unwrap();
                    assert_eq!(fact, format!("{question}{value}."));
                    let before = said(0, at);
                    assert!(before.ends_with(['.', '\n']), "{before}");
                }
                // what was not planted is the text from its beginning
                let left = text.iter().zip(&planted).filter(|(_, p)| !**p);
                assert!(
                    left.map(|(id, _)| id)
                        .eq(own.iter().take(planted.iter().filter(|p| !**p).count()))
                );
            }
        }
        assert!(asked > 400 && far > 100, "{asked} {far}");
    }

    #[test]
    fn a_vocabulary_without_words_is_refused() {
        let (_folder, tokenizer, _) = words_and_text();
        let error = Prose::new(&tokenizer, 40, 40).unwrap_err().to_string();
        assert!(
            error.contains("recall.needles") && error.contains("40 keys") && !error.contains('\n'),
            "{error}"
        );
    }
}
