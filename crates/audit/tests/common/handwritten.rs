//! Weights written by hand, and the horizon that their slope has.

use std::collections::BTreeMap;

use model::{LayerRole, ModelSpec, NormKind, Weight, WeightError, WeightRole, WeightSource};
use numerics::{Criterion, Family, HorizonInput, PrecisionPlan, horizon};

/// Every weight of a model: zero but where it was set.
pub(crate) struct Handwritten(BTreeMap<WeightRole, Weight>);

impl Handwritten {
    pub(crate) fn zeros(spec: &ModelSpec) -> Self {
        let zeros = spec.weight_roles().into_iter().map(|role| {
            let shape = spec.weight_shape(role).unwrap();
            let n = shape.iter().product();
            (role, Weight::new(shape, vec![0.0; n]))
        });
        Self(zeros.collect())
    }

    /// A model of one layer and one head of this slope, with queries and keys of zero, so that attention is the bias alone. Norms keep
    /// directions, and every token has 1 in the channel `constant`.
    pub(crate) fn bias_alone(
        slope: f64,
        vocab: usize,
        width: usize,
        head_width: usize,
        constant: usize,
    ) -> (ModelSpec, Self) {
        let mut spec = super::spec(Family::Bloom, &[slope]);
        spec.vocab_size = vocab;
        spec.width = width;
        spec.head_width = head_width;
        spec.block.norm.kind = NormKind::RmsNorm;
        spec.block.norm.has_bias = false;
        spec.head.tied = false;
        let mut weights = Self::zeros(&spec);
        for channel in 0..width {
            for norm in [LayerRole::Norm1Weight, LayerRole::Norm2Weight] {
                weights.set(WeightRole::Layer(0, norm), 0, channel, 1.0);
            }
        }
        for token in 0..vocab {
            weights.set(WeightRole::Embedding, token, constant, 1.0);
        }
        (spec, weights)
    }

    pub(crate) fn set(&mut self, role: WeightRole, row: usize, column: usize, value: f32) {
        let weight = self.0.get_mut(&role).unwrap();
        let width = *weight.shape.last().unwrap();
        weight.data[row * width + column] = value;
    }
}

impl WeightSource for Handwritten {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        Ok(self.0[&role].clone())
    }
}

/// The first distance at which the weight is zero in f32, for a row whose largest score is its own and has no content.
pub(crate) fn first_blind(spec: &ModelSpec, length: usize) -> usize {
    let plan = PrecisionPlan::parse("ieee", spec.family).unwrap();
    let input = HorizonInput {
        slopes: &spec.alibi.slopes,
        scale_before: 1.0,
        bias: &spec.alibi.bias,
        plan: &plan,
        criterion: Criterion::Exp,
        length: length as u64,
        causal: true,
    };
    horizon(&input).unwrap()[0].first_blind_distance.unwrap() as usize
}
