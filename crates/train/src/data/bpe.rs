//! A byte-level BPE tokenizer of one's own, by the `tokenizers` crate.

use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, TokenizerBuilder};

use crate::data::documents::SEPARATOR;
use crate::error::TrainError;

/// Smallest vocabulary: every byte and the separator.
pub const VOCAB_MIN: usize = 257;

/// The text of a `tokenizer.json` with at most `vocab` entries, trained on `texts`. Id 0 is the separator of documents.
///
/// # Errors
/// A vocabulary below [`VOCAB_MIN`], and what the crate says.
pub fn train<'t>(
    texts: impl Iterator<Item = &'t str> + Send,
    vocab: usize,
) -> Result<String, TrainError> {
    if vocab < VOCAB_MIN {
        return Err(TrainError::config(format!(
            "a vocabulary of {vocab}: expected at least {VOCAB_MIN}, every byte and the separator of documents"
        )));
    }
    let fail = |e: tokenizers::Error| TrainError::config(format!("tokenizer: {e}"));
    let level = ByteLevel::new(false, true, true);
    let mut tokenizer =
        TokenizerBuilder::<BPE, NormalizerWrapper, ByteLevel, ByteLevel, ByteLevel>::default()
            .with_model(BPE::default())
            .with_normalizer(None)
            .with_pre_tokenizer(Some(level))
            .with_post_processor(Some(level))
            .with_decoder(Some(level))
            .build()
            .map_err(fail)?;
    let mut trainer = BpeTrainer::builder()
        .vocab_size(vocab)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(SEPARATOR, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    tokenizer.train(&mut trainer, texts).map_err(fail)?;
    tokenizer.to_string(false).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_and_training_repeats() {
        let texts: Vec<String> = (0..200)
            .map(|i| {
                format!(
                    "the cat number {i} sat on the mat; the dog {} did not",
                    i * 7
                )
            })
            .collect();
        let run = || train(texts.iter().map(String::as_str), 300).unwrap();
        let json = run();
        assert_eq!(json, run());
        let tokenizer: tokenizers::Tokenizer = json.parse().unwrap();
        assert_eq!(tokenizer.token_to_id(SEPARATOR), Some(0));
        assert_eq!(tokenizer.get_vocab_size(true), 300);
        let text = "the cat \u{e9}\u{4e2d}\u{1f600}\n\tx";
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text);
        assert!(train(texts.iter().map(String::as_str), 256).is_err());
    }
}
