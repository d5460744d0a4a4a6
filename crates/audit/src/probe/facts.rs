//! The facts of a sample: made up from its place in the grid, worded by the task.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::haystack::Haystack;
use super::lines::{below, needle_name, number};
use super::task::ProbeTask;
use super::values::ValueKind;
use crate::eval::{EvalError, TextCodec, split_pair};

/// A fact and where it goes.
pub(super) struct Fact {
    name: String,
    pub(super) value: String,
    pub(super) ids: Vec<u32>,
    /// Units before it.
    pub(super) place: usize,
}

/// What a sample does not share with others.
pub(super) struct Pieces {
    /// At least one; those that are asked for come first.
    pub(super) facts: Vec<Fact>,
    pub(super) question: Vec<u32>,
    pub(super) answer: Vec<u32>,
    random: ChaCha8Rng,
}

impl Pieces {
    /// Draws names and values until there are as many facts as the task has, no two alike.
    pub(super) fn draw(
        codec: &dyn TextCodec,
        task: &ProbeTask,
        haystack: &Haystack,
        mut random: ChaCha8Rng,
    ) -> Result<Self, EvalError> {
        let mut facts: Vec<Fact> = Vec::new();
        while facts.len() < task.needles.max(1) as usize {
            let taken = |text: &str, of: fn(&Fact) -> &str| facts.iter().any(|f| of(f) == text);
            let value = draw(
                || value(&mut random, task, haystack),
                |value| taken(value, |fact| &fact.value),
            );
            let name = match facts.first() {
                Some(first) if task.one_name => first.name.clone(),
                _ => draw(|| needle_name(&mut random), |name| taken(name, |f| &f.name)),
            };
            let text = put(&task.needle, &value, &name);
            let ids = codec.encode(&text).map_err(EvalError::Input)?;
            facts.push(Fact {
                name,
                value,
                ids,
                place: 0,
            });
        }
        let asked = &facts[..task.asked as usize];
        let list = |of: fn(&Fact) -> &str| asked.iter().map(of).collect::<Vec<_>>().join(", ");
        let (values, names) = (list(|fact| &fact.value), list(|fact| &fact.name));
        let question = task.question.replace("{names}", &names);
        let question = put(&question, &values, &facts[0].name);
        let answer = put(&task.answer, &values, &facts[0].name);
        let pair = split_pair(codec, &question, &answer)?;
        Ok(Self {
            facts,
            question: pair.context,
            answer: pair.continuation,
            random,
        })
    }

    pub(super) fn fact_tokens(&self) -> usize {
        self.facts.iter().map(|fact| fact.ids.len()).sum()
    }

    pub(super) fn values(&self, asked: usize) -> Vec<String> {
        let facts = self.facts[..asked].iter();
        facts.map(|fact| fact.value.clone()).collect()
    }

    /// The first fact goes behind `before` units, each other one between any two of all `units`.
    pub(super) fn place(&mut self, before: usize, units: usize) {
        for (index, fact) in self.facts.iter_mut().enumerate() {
            fact.place = match index {
                0 => before,
                _ => below(&mut self.random, units + 1),
            };
        }
    }
}

fn put(template: &str, key: &str, name: &str) -> String {
    template.replace("{key}", key).replace("{name}", name)
}

/// The first that is not taken.
fn draw(mut next: impl FnMut() -> String, taken: impl Fn(&str) -> bool) -> String {
    loop {
        let drawn = next();
        if !taken(&drawn) {
            return drawn;
        }
    }
}

/// Random numbers of a sample, a function of where it is.
pub(super) fn random(seed: u64, length: usize, depth: f64, sample: usize) -> ChaCha8Rng {
    let mut bytes = [0; 32];
    let parts = [seed, length as u64, depth.to_bits(), sample as u64];
    for (place, part) in bytes.chunks_exact_mut(8).zip(parts) {
        place.copy_from_slice(&part.to_le_bytes());
    }
    ChaCha8Rng::from_seed(bytes)
}

/// A value that the haystack does not hold, and odd where its lines have even numbers.
pub(super) fn value(random: &mut ChaCha8Rng, task: &ProbeTask, haystack: &Haystack) -> String {
    loop {
        let key = match task.values {
            ValueKind::Number if task.line.is_some() => {
                (number(random, task.digits) | 1).to_string()
            }
            kind => kind.draw(random, task.digits),
        };
        if !haystack.holds(&key) {
            return key;
        }
    }
}
