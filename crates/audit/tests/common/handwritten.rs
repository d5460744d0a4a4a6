//! Weights written by hand, and the horizon that their slope has.

use std::collections::BTreeMap;

use model::{ModelSpec, Weight, WeightError, WeightRole, WeightSource};
use numerics::{Criterion, HorizonInput, PrecisionPlan, horizon};

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
