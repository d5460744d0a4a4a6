//! Retrieval probes: a fact planted in a long text, asked for at its end.
//!
//! | file | holds |
//! |---|---|
//! | `task` | the texts of a probe, from a data file |
//! | `haystack` | what fills a prompt: the task's own sentences, or those of a text |
//! | `lines` | made-up names and numbers |
//! | `facts` | made-up facts, questions and answers of a sample |
//! | `prompt` | prompts of an exact length, the fact at an exact depth |
//! | `run` | greedy answer, log-probability and rank of the right one |
//! | `prefix` | the beginning that prompts share, run once |
//! | `values` | what is to be found, and whether an answer has it |
//! | `witness` | which heads had the fact within sight |
//! | `what_if` | the same weights under another bias |
//! | `area` | one number for a grid of lengths and depths |
//!
//! A cell of the grid is one length at one depth. Its result depends on the model, the task, the seed, the length, the depth and
//! the number of samples, and on nothing that was run before it: cells can be run in any order, interrupted or not.

mod area;
mod facts;
mod haystack;
mod lines;
mod prefix;
mod prompt;
mod run;
mod task;
mod values;
mod what_if;
mod witness;

pub use area::area;
pub use haystack::Haystack;
pub use prompt::{CellPrompts, Needle, Prompt, PromptBuilder};
pub use run::{CellResult, CellRunner, SampleResult, run_cell};
pub use task::{NEEDLES_MAX, ProbeTask, TASKS};
pub use values::{ValueKind, first_integer, right_values};
pub use what_if::WhatIf;
pub use witness::{HeadSight, PlanWitness, Sight};
