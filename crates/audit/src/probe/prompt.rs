//! Prompts of an exact length, the fact at an exact depth.
//!
//! A prompt is introduction, filler, fact, filler, question, with further facts among the filler where the task has several; its length counts tokens, and the answer's room belongs to it. The
//! filler shrinks until everything fits and nothing is ever cut. Each piece is encoded by itself, the haystack once for all cells:
//! pieces begin with a space or a line break, where the common tokenizers break anyway, and a prompt of ids is what the model sees.

use super::facts::{Pieces, random};
use super::haystack::Haystack;
use super::task::ProbeTask;
use super::values::ValueKind;
use crate::eval::{EvalError, TextCodec};

/// Tokens of room for the answer beyond those of the right one: enough to see where a longer number ends.
const ROOM_TOKENS: usize = 4;

/// A fact in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needle {
    /// Its value.
    pub value: String,
    /// Index of its first token in the prompt.
    pub at: usize,
    /// Its tokens.
    pub tokens: usize,
    /// Whether its value is asked for.
    pub asked: bool,
}

/// One prompt of a cell, without what the whole cell shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The values to be found, in the order of the question.
    pub values: Vec<String>,
    /// Ids after [`CellPrompts::shared`]: facts, the filler between and after them, the question.
    pub rest: Vec<u32>,
    /// Ids of the right answer.
    pub answer: Vec<u32>,
    /// The facts, the one at the depth of the cell first; none in a control.
    pub needles: Vec<Needle>,
}

impl Prompt {
    /// The values to be found, with commas between them.
    #[must_use]
    pub fn key(&self) -> String {
        self.values.join(", ")
    }
}

/// The prompts of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CellPrompts {
    /// Tokens that prompt and answer may have.
    pub length: usize,
    /// Depth asked for, 0 (first) to 1 (last).
    pub depth: f64,
    /// Share of the filler that lies before the first fact; `None` where there is no room for any.
    pub true_depth: Option<f64>,
    /// Ids before the earliest fact: the same for all samples.
    pub shared: Vec<u32>,
    /// One entry a sample.
    pub prompts: Vec<Prompt>,
    /// Most tokens of an answer.
    pub answer_room: usize,
    /// What the values are.
    pub values: ValueKind,
    /// Whether an answer may give its values in any order.
    pub any_order: bool,
}

impl CellPrompts {
    /// All ids of a sample's prompt.
    #[must_use]
    pub fn ids(&self, prompt: &Prompt) -> Vec<u32> {
        [self.shared.as_slice(), &prompt.rest].concat()
    }
}

/// Builds the prompts of cells.
pub struct PromptBuilder<'a> {
    codec: &'a dyn TextCodec,
    task: &'a ProbeTask,
    haystack: Haystack,
    introduction: Vec<u32>,
    seed: u64,
    control: bool,
}

impl<'a> PromptBuilder<'a> {
    /// Encodes what all cells share besides the haystack. `prefix` is an id put before everything; no other special token is ever added.
    ///
    /// # Errors
    /// What the tokenizer reports.
    pub fn new(
        codec: &'a dyn TextCodec,
        task: &'a ProbeTask,
        haystack: Haystack,
        prefix: Option<u32>,
        seed: u64,
    ) -> Result<Self, EvalError> {
        let mut introduction = codec.encode(&task.introduction).map_err(EvalError::Input)?;
        if let Some(prefix) = prefix {
            introduction.insert(0, prefix);
        }
        Ok(Self {
            codec,
            task,
            haystack,
            introduction,
            seed,
            control: false,
        })
    }

    /// Leaves the facts out, and nothing else: what is found then was guessed, or stood in the text.
    #[must_use]
    pub fn control(self, control: bool) -> Self {
        Self { control, ..self }
    }

    /// The prompts of a cell. The filler is the same for all samples, so that its keys and values are computed once: it leaves
    /// room for the longest fact and answer among them.
    ///
    /// # Errors
    /// A length that not even the prompt without filler fits into, a text that is too short for it, a tokenizer that loses the key,
    /// and what it reports.
    pub fn cell(
        &self,
        length: usize,
        depth: f64,
        samples: usize,
    ) -> Result<CellPrompts, EvalError> {
        let pieces = (0..samples).map(|sample| self.pieces(length, depth, sample));
        let mut pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let longest = |of: fn(&Pieces) -> usize| pieces.iter().map(of).max().unwrap_or(0);
        let answer_room = longest(|p| p.answer.len()) + ROOM_TOKENS;
        let fixed =
            self.introduction.len() + longest(|p| p.fact_tokens() + p.question.len()) + answer_room;
        let Some(budget) = length.checked_sub(fixed) else {
            return Err(EvalError::Input(format!(
                "length {length} is too short for {}: its prompt without any filler and the answer take {fixed} tokens, and \
                 nothing is ever cut",
                self.task.task
            )));
        };
        let units = self.haystack.fill(budget)?;
        let before = units_before(&units, depth);
        let tokens = |units: &[&[u32]]| units.iter().map(|unit| unit.len()).sum::<usize>();
        let (all, ahead) = (tokens(&units), tokens(&units[..before]));
        #[allow(clippy::cast_precision_loss)] // tokens of a prompt
        let true_depth = (all > 0).then(|| ahead as f64 / all as f64);
        for pieces in &mut pieces {
            pieces.place(before, units.len());
        }
        let places = pieces.iter().flat_map(|p| &p.facts).map(|fact| fact.place);
        let first = places.min().unwrap_or(before);
        let shared = [self.introduction.clone(), units[..first].concat()].concat();
        let prompt = |p| self.prompt(p, &units, first, shared.len());
        let prompts = pieces.into_iter().map(prompt).collect();
        let cell = CellPrompts {
            length,
            depth,
            true_depth,
            shared,
            prompts,
            answer_room,
            values: self.task.values,
            any_order: self.task.one_name,
        };
        self.verify(&cell)?;
        Ok(cell)
    }

    /// Lays out facts and the filler from unit `first` on; `shared` tokens are before it.
    fn prompt(&self, pieces: Pieces, units: &[&[u32]], first: usize, shared: usize) -> Prompt {
        let n_facts = if self.control { 0 } else { pieces.facts.len() };
        let mut order: Vec<usize> = (0..n_facts).collect();
        order.sort_by_key(|&fact| pieces.facts[fact].place);
        let (mut rest, mut next, mut at) = (Vec::new(), first, vec![0; n_facts]);
        for index in order {
            let fact = &pieces.facts[index];
            rest.extend(units[next..fact.place].iter().copied().flatten());
            next = fact.place;
            at[index] = shared + rest.len();
            rest.extend(&fact.ids);
        }
        rest.extend(units[next..].iter().copied().flatten());
        rest.extend(&pieces.question);
        let asked = self.task.asked as usize;
        let facts = pieces.facts.iter();
        let needles = facts.zip(at).enumerate().map(|(index, (fact, at))| Needle {
            value: fact.value.clone(),
            at,
            tokens: fact.ids.len(),
            asked: index < asked,
        });
        Prompt {
            needles: needles.collect(),
            values: pieces.values(asked),
            rest,
            answer: pieces.answer,
        }
    }

    fn pieces(&self, length: usize, depth: f64, sample: usize) -> Result<Pieces, EvalError> {
        let random = random(self.seed, length, depth, sample);
        Pieces::draw(self.codec, self.task, &self.haystack, random)
    }

    /// A prompt in which a fact cannot be read is our mistake or the tokenizer's, not the model's.
    fn verify(&self, cell: &CellPrompts) -> Result<(), EvalError> {
        let stated = self.task.needle.matches("{key}").count();
        for prompt in &cell.prompts {
            for needle in &prompt.needles {
                let from = needle.at - cell.shared.len();
                let ids = &prompt.rest[from..from + needle.tokens];
                let text = self.codec.decode(ids).map_err(EvalError::Input)?;
                if text.matches(&needle.value).count() != stated {
                    return Err(EvalError::Input(format!(
                        "the tokenizer does not give back the key {}: the fact becomes {text:?}",
                        needle.value
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Units before the fact: the boundary nearest to `depth` times the tokens of the filler, the earlier of two.
fn units_before(units: &[&[u32]], depth: f64) -> usize {
    let total: usize = units.iter().map(|unit| unit.len()).sum();
    #[allow(clippy::cast_precision_loss)] // tokens of a prompt
    let off = |tokens: usize| (tokens as f64 - depth * total as f64).abs();
    let (mut best, mut tokens) = ((0, off(0)), 0);
    for (index, unit) in units.iter().enumerate() {
        tokens += unit.len();
        if off(tokens) < best.1 {
            best = (index + 1, off(tokens));
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::facts::value;

    struct Bytes;

    impl TextCodec for Bytes {
        fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
            Ok(text.bytes().map(u32::from).collect())
        }

        fn decode(&self, ids: &[u32]) -> Result<String, String> {
            let bytes = ids.iter().map(|&id| id as u8).collect();
            String::from_utf8(bytes).map_err(|error| error.to_string())
        }
    }

    fn passkey(task: &ProbeTask, prefix: Option<u32>) -> PromptBuilder<'_> {
        let haystack = Haystack::of_task(&Bytes, task, 3000, 7).unwrap();
        PromptBuilder::new(&Bytes, task, haystack, prefix, 7).unwrap()
    }

    #[test]
    fn every_prompt_fits_and_holds_the_whole_fact_at_its_depth() {
        let task = ProbeTask::named("passkey").unwrap();
        let builder = passkey(&task, None);
        let unit = task.filler.iter().map(String::len).max().unwrap();
        for length in [270, 300, 333, 512, 2000] {
            for depth in [0.0, 0.25, 0.5, 0.9, 1.0] {
                let cell = builder.cell(length, depth, 3).unwrap();
                for prompt in &cell.prompts {
                    let ids = [cell.shared.as_slice(), &prompt.rest].concat();
                    let total = ids.len() + cell.answer_room;
                    assert!(total <= length && total > length - unit, "{length} {total}");
                    let text = Bytes.decode(&ids).unwrap();
                    let needle = task.needle.replace("{key}", &prompt.key());
                    let at = text.find(&needle).unwrap();
                    assert_eq!(text.matches(&needle).count(), 1);
                    assert_eq!(at, cell.shared.len());
                    assert!(text.starts_with(&task.introduction) && text.ends_with(&task.question));
                    assert_eq!(prompt.key().len(), 5);
                    // the nearest boundary is within half a unit
                    let filler = length - cell.answer_room - ids.len() + ids.len()
                        - task.introduction.len()
                        - needle.len()
                        - task.question.len();
                    if let Some(found) = cell.true_depth {
                        assert!(
                            (found - depth).abs() * filler as f64 <= unit as f64,
                            "{found}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn keys_are_functions_of_their_place() {
        let haystack = Haystack::of_text(&Bytes, "No numbers but 7.").unwrap();
        let task = ProbeTask::named("passkey").unwrap();
        let key =
            |seed, length, sample| value(&mut random(seed, length, 0.5, sample), &task, &haystack);
        let all: Vec<String> = (0..200).map(|s| key(1, 256, s)).collect();
        assert_eq!(all, (0..200).map(|s| key(1, 256, s)).collect::<Vec<_>>());
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert!(distinct.len() > 190);
        assert_ne!(key(1, 256, 0), key(2, 256, 0));
        assert_ne!(key(1, 256, 0), key(1, 512, 0));
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_never_cut() {
        let task = ProbeTask::named("passkey").unwrap();
        let builder = passkey(&task, None);
        let error = builder.cell(100, 0.5, 1).unwrap_err().to_string();
        assert!(
            error.contains("too short") && error.contains("take "),
            "{error}"
        );
        assert!(Haystack::of_text(&Bytes, " \n").is_err());
    }

    #[test]
    fn one_prefix_token_at_the_very_beginning() {
        let task = ProbeTask::named("passkey").unwrap();
        let builder = passkey(&task, Some(1));
        let cell = builder.cell(400, 1.0, 1).unwrap();
        let ids = [cell.shared.as_slice(), &cell.prompts[0].rest].concat();
        assert_eq!(ids[0], 1);
        assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 1);
    }

    #[test]
    fn a_needle_lies_between_two_sentences_of_the_text() {
        let task = ProbeTask::named("needle").unwrap();
        assert!(
            Haystack::of_task(&Bytes, &task, 3000, 7).is_err(),
            "it brings no text"
        );
        let text = "It rained. \"Come in!\" she said. Nobody did, not at 3.15 and not later.\n\nThe end of a day. ".repeat(8);
        let haystack = Haystack::of_text(&Bytes, &text).unwrap();
        let builder = PromptBuilder::new(&Bytes, &task, haystack, None, 7).unwrap();
        for depth in [0.0, 0.3, 0.5, 0.8, 1.0] {
            let cell = builder.cell(600, depth, 2).unwrap();
            for prompt in &cell.prompts {
                let ids = [cell.shared.as_slice(), &prompt.rest].concat();
                let whole = Bytes.decode(&ids).unwrap();
                let needle = task.needle.replace("{key}", &prompt.key());
                let (before, after) = whole.split_once(&needle).unwrap();
                let before = before.strip_prefix(&task.introduction).unwrap();
                let after = after.strip_suffix(&task.question).unwrap();
                assert!(
                    text.starts_with(&format!("{before}{after}")),
                    "prose is not changed"
                );
                let end = before.trim_end_matches('"').chars().last();
                assert!(end.is_none_or(|c| matches!(c, '.' | '!')), "{before:?}");
            }
        }
        let error = builder.cell(5000, 0.5, 1).unwrap_err().to_string();
        assert!(error.contains("longer text"), "{error}");
    }

    #[test]
    fn a_key_that_the_text_holds_is_not_used() {
        let digits: Vec<String> = (1..9).map(|d| d.to_string()).collect();
        let haystack = Haystack::of_text(&Bytes, &digits.join(" ")).unwrap();
        let task = ProbeTask {
            digits: 1,
            ..ProbeTask::named("passkey").unwrap()
        };
        for sample in 0..20 {
            let value = value(&mut random(0, 10, 0.0, sample), &task, &haystack);
            assert_eq!(value, "9");
        }
    }

    #[test]
    fn the_line_that_is_asked_for_is_the_only_one_of_its_name_and_number() {
        let task = ProbeTask::named("key-value").unwrap();
        let of = |tokens| {
            let haystack = Haystack::of_task(&Bytes, &task, tokens, 7).unwrap();
            PromptBuilder::new(&Bytes, &task, haystack, None, 7).unwrap()
        };
        for depth in [0.0, 0.4, 1.0] {
            let cell = of(700).cell(700, depth, 4).unwrap();
            // more lines were drawn for a longer cell: this one is the same
            assert_eq!(of(5000).cell(700, depth, 4).unwrap(), cell);
            for prompt in &cell.prompts {
                let ids = [cell.shared.as_slice(), &prompt.rest].concat();
                let text = Bytes.decode(&ids).unwrap();
                let (list, question) = text.split_once("\n\n").unwrap();
                let line = list
                    .lines()
                    .find(|line| line.ends_with(&prompt.key()))
                    .unwrap();
                let (name, _) = line.split_once(": ").unwrap();
                assert!(question.contains(name));
                assert_eq!(list.matches(name).count(), 1);
                assert_eq!(list.matches(&prompt.key()).count(), 1);
            }
        }
    }
}
