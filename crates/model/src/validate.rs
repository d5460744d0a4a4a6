//! Checks a specification before any weight is read.

use numerics::{BiasForm, BiasShape};

use crate::error::SpecError;
use crate::spec::{Arrangement, ModelSpec, NormSpec, ResidualFrom};

impl ModelSpec {
    /// Whether the forward pass can run this model; the error names the first field that does not fit.
    ///
    /// # Errors
    /// A size of 0, head counts that do not divide, a scale or bound that is not a positive finite number, a slope list of
    /// the wrong length, a combination that has no meaning.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.validate_sizes()?;
        self.validate_numbers()?;
        self.validate_block()?;
        self.validate_alibi()
    }

    fn validate_sizes(&self) -> Result<(), SpecError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("width", self.width),
            ("n_layers", self.n_layers),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("head_width", self.head_width),
            ("block.mlp.hidden", self.block.mlp.hidden),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return fail(format!("{name} is 0"));
        }
        if u32::try_from(self.vocab_size).is_err() {
            return fail(format!(
                "vocab_size is {}, token ids are 32 bits",
                self.vocab_size
            ));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return fail(format!(
                "n_kv_heads is {}, expected a divisor of n_heads {}",
                self.n_kv_heads, self.n_heads
            ));
        }
        let products = [
            ("vocab_size * width", self.vocab_size, self.width),
            ("n_heads * head_width", self.n_heads, self.head_width),
            (
                "block.mlp.hidden * width",
                self.block.mlp.hidden,
                self.width,
            ),
        ];
        // Bytes of f32 must be addressable, with room to spare.
        for (name, a, b) in products {
            if a.checked_mul(b)
                .is_none_or(|n| n > isize::MAX as usize / 16)
            {
                return fail(format!("{name} is {a} * {b}, too large"));
            }
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), SpecError> {
        let attention = &self.block.attention;
        let factors = [
            ("embedding.scale", Some(self.embedding.scale)),
            ("head.logit_scale", Some(self.head.logit_scale)),
            ("head.soft_cap", self.head.soft_cap),
            ("block.attention.scale", Some(attention.scale)),
            ("block.attention.clip_qkv", attention.clip_qkv),
        ];
        for (name, value) in factors {
            if let Some(value) = value
                && !(value.is_finite() && value > 0.0)
            {
                return fail(format!("{name} is {value}, expected a positive number"));
            }
        }
        let norms: [(&str, Option<&NormSpec>); 4] = [
            ("embedding.norm", self.embedding.norm.as_ref()),
            ("block.norm", Some(&self.block.norm)),
            (
                "block.attention.qk_norm",
                attention.qk_norm.as_ref().map(|n| &n.norm),
            ),
            ("final_norm", self.final_norm.as_ref()),
        ];
        for (name, norm) in norms {
            if let Some(norm) = norm
                && !(norm.eps.is_finite() && norm.eps >= 0.0)
            {
                return fail(format!("{name}.eps is {}, expected 0 or more", norm.eps));
            }
        }
        Ok(())
    }

    fn validate_block(&self) -> Result<(), SpecError> {
        let block = &self.block;
        if block.attention.output.is_none() && self.query_width() != self.width {
            return fail(format!(
                "without block.attention.output the heads must fill the stream: n_heads * head_width is {}, width is {}",
                self.query_width(),
                self.width
            ));
        }
        if block.arrangement != Arrangement::Sequential && block.mlp_residual == ResidualFrom::Norm
        {
            return fail(
                "block.mlp_residual is Norm in a parallel block, whose only residual is block.attention_residual".into(),
            );
        }
        Ok(())
    }

    fn validate_alibi(&self) -> Result<(), SpecError> {
        let (alibi, convention) = (&self.alibi, &self.alibi.convention);
        if alibi.slopes.len() != self.n_heads {
            return fail(format!(
                "alibi.slopes has {} entries, expected one for each of {} heads",
                alibi.slopes.len(),
                self.n_heads
            ));
        }
        if let Some(head) = alibi
            .slopes
            .iter()
            .position(|m| !(m.is_finite() && *m >= 0.0))
        {
            return fail(format!(
                "alibi.slopes[{head}] is {}, expected a finite number, 0 or more",
                alibi.slopes[head]
            ));
        }
        if let Err(error) = alibi.bias.validate(self.n_heads) {
            return fail(format!("alibi.bias: {error}"));
        }
        if !convention.causal {
            if convention.form == BiasForm::KeyPosition {
                return fail(
                    "alibi.convention: a key-position bias equals ALiBi only under a causal mask, and this model is not causal"
                        .into(),
                );
            }
            if let BiasShape::T5Buckets {
                bidirectional: true,
                ..
            } = alibi.bias.shape
            {
                return fail(
                    "alibi.bias: bidirectional T5 buckets tell the direction, which bias tables by distance cannot; not supported"
                        .into(),
                );
            }
        }
        Ok(())
    }
}

fn fail(message: String) -> Result<(), SpecError> {
    Err(SpecError(message))
}
