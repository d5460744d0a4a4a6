//! Recall tasks laid into text: a passkey that is asked for later, key-value pairs of which each key is repeated once, and needles, which
//! are facts in prose.
//!
//! The tokens of the first two come after the text's vocabulary: keys, values, passkeys, and the two marks `PLANT` and `ASK`. `PLANT p`
//! is written somewhere; at each later `ASK` the right prediction is `p`. `k v` is written somewhere; where `k` stands again, the right
//! prediction is `v`. A needle is a sentence of text tokens. Answers are never revealed in the input. 70 % of the
//! distances are uniform, 30 % uniform in their logarithm.

use checkpoint::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use super::prose::Prose;
use crate::config::RunConfig;
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
    /// Tokens from a question to its answer, at least. 0: any distance.
    #[serde(skip_serializing_if = "is_zero")]
    pub distance_min: usize,
    /// Facts in prose in a sequence, each asked for once, in words of `data.tokenizer`; at most as many as fill half the sequence.
    #[serde(skip_serializing_if = "is_zero")]
    pub needles: usize,
}

/// What is not said is not written either: the hash of a run knows only what it uses.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Default for RecallConfig {
    fn default() -> Self {
        Self {
            keys: 32,
            values: 32,
            passkeys: 32,
            pairs: 4,
            asks: 3,
            distance_min: 0,
            needles: 0,
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
    /// End of a sentence that stands complete before.
    Needle,
}

impl Group {
    /// The groups of questions, in the order of results.
    pub const ASKED: [Group; 3] = [Group::Passkey, Group::Pair, Group::Needle];

    /// Place in [`Group::ASKED`], if it is a question's.
    pub(crate) fn asked(self) -> Option<usize> {
        Self::ASKED.iter().position(|group| *group == self)
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Group::None => "none",
            Group::Text => "text",
            Group::Passkey => "passkey",
            Group::Pair => "pair",
            Group::Needle => "needle",
        }
    }
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
    /// Its task, one of [`Group::ASKED`].
    pub group: Group,
}

/// The tasks' tokens over a text vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallTask {
    config: RecallConfig,
    text_vocab: usize,
    prose: Option<Prose>,
    /// Tokens among which an answer is looked for, in the order of [`Group::ASKED`].
    answers: [Vec<u32>; 3],
}

/// Shortest sequence that holds a question.
pub const LENGTH_MIN: usize = 8;

/// Largest distance that may be asked for at least, tokens.
const DISTANCE_MIN_MAX: usize = 1 << 24;

/// Tries for a place before a question is left out: a crowded short sequence may have no room.
pub(super) const TRIES: usize = 20;

impl RecallTask {
    /// The tasks of a run over a text of `text_vocab` tokens that a tokenizer with `tokenizer_hash` made; `None` without `[recall]`.
    /// Opens the tokenizer if there are needles.
    ///
    /// # Errors
    /// As [`RecallTask::new`]; needles without a tokenizer or with documents masked, stages too short for any question.
    pub(crate) fn of_run(
        run: &RunConfig,
        text_vocab: usize,
        tokenizer_hash: &str,
    ) -> Result<Option<Self>, TrainError> {
        let Some(recall) = run.recall else {
            return Ok(None);
        };
        let tokenizer = match (&run.data.tokenizer, recall.needles) {
            (_, 0) => None,
            (None, _) => {
                return Err(TrainError::config(
                    "recall.needles: facts are written in words of data.tokenizer, which is missing; name the tokenizer.json of the token files"
                        .to_owned(),
                ));
            }
            (Some(path), _) => {
                let tokenizer =
                    Tokenizer::open(path).map_err(|e| TrainError::config(e.to_string()))?;
                if tokenizer.hash() != tokenizer_hash {
                    return Err(TrainError::file(
                        path,
                        "is not the tokenizer that made the token files (its hash differs)",
                    ));
                }
                Some(tokenizer)
            }
        };
        if tokenizer.is_some() && run.data.document_mask {
            return Err(TrainError::config(
                "recall.needles: sentences laid in move the text, so data.document-mask cannot tell where documents end; leave one of them out"
                    .to_owned(),
            ));
        }
        let task = Self::new(recall, text_vocab, tokenizer.as_ref())?;
        let longest = run.stages()?.iter().map(|s| s.length).max().unwrap_or(0);
        let least = task.length_min();
        if longest < least && least > LENGTH_MIN {
            return Err(TrainError::config(format!(
                "recall: questions need sequences of at least {least} tokens (distance-min = {}, needles = {}), the longest of schedule.stages is {longest}",
                recall.distance_min, recall.needles
            )));
        }
        Ok(Some(task))
    }

    /// The tasks over a text of `text_vocab` tokens, with `tokenizer` if there are needles.
    ///
    /// # Errors
    /// Nothing to ask, fewer keys than pairs or needles, a tokenizer without words.
    pub(crate) fn new(
        config: RecallConfig,
        text_vocab: usize,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self, TrainError> {
        if config.passkeys == 0 || config.values == 0 || config.keys < config.pairs {
            return Err(TrainError::config(format!(
                "recall: {} passkeys, {} values and {} keys for {} pairs; at least one of each, and as many keys as pairs",
                config.passkeys, config.values, config.keys, config.pairs
            )));
        }
        if config.needles > config.keys {
            return Err(TrainError::config(format!(
                "recall: {} keys for {} needles; as many keys as needles",
                config.keys, config.needles
            )));
        }
        if config.distance_min > DISTANCE_MIN_MAX {
            return Err(TrainError::config(format!(
                "recall.distance-min = {} is above {DISTANCE_MIN_MAX} tokens",
                config.distance_min
            )));
        }
        let prose = tokenizer.map(|tokenizer| Prose::new(tokenizer, config.keys, config.values));
        let mut task = Self {
            config,
            text_vocab,
            prose: prose.transpose()?,
            answers: Default::default(),
        };
        task.answers = [
            (task.passkey(0)..task.passkey(config.passkeys)).collect(),
            (task.value(0)..task.value(config.values)).collect(),
            task.prose
                .as_ref()
                .map_or(Vec::new(), |prose| prose.values().to_vec()),
        ];
        Ok(task)
    }

    /// Vocabulary with the tasks' tokens.
    pub fn vocab(&self) -> usize {
        let c = &self.config;
        self.text_vocab + c.keys + c.values + c.passkeys + 2
    }

    /// Shortest sequence in which every task can be asked; shorter ones may lack needles, or be plain text.
    pub fn length_min(&self) -> usize {
        // Room for more than one question at the least distance.
        let far = self.config.distance_min + LENGTH_MIN;
        // A fact is laid where it fills half of the sequence at most.
        let needle = self.prose.as_ref().map_or(0, |prose| 2 * prose.tokens());
        far.max(needle)
    }

    /// Which tasks are asked, in the order of [`Group::ASKED`].
    pub(crate) fn asks(&self) -> [bool; 3] {
        [true, self.config.pairs > 0, self.prose.is_some()]
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
    pub fn answers(&self, group: Group) -> &[u32] {
        group.asked().map_or(&[], |at| &self.answers[at])
    }

    /// Lays tasks into one sequence: `ids` are its inputs, `targets` what follows each in the text, `groups` is filled. Returns
    /// the questions in the order of their rows. Sequences below [`LENGTH_MIN`], and those that no distance fits, stay plain text.
    pub(crate) fn lay(
        &self,
        ids: &mut [u32],
        targets: &mut [u32],
        groups: &mut [Group],
        stream: &mut Stream,
    ) -> Vec<Question> {
        let n = ids.len();
        groups.fill(Group::Text);
        let least = self.config.distance_min.max(1);
        if n < LENGTH_MIN.max(least + 2) {
            return Vec::new();
        }
        let mut taken = vec![false; n];
        let mut questions = match &self.prose {
            Some(prose) => self.lay_prose(prose, ids, targets, &mut taken, stream),
            None => Vec::new(),
        };
        let mut free = |slots: &[usize]| {
            let ok = slots.iter().all(|&s| !taken[s]);
            if ok {
                slots.iter().for_each(|&s| taken[s] = true);
            }
            ok
        };

        // The passkey: a distance first, then a place for it. Only needles can be in its way.
        for _ in 0..TRIES {
            let distance = distance(stream, least, n - 2);
            let plant = stream.index(n - 1 - distance);
            if !free(&[plant, plant + 1, plant + 1 + distance]) {
                continue;
            }
            let answer = self.passkey(stream.index(self.config.passkeys));
            ids[plant] = self.plant_mark();
            ids[plant + 1] = answer;
            let mut asks = vec![plant + 1 + distance];
            for _ in 1..self.config.asks {
                let row = plant + 1 + least + stream.index(n - 1 - plant - least);
                if free(&[row]) {
                    asks.push(row);
                }
            }
            for row in asks {
                ids[row] = self.ask_mark();
                questions.push(Question {
                    row,
                    distance: row - plant - 1,
                    answer,
                    group: Group::Passkey,
                });
            }
            break;
        }

        let mut keys: Vec<usize> = (0..self.config.keys).collect();
        stream.shuffle(&mut keys);
        for &key in keys.iter().take(self.config.pairs) {
            let answer = self.value(stream.index(self.config.values));
            for _ in 0..TRIES {
                let distance = distance(stream, least, n - 2);
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

    /// Lays the needles, before what is laid over single tokens. `taken` is set where a token is a sentence's.
    fn lay_prose(
        &self,
        prose: &Prose,
        ids: &mut [u32],
        targets: &mut [u32],
        taken: &mut [bool],
        stream: &mut Stream,
    ) -> Vec<Question> {
        let n = ids.len();
        let mut text = [&*ids, &targets[n - 1..]].concat();
        let mut planted = vec![false; n + 1];
        let config = &self.config;
        let questions = prose.lay(
            config.needles,
            config.distance_min,
            &mut text,
            &mut planted,
            stream,
        );
        ids.copy_from_slice(&text[..n]);
        targets.copy_from_slice(&text[1..]);
        taken.copy_from_slice(&planted[..n]);
        questions
    }
}

/// A distance of `least ..= most`, `least` at least 1: 70 % uniform, 30 % uniform in the logarithm.
pub(super) fn distance(stream: &mut Stream, least: usize, most: usize) -> usize {
    if stream.unit() < 0.7 {
        least + stream.index(most + 1 - least)
    } else {
        let low = (least as f64).ln();
        let log = low + stream.unit() * ((most as f64 + 1.0).ln() - low);
        (log.exp() as usize).clamp(least, most)
    }
}

#[cfg(test)]
mod tests;
