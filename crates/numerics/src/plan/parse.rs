//! Reading `NAME[:DTYPE]`.

use super::{PlanName, PrecisionPlan};
use crate::convention::Family;
use crate::format::Format;
use thiserror::Error;

/// Why a plan cannot be used; one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PlanError(String);

impl PlanError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        PlanError(text.into())
    }
}

/// The names a plan can have, in the order in which they are documented.
pub const fn plan_names() -> &'static [&'static str] {
    const NAMES: [&str; PlanName::ALL.len()] = {
        let mut names = [""; PlanName::ALL.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = PlanName::ALL[i].name();
            i += 1;
        }
        names
    };
    &NAMES
}

const EVERY: &[Format] = &Format::ALL;
const MODEL: &[Format] = &[Format::F32, Format::Bf16, Format::F16];
const HALF: &[Format] = &[Format::F16, Format::Bf16];
const CACHE: &[Format] = &[Format::F16, Format::Bf16, Format::F32];

impl PlanName {
    /// The dtypes this plan can have.
    pub const fn dtypes(self) -> &'static [Format] {
        match self {
            PlanName::F64 => &[Format::F64],
            PlanName::Ieee | PlanName::Ftz => EVERY,
            PlanName::FlashAttn2 => HALF,
            PlanName::LlamaCppCpu => CACHE,
            PlanName::LlamaCppCudaFa => &[Format::F16],
            _ => MODEL,
        }
    }

    /// The dtype where none is written: f32, except for `f64` and for llama.cpp, whose key/value cache is f16.
    /// `None` where f32 would be it but is not supported.
    pub const fn default_dtype(self) -> Option<Format> {
        match self {
            PlanName::F64 => Some(Format::F64),
            PlanName::LlamaCppCpu | PlanName::LlamaCppCudaFa => Some(Format::F16),
            PlanName::FlashAttn2 => None,
            _ => Some(Format::F32),
        }
    }

    /// Reads a [`PlanName::name`], ignoring case and treating `_` as `-`.
    pub fn parse(s: &str) -> Option<PlanName> {
        let name = s.trim().to_ascii_lowercase().replace('_', "-");
        PlanName::ALL.into_iter().find(|plan| plan.name() == name)
    }

    /// `NAME:a or NAME:b` for every dtype, for messages.
    fn spellings(self) -> String {
        let all: Vec<String> = self
            .dtypes()
            .iter()
            .map(|dtype| format!("{}:{}", self.name(), dtype.name()))
            .collect();
        all.join(" or ")
    }
}

impl PrecisionPlan {
    /// Reads `NAME[:DTYPE]` and resolves it for `family`, since what a runtime does depends on the family's code.
    ///
    /// # Errors
    /// An unknown name or dtype, a dtype the runtime does not support, a family the runtime rejects. The message says what
    /// to write instead.
    pub fn parse(spec: &str, family: Family) -> Result<Self, PlanError> {
        let text = spec.trim();
        let (name_text, dtype_text) = match text.split_once(':') {
            Some((name, dtype)) => (name, Some(dtype.trim())),
            None => (text, None),
        };
        let name = PlanName::parse(name_text).ok_or_else(|| {
            PlanError::new(format!(
                "unknown precision plan {:?}; known: {}",
                name_text.trim(),
                plan_names().join(", ")
            ))
        })?;
        let dtype = match dtype_text {
            None => name.default_dtype().ok_or_else(|| {
                PlanError::new(format!(
                    "precision plan {text:?}: {} has no f32 version; write {}",
                    name.name(),
                    name.spellings()
                ))
            })?,
            Some(dtype_text) => Format::parse(dtype_text).ok_or_else(|| {
                PlanError::new(format!(
                    "precision plan {text:?}: unknown dtype {dtype_text:?}; write {}",
                    name.spellings()
                ))
            })?,
        };
        if !name.dtypes().contains(&dtype) {
            return Err(PlanError::new(format!(
                "precision plan {text:?}: {} does not support {}; write {}",
                name.name(),
                dtype.name(),
                name.spellings()
            )));
        }
        let mut plan = PrecisionPlan::build(name, dtype, family)?;
        plan.key = text.to_owned();
        Ok(plan)
    }
}
