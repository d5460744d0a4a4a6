//! Checkpoints, configurations, tokenizers and specification files, lowered into model specifications.
