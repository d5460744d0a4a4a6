//! What `audit::eval` found, in the words of the schema.

use crate::number::finite;
use crate::schema::{
    Accuracy, AlternativeRecord, DocumentLoss, MeanLoss, PerplexityReport, PositionLoss,
    TaskItemRecord, TaskOutcome,
};
use audit::eval::{ItemScore, Moments, TextScore, Windows};

impl From<&Moments> for MeanLoss {
    fn from(nats: &Moments) -> Self {
        let mean = nats.mean().and_then(finite);
        let error = nats.standard_error().and_then(finite);
        let perplexity = mean.and_then(|mean| finite(mean.exp()));
        Self {
            tokens: nats.n(),
            nats_per_token: mean,
            standard_error_nats: error,
            perplexity,
            standard_error_perplexity: perplexity
                .zip(error)
                .and_then(|(perplexity, error)| finite(perplexity * error)),
        }
    }
}

impl From<&Moments> for Accuracy {
    fn from(shares: &Moments) -> Self {
        Self {
            value: shares.mean(),
            standard_error: shares.standard_error(),
        }
    }
}

impl PerplexityReport {
    /// The losses of a text that was cut by `windows`.
    #[must_use]
    pub fn new(score: &TextScore, windows: Windows) -> Self {
        let tokens: u64 = score.documents.iter().map(|d| d.tokens as u64).sum();
        let position = |bin: &audit::eval::PositionBin| PositionLoss {
            from: bin.from as u64,
            to: bin.to as u64,
            loss: (&bin.nats).into(),
        };
        let document = |(index, one): (usize, &audit::eval::DocumentScore)| DocumentLoss {
            document: index as u64,
            length: one.tokens as u64,
            loss: (&one.nats).into(),
        };
        Self {
            length: windows.length() as u64,
            stride: windows.stride() as u64,
            chunk: None,
            windows: score
                .documents
                .iter()
                .map(|document| windows.of(document.tokens).count() as u64)
                .sum(),
            tokens_without_context: tokens - score.nats.n(),
            all: (&score.nats).into(),
            standard_error_nats_by_document: score.standard_error_by_document().and_then(finite),
            // a bin that no token fell into is no result
            by_position: score
                .positions
                .iter()
                .filter(|bin| bin.nats.n() > 0)
                .map(position)
                .collect(),
            documents: score.documents.iter().enumerate().map(document).collect(),
        }
    }
}

impl From<&ItemScore> for TaskOutcome {
    fn from(score: &ItemScore) -> Self {
        let gold = score.alternatives.get(score.gold);
        Self {
            correct: score.correct,
            correct_by_character: score.predicted_by_character.map(|at| at == score.gold),
            correct_by_byte: score.predicted_by_byte.map(|at| at == score.gold),
            gold_nats: gold.and_then(|gold| finite(-gold.log_likelihood)),
        }
    }
}

impl TaskItemRecord {
    /// Item number `item`.
    #[must_use]
    pub fn new(item: usize, score: &ItemScore) -> Self {
        let index = |at: Option<usize>| at.map(|at| at as u64);
        let alternative = |one: &audit::eval::AlternativeScore| AlternativeRecord {
            log_likelihood: finite(one.log_likelihood),
            tokens: one.tokens as u64,
            characters: one.characters as u64,
            bytes: one.bytes as u64,
            greedy: one.greedy,
            merged: one.merged,
        };
        Self {
            item: item as u64,
            gold: score.gold as u64,
            predicted: score.predicted as u64,
            predicted_by_character: index(score.predicted_by_character),
            predicted_by_byte: index(score.predicted_by_byte),
            correct: score.correct,
            alternatives: score.alternatives.iter().map(alternative).collect(),
        }
    }
}
