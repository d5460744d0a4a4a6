//! `snellen inspect`: what the files say, without reading a weight.

use super::{Envelope, Outcome};
use serde::{Deserialize, Serialize};

/// The facts of a checkpoint's headers and configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InspectReport {
    /// Common head of every document.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// How the family forms and applies the bias.
    pub alibi: AlibiFacts,
    /// Whether the bias reaches the scores at all.
    pub self_check: Vec<SelfCheck>,
    /// Number of parameters in the weight files; `null` without weights.
    pub parameters: Option<u64>,
    /// Bytes of all tensors; `null` without weights.
    pub tensor_bytes: Option<u64>,
    /// Tensors and parameters by number format.
    pub dtypes: Vec<DtypeCount>,
    /// Tensors with the layer number folded to `N`.
    pub tensors_folded: Vec<FoldedTensor>,
    /// Every tensor.
    pub tensors: Vec<TensorRow>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// ALiBi as the family's own implementation has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlibiFacts {
    /// `key-position` (slope times key index) or `relative` (slope times distance).
    pub form: String,
    /// Which key the bias counts from.
    pub key_origin: String,
    /// Whether the bias is added `after-scale` or `before-scale` (and so is scaled with the scores).
    pub scale_order: String,
    /// Rounding of the stored bias that the family fixes; `null` where the runtime and its dtype decide (docs/NUMERICS.md, Plans).
    pub storage: Option<String>,
    /// Factor on the query-key product.
    pub score_scale: Option<f64>,
    /// Rule the slopes come from.
    pub slope_rule: String,
    /// Slopes, one a head.
    pub slopes: Vec<f64>,
    /// Slopes after the scale that the family applies to the bias.
    pub effective_slopes: Vec<f64>,
}

/// One self-check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SelfCheck {
    /// What was checked.
    pub check: String,
    /// Whether it holds; `null` when it could not be checked.
    pub holds: Option<bool>,
    /// The numbers behind it, or why it could not be checked.
    pub detail: String,
}

/// Tensors of one number format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DtypeCount {
    /// Format as the file names it.
    pub dtype: String,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of parameters.
    pub parameters: u64,
}

/// Tensors whose names differ only in the layer number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FoldedTensor {
    /// Name with the layer number replaced by `N`.
    pub pattern: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Format as the file names it.
    pub dtype: String,
    /// How many tensors share the pattern, the shape and the format.
    pub count: u64,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TensorRow {
    /// Name.
    pub name: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Format as the file names it.
    pub dtype: String,
    /// Bytes in the file.
    pub bytes: u64,
    /// File it lies in, relative to the model.
    pub file: Option<String>,
}

impl FoldedTensor {
    /// Folds tensors over their layer numbers, in order of first appearance.
    #[must_use]
    pub fn fold(rows: &[TensorRow]) -> Vec<Self> {
        let mut folded: Vec<Self> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        for row in rows {
            let key = (pattern(&row.name), row.shape.clone(), row.dtype.clone());
            let index = *seen
                .entry(key)
                .or_insert_with_key(|(pattern, shape, dtype)| {
                    folded.push(Self {
                        pattern: pattern.clone(),
                        shape: shape.clone(),
                        dtype: dtype.clone(),
                        count: 0,
                    });
                    folded.len() - 1
                });
            folded[index].count += 1;
        }
        folded
    }
}

/// Replaces every dotted component that is a whole number by `N`.
fn pattern(name: &str) -> String {
    let fold = |part| if is_number(part) { "N" } else { part };
    name.split('.').map(fold).collect::<Vec<_>>().join(".")
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_fold_and_different_shapes_do_not() {
        let row = |name: &str, shape: &[u64]| TensorRow {
            name: name.to_owned(),
            shape: shape.to_vec(),
            dtype: "F32".to_owned(),
            bytes: 0,
            file: None,
        };
        let folded = FoldedTensor::fold(&[
            row("h.0.w", &[4]),
            row("h.1.w", &[4]),
            row("h.2.w", &[5]),
            row("ln_f.w2", &[4]),
        ]);
        let found: Vec<_> = folded
            .iter()
            .map(|tensor| (tensor.pattern.as_str(), tensor.count))
            .collect();
        assert_eq!(found, [("h.N.w", 2), ("h.N.w", 1), ("ln_f.w2", 1)]);
    }
}
