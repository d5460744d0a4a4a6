//! Where weights come from, and what each is called.

use std::fmt;
use std::ops::Range;

use crate::spec::{ModelSpec, NormSpec, QkNormExtent};

/// What a weight is for. Together with the [`ModelSpec`] it fixes the shape, see [`ModelSpec::weight_shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// Token embedding, `[vocab_size, width]`.
    Embedding,
    /// Norm after the embedding, `[width]`.
    EmbeddingNormWeight,
    /// Norm after the embedding, `[width]`.
    EmbeddingNormBias,
    /// A weight of a block.
    Layer(usize, LayerRole),
    /// Norm before the head, `[width]`.
    FinalNormWeight,
    /// Norm before the head, `[width]`.
    FinalNormBias,
    /// Untied output head, `[vocab_size, width]`.
    Head,
}

/// What a weight of a block is for. Linear weights are `[out, in]`, heads in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the names say it; shapes are in `ModelSpec::weight_shape`"
)]
pub enum LayerRole {
    Norm1Weight,
    Norm1Bias,
    QueryWeight,
    QueryBias,
    KeyWeight,
    KeyBias,
    ValueWeight,
    ValueBias,
    QueryNormWeight,
    QueryNormBias,
    KeyNormWeight,
    KeyNormBias,
    OutputWeight,
    OutputBias,
    Norm2Weight,
    Norm2Bias,
    UpWeight,
    UpBias,
    GateWeight,
    GateBias,
    DownWeight,
    DownBias,
}

impl LayerRole {
    /// Every role, in the order in which a block uses them.
    pub const ALL: [LayerRole; 22] = [
        LayerRole::Norm1Weight,
        LayerRole::Norm1Bias,
        LayerRole::QueryWeight,
        LayerRole::QueryBias,
        LayerRole::KeyWeight,
        LayerRole::KeyBias,
        LayerRole::ValueWeight,
        LayerRole::ValueBias,
        LayerRole::QueryNormWeight,
        LayerRole::QueryNormBias,
        LayerRole::KeyNormWeight,
        LayerRole::KeyNormBias,
        LayerRole::OutputWeight,
        LayerRole::OutputBias,
        LayerRole::Norm2Weight,
        LayerRole::Norm2Bias,
        LayerRole::GateWeight,
        LayerRole::GateBias,
        LayerRole::UpWeight,
        LayerRole::UpBias,
        LayerRole::DownWeight,
        LayerRole::DownBias,
    ];

    /// The role in words, e.g. `query weight`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Norm1Weight => "first norm weight",
            Self::Norm1Bias => "first norm bias",
            Self::QueryWeight => "query weight",
            Self::QueryBias => "query bias",
            Self::KeyWeight => "key weight",
            Self::KeyBias => "key bias",
            Self::ValueWeight => "value weight",
            Self::ValueBias => "value bias",
            Self::QueryNormWeight => "query norm weight",
            Self::QueryNormBias => "query norm bias",
            Self::KeyNormWeight => "key norm weight",
            Self::KeyNormBias => "key norm bias",
            Self::OutputWeight => "output weight",
            Self::OutputBias => "output bias",
            Self::Norm2Weight => "second norm weight",
            Self::Norm2Bias => "second norm bias",
            Self::UpWeight => "up weight",
            Self::UpBias => "up bias",
            Self::GateWeight => "gate weight",
            Self::GateBias => "gate bias",
            Self::DownWeight => "down weight",
            Self::DownBias => "down bias",
        }
    }
}

impl fmt::Display for WeightRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::EmbeddingNormWeight => f.write_str("embedding norm weight"),
            Self::EmbeddingNormBias => f.write_str("embedding norm bias"),
            Self::Layer(layer, role) => write!(f, "layer {layer} {}", role.name()),
            Self::FinalNormWeight => f.write_str("final norm weight"),
            Self::FinalNormBias => f.write_str("final norm bias"),
            Self::Head => f.write_str("output head"),
        }
    }
}

/// A weight widened to f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Dimensions, outermost first. Linear weights are `[out, in]`.
    pub shape: Vec<usize>,
    /// Row-major values.
    pub data: Vec<f32>,
}

impl Weight {
    /// A weight; panics when the shape does not hold exactly the data, which is a mistake of the caller.
    pub fn new(shape: Vec<usize>, data: Vec<f32>) -> Self {
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "shape {shape:?} against {} values",
            data.len()
        );
        Self { shape, data }
    }
}

/// Why a weight could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// The source has no such weight.
    #[error("{role}: missing{}", in_brackets(detail))]
    Missing {
        /// Which weight.
        role: WeightRole,
        /// File and tensor names tried, if any.
        detail: String,
    },
    /// The source has it but could not read it.
    #[error("{role}: {message}")]
    Read {
        /// Which weight.
        role: WeightRole,
        /// File, tensor, what was expected and what was found.
        message: String,
    },
    /// The shape is not the one the model needs.
    #[error("{role}: shape {found:?}, expected {expected:?}")]
    Shape {
        /// Which weight.
        role: WeightRole,
        /// From the [`ModelSpec`].
        expected: Vec<usize>,
        /// From the source.
        found: Vec<usize>,
    },
    /// A value is NaN or infinite.
    #[error("{role}: element {index:?} is {value}, {count} values in all are not finite")]
    NotFinite {
        /// Which weight.
        role: WeightRole,
        /// Position of the first such value.
        index: Vec<usize>,
        /// NaN or an infinity.
        value: f32,
        /// How many there are.
        count: u64,
    },
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" ({text})")
    }
}

/// Hands out weights, widened to f32 and with every quirk of a file layout undone.
///
/// The forward pass asks for one layer at a time and drops it before the next, so a source over a memory map never has
/// more than a layer of f32 alive.
pub trait WeightSource: Send + Sync {
    /// The whole weight.
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError>;

    /// Some rows (first dimension) of a weight. The embedding and the head are read through this, in blocks; a source
    /// that can read part of a tensor should override it. The default reads everything and keeps the rows.
    fn rows(&self, role: WeightRole, rows: Range<usize>) -> Result<Weight, WeightError> {
        let whole = self.weight(role)?;
        let n_rows = whole.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > n_rows {
            return Err(WeightError::Read {
                role,
                message: format!("rows {rows:?} of {n_rows} asked for"),
            });
        }
        let stride: usize = whole.shape[1..].iter().product();
        let mut shape = whole.shape.clone();
        shape[0] = rows.len();
        let data = whole.data[rows.start * stride..rows.end * stride].to_vec();
        Ok(Weight { shape, data })
    }

    /// Whether [`WeightSource::rows`] reads only what is asked for. When `false` the model reads such a weight once and
    /// cuts it itself.
    fn has_cheap_rows(&self) -> bool {
        false
    }

    /// Says that these weights will be asked for next, so that a source over files may begin to read them while the ones before are
    /// computed with. A hint: the default does nothing.
    fn read_ahead(&self, roles: &[WeightRole]) {
        let _ = roles;
    }

    /// Says that these weights will not be asked for again in this pass, so that a source over a memory map may let go of
    /// their pages. A hint: asking again gives the same values. The default does nothing.
    fn release(&self, roles: &[WeightRole]) {
        let _ = roles;
    }
}

impl ModelSpec {
    /// Shape of a weight; `None` when this model has no such weight.
    pub fn weight_shape(&self, role: WeightRole) -> Option<Vec<usize>> {
        let norm_bias = |norm: Option<&NormSpec>| norm.is_some_and(|n| n.has_bias);
        let width = self.width;
        let shape = |keep: bool, shape: &[usize]| keep.then(|| shape.to_vec());
        match role {
            WeightRole::Embedding => Some(vec![self.vocab_size, width]),
            WeightRole::EmbeddingNormWeight => shape(self.embedding.norm.is_some(), &[width]),
            WeightRole::EmbeddingNormBias => {
                shape(norm_bias(self.embedding.norm.as_ref()), &[width])
            }
            WeightRole::Layer(layer, role) => {
                if layer < self.n_layers {
                    self.layer_weight_shape(role)
                } else {
                    None
                }
            }
            WeightRole::FinalNormWeight => shape(self.final_norm.is_some(), &[width]),
            WeightRole::FinalNormBias => shape(norm_bias(self.final_norm.as_ref()), &[width]),
            WeightRole::Head => shape(!self.head.tied, &[self.vocab_size, width]),
        }
    }

    fn layer_weight_shape(&self, role: LayerRole) -> Option<Vec<usize>> {
        let (width, q, kv) = (self.width, self.query_width(), self.kv_width());
        let (attention, mlp) = (&self.block.attention, &self.block.mlp);
        let qk_norm = attention.qk_norm.as_ref();
        let qk_bias = qk_norm.is_some_and(|n| n.norm.has_bias);
        let qk_shape = |full: usize| match qk_norm.map(|n| n.extent) {
            Some(QkNormExtent::PerHead) => vec![self.head_width],
            _ => vec![full],
        };
        let (keep, shape) = match role {
            LayerRole::Norm1Weight => (true, vec![width]),
            LayerRole::Norm1Bias => (self.block.norm.has_bias, vec![width]),
            LayerRole::QueryWeight => (true, vec![q, width]),
            LayerRole::QueryBias => (attention.qkv_bias, vec![q]),
            LayerRole::KeyWeight | LayerRole::ValueWeight => (true, vec![kv, width]),
            LayerRole::KeyBias | LayerRole::ValueBias => (attention.qkv_bias, vec![kv]),
            LayerRole::QueryNormWeight => (qk_norm.is_some(), qk_shape(q)),
            LayerRole::QueryNormBias => (qk_bias, qk_shape(q)),
            LayerRole::KeyNormWeight => (qk_norm.is_some(), qk_shape(kv)),
            LayerRole::KeyNormBias => (qk_bias, qk_shape(kv)),
            LayerRole::OutputWeight => (attention.output.is_some(), vec![width, q]),
            LayerRole::OutputBias => (attention.output.is_some_and(|o| o.bias), vec![width]),
            LayerRole::Norm2Weight => (self.has_second_norm(), vec![width]),
            LayerRole::Norm2Bias => (
                self.has_second_norm() && self.block.norm.has_bias,
                vec![width],
            ),
            LayerRole::UpWeight => (true, vec![mlp.hidden, width]),
            LayerRole::UpBias => (mlp.bias, vec![mlp.hidden]),
            LayerRole::GateWeight => (mlp.gated, vec![mlp.hidden, width]),
            LayerRole::GateBias => (mlp.gated && mlp.bias, vec![mlp.hidden]),
            LayerRole::DownWeight => (true, vec![width, mlp.hidden]),
            LayerRole::DownBias => (mlp.bias, vec![width]),
        };
        keep.then_some(shape)
    }

    /// The weights of one block, in the order in which the forward pass uses them; none past the last block.
    pub fn layer_roles(&self, layer: usize) -> Vec<WeightRole> {
        let roles = LayerRole::ALL.map(|role| WeightRole::Layer(layer, role));
        let has = |role: &WeightRole| self.weight_shape(*role).is_some();
        roles.into_iter().filter(has).collect()
    }

    /// Every weight of this model, in the order in which the forward pass uses them.
    pub fn weight_roles(&self) -> Vec<WeightRole> {
        let before = [
            WeightRole::Embedding,
            WeightRole::EmbeddingNormWeight,
            WeightRole::EmbeddingNormBias,
        ];
        let layers = (0..self.n_layers)
            .flat_map(|layer| LayerRole::ALL.map(|role| WeightRole::Layer(layer, role)));
        let after = [
            WeightRole::FinalNormWeight,
            WeightRole::FinalNormBias,
            WeightRole::Head,
        ];
        let all = before.into_iter().chain(layers).chain(after);
        all.filter(|&role| self.weight_shape(role).is_some())
            .collect()
    }
}

impl Weight {
    /// Refuses another shape than `expected`, NaN and infinities.
    ///
    /// # Errors
    /// What was found, and for values where the first is and how many there are.
    pub fn check(&self, role: WeightRole, expected: &[usize]) -> Result<(), WeightError> {
        if self.shape != expected || self.data.len() != expected.iter().product::<usize>() {
            return Err(WeightError::Shape {
                role,
                expected: expected.to_vec(),
                found: self.shape.clone(),
            });
        }
        check_finite(role, self, 0)
    }
}

/// Whether none of these values is NaN or infinite, at the speed of memory.
pub fn all_finite(values: &[f32]) -> bool {
    // A loop over all-ones exponents without an exit becomes vectors; a search for the first does not.
    const BLOCK: usize = 4096;
    let bad = |x: &f32| u32::from(x.to_bits() & 0x7f80_0000 == 0x7f80_0000);
    let any = |block: &[f32]| block.iter().fold(0, |any, x| any | bad(x)) != 0;
    !values.chunks(BLOCK).any(any)
}

/// Refuses NaN and infinities, whose effect on every later number would be silent. `first_row` is added to the row reported.
pub(crate) fn check_finite(
    role: WeightRole,
    weight: &Weight,
    first_row: usize,
) -> Result<(), WeightError> {
    if all_finite(&weight.data) {
        return Ok(());
    }
    let mut bad = weight
        .data
        .iter()
        .enumerate()
        .filter(|(_, x)| !x.is_finite());
    let Some((flat, &value)) = bad.next() else {
        return Ok(());
    };
    let count = 1 + bad.count() as u64;
    let mut index = Vec::with_capacity(weight.shape.len());
    let mut rest = flat;
    for &size in weight.shape.iter().rev() {
        index.push(rest % size);
        rest /= size;
    }
    index.reverse();
    if let Some(row) = index.first_mut() {
        *row += first_row;
    }
    Err(WeightError::NotFinite {
        role,
        index,
        value,
        count,
    })
}
