//! Recall tasks laid into text: a passkey that is asked for later, and key-value pairs of which each key is repeated once.
//!
//! The tokens of the tasks come after the text's vocabulary: keys, values, passkeys, and the two marks `PLANT` and `ASK`. `PLANT p`
//! is written somewhere; at each later `ASK` the right prediction is `p`. `k v` is written somewhere; where `k` stands again, the right
//! prediction is `v`. Answers are never revealed in the input. 70 % of the distances are uniform, 30 % uniform in their logarithm.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::rng::Stream;

/// `[recall]` of a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RecallConfig {
    /// Distinct keys of pairs.
    pub keys: usize,
    /// Distinct values of pairs.
    pub values: usize,
    /// Distinct passkeys.
    pub passkeys: usize,
    /// Pairs in a sequence.
    pub pairs: usize,
    /// Most times a passkey is asked for in a sequence.
    pub asks: usize,
}

impl Default for RecallConfig {
    fn default() -> Self {
        Self {
            keys: 32,
            values: 32,
            passkeys: 32,
            pairs: 4,
            asks: 3,
        }
    }
}

/// What a row's loss belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Not counted: the next input was planted and cannot be foreseen.
    None,
    /// Next token of the text.
    Text,
    /// Answer to an `ASK`.
    Passkey,
    /// Value of a repeated key.
    Pair,
}

/// A question in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Row of the sequence where the answer is predicted.
    pub row: usize,
    /// Tokens back to the answer.
    pub distance: usize,
    /// The answer's token.
    pub answer: u32,
    /// Passkey or pair.
    pub group: Group,
}

/// The tasks' tokens over a text vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallTask {
    config: RecallConfig,
    text_vocab: usize,
}

/// Shortest sequence that holds a question.
pub const LENGTH_MIN: usize = 8;

impl RecallTask {
    /// The tasks over a text of `text_vocab` tokens.
    ///
    /// # Errors
    /// Nothing to ask, or fewer keys than pairs.
    pub fn new(config: RecallConfig, text_vocab: usize) -> Result<Self, TrainError> {
        if config.passkeys == 0 || config.values == 0 || config.keys < config.pairs {
            return Err(TrainError::config(format!(
                "recall: {} passkeys, {} values and {} keys for {} pairs; at least one of each, and as many keys as pairs",
                config.passkeys, config.values, config.keys, config.pairs
            )));
        }
        Ok(Self { config, text_vocab })
    }

    /// Vocabulary with the tasks' tokens.
    pub fn vocab(&self) -> usize {
        let c = &self.config;
        self.text_vocab + c.keys + c.values + c.passkeys + 2
    }

    fn key(&self, i: usize) -> u32 {
        (self.text_vocab + i) as u32
    }

    fn value(&self, i: usize) -> u32 {
        (self.text_vocab + self.config.keys + i) as u32
    }

    fn passkey(&self, i: usize) -> u32 {
        (self.text_vocab + self.config.keys + self.config.values + i) as u32
    }

    fn plant_mark(&self) -> u32 {
        self.passkey(self.config.passkeys)
    }

    fn ask_mark(&self) -> u32 {
        self.passkey(self.config.passkeys + 1)
    }

    /// Tokens among which an answer of this group is looked for.
    pub fn answers(&self, group: Group) -> std::ops::Range<u32> {
        match group {
            Group::Passkey => self.passkey(0)..self.passkey(self.config.passkeys),
            _ => self.value(0)..self.value(self.config.values),
        }
    }

    /// Lays tasks into one sequence: `ids` are its inputs, `targets` what follows each in the text, `groups` is filled. Returns
    /// the questions in the order of their rows. Sequences below [`LENGTH_MIN`] stay plain text.
    pub(crate) fn lay(
        &self,
        ids: &mut [u32],
        targets: &mut [u32],
        groups: &mut [Group],
        stream: &mut Stream,
    ) -> Vec<Question> {
        let n = ids.len();
        groups.fill(Group::Text);
        let mut questions = Vec::new();
        if n < LENGTH_MIN {
            return questions;
        }
        let mut taken = vec![false; n];
        let mut free = |slots: &[usize]| {
            let ok = slots.iter().all(|&s| !taken[s]);
            if ok {
                slots.iter().for_each(|&s| taken[s] = true);
            }
            ok
        };

        // The passkey: a distance first, then a place for it.
        let distance = distance(stream, n - 2);
        let plant = stream.index(n - 1 - distance);
        let answer = self.passkey(stream.index(self.config.passkeys));
        free(&[plant, plant + 1]);
        ids[plant] = self.plant_mark();
        ids[plant + 1] = answer;
        let mut asks = vec![plant + 1 + distance];
        for _ in 1..self.config.asks {
            asks.push(plant + 2 + stream.index(n - plant - 2));
        }
        for row in asks {
            if free(&[row]) {
                ids[row] = self.ask_mark();
                questions.push(Question {
                    row,
                    distance: row - plant - 1,
                    answer,
                    group: Group::Passkey,
                });
            }
        }

        let mut keys: Vec<usize> = (0..self.config.keys).collect();
        stream.shuffle(&mut keys);
        for &key in keys.iter().take(self.config.pairs) {
            let answer = self.value(stream.index(self.config.values));
            // A crowded short sequence may have no room.
            for _ in 0..20 {
                let distance = self::distance(stream, n - 2);
                let first = stream.index(n - 1 - distance);
                let row = first + 1 + distance;
                if free(&[first, first + 1, row]) {
                    ids[first] = self.key(key);
                    ids[first + 1] = answer;
                    ids[row] = self.key(key);
                    questions.push(Question {
                        row,
                        distance,
                        answer,
                        group: Group::Pair,
                    });
                    break;
                }
            }
        }

        for row in 0..n - 1 {
            if taken[row + 1] {
                groups[row] = Group::None;
            }
        }
        for question in &questions {
            targets[question.row] = question.answer;
            groups[question.row] = question.group;
        }
        questions.sort_by_key(|q| q.row);
        questions
    }
}

/// A distance of `1 ..= most`.
fn distance(stream: &mut Stream, most: usize) -> usize {
    if stream.unit() < 0.7 {
        1 + stream.index(most)
    } else {
        let log = stream.unit() * (most as f64 + 1.0).ln();
        (log.exp() as usize).clamp(1, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_stands_where_the_question_says_and_nowhere_later() {
        let task = RecallTask::new(RecallConfig::default(), 100).unwrap();
        let mut asked = 0;
        for n in [8usize, 16, 64, 300] {
            for sample in 0..200 {
                let text: Vec<u32> = (0..=n as u32).map(|i| i % 100).collect();
                let (mut ids, mut targets) = (text[..n].to_vec(), text[1..].to_vec());
                let mut groups = vec![Group::None; n];
                let mut stream = Stream::of(&[n as u64, sample]);
                let questions = task.lay(&mut ids, &mut targets, &mut groups, &mut stream);
                asked += questions.len();
                for q in &questions {
                    assert_eq!(ids[q.row - q.distance], q.answer);
                    assert_eq!((targets[q.row], groups[q.row]), (q.answer, q.group));
                    assert!(task.answers(q.group).contains(&q.answer));
                }
                for row in 0..n {
                    assert!((ids[row] as usize) < task.vocab());
                    if groups[row] == Group::Text && row + 1 < n {
                        assert_eq!(
                            ids[row + 1],
                            targets[row],
                            "a counted text row has its successor"
                        );
                    }
                }
            }
        }
        assert!(asked > 3000, "{asked}");
    }

    #[test]
    fn distances_cover_the_sequence() {
        let mut stream = Stream::of(&[1]);
        let drawn: Vec<usize> = (0..4000).map(|_| distance(&mut stream, 254)).collect();
        assert!(drawn.iter().all(|d| (1..=254).contains(d)));
        let far = drawn.iter().filter(|d| **d > 128).count() as f64 / 4000.0;
        // 0.7 (126/254) + 0.3 (ln 255 - ln 129)/ln 255, five standard deviations.
        assert!((far - (0.347 + 0.037)).abs() < 0.04, "{far}");
    }
}
