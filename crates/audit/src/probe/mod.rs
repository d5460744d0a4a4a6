//! Retrieval probes: a fact planted in a long text, asked for at its end.
//!
//! | file | holds |
//! |---|---|
//! | `task` | the texts of a probe, from a data file |
//! | `haystack` | what fills a prompt: the task's own sentences, or those of a text |
//! | `lines` | made-up names and numbers |
//! | `prompt` | prompts of an exact length, the fact at an exact depth |
//! | `run` | greedy answer, log-probability and rank of the right one |
//! | `matching` | whether an answer is right |
//! | `what_if` | the same weights under another bias |
//! | `area` | one number for a grid of lengths and depths |
//!
//! A cell of the grid is one length at one depth. Its result depends on the model, the task, the seed, the length, the depth and
//! the number of samples, and on nothing that was run before it: cells can be run in any order, interrupted or not.

mod area;
mod haystack;
mod lines;
mod matching;
mod prompt;
mod run;
mod task;
mod what_if;

pub use area::area;
pub use haystack::Haystack;
pub use matching::first_integer;
pub use prompt::{CellPrompts, Prompt, PromptBuilder};
pub use run::{SampleResult, run_cell};
pub use task::{ProbeTask, TASKS};
pub use what_if::WhatIf;
