//! All parameters of a decoder in one slice: names, shapes, places, first values.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::rng::{self, Stream};
use crate::shape::{MlpKind, ModelShape, NormKind, Position};

/// One parameter tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in checkpoints, e.g. `layers.0.qkv.weight`.
    pub name: String,
    /// Shape; matrices are `[out, in]`.
    pub shape: Vec<usize>,
    /// Place in the slice.
    pub range: Range<usize>,
    /// Whether weight decay applies: to matrices, not to norms, biases and position parameters.
    pub decay: bool,
}

/// Places of one block's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerParams {
    pub(crate) norm1: Affine,
    pub(crate) qkv: Affine,
    pub(crate) out: Affine,
    pub(crate) norm2: Affine,
    /// SwiGLU only.
    pub(crate) gate: Option<Affine>,
    pub(crate) up: Affine,
    pub(crate) down: Affine,
}

/// A weight and its bias, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Option<Range<usize>>,
}

/// Where every parameter lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In order of their places.
    pub params: Vec<Param>,
    pub(crate) embedding: Range<usize>,
    pub(crate) layers: Vec<LayerParams>,
    pub(crate) norm: Affine,
    /// The output head's own matrix, if it is not the embedding.
    pub(crate) head: Option<Range<usize>>,
    /// KERPLE: `ln p` then `ln a`, `[2, heads]`. T5: `[heads, buckets]`.
    pub(crate) position: Option<Range<usize>>,
}

struct Builder {
    params: Vec<Param>,
    at: usize,
}

impl Builder {
    fn add(&mut self, name: String, shape: &[usize], decay: bool) -> Range<usize> {
        let n: usize = shape.iter().product();
        let range = self.at..self.at + n;
        self.at += n;
        self.params.push(Param {
            name,
            shape: shape.to_vec(),
            range: range.clone(),
            decay,
        });
        range
    }

    fn affine(&mut self, name: &str, shape: &[usize], bias: bool) -> Affine {
        let matrix = shape.len() > 1;
        Affine {
            weight: self.add(format!("{name}.weight"), shape, matrix),
            bias: bias.then(|| self.add(format!("{name}.bias"), &shape[..1], false)),
        }
    }
}

impl Layout {
    /// The layout of a decoder.
    pub fn new(shape: &ModelShape, position: &Position) -> Self {
        let mut b = Builder {
            params: Vec::new(),
            at: 0,
        };
        let (width, hidden, bias) = (shape.width, shape.hidden, shape.bias);
        let norm_bias = bias && shape.norm == NormKind::LayerNorm;
        let embedding = b.add("embedding.weight".into(), &[shape.vocab, width], true);
        let layers = (0..shape.layers)
            .map(|l| {
                let at = |part: &str| format!("layers.{l}.{part}");
                LayerParams {
                    norm1: b.affine(&at("norm1"), &[width], norm_bias),
                    qkv: b.affine(&at("qkv"), &[3 * width, width], bias),
                    out: b.affine(&at("out"), &[width, width], bias),
                    norm2: b.affine(&at("norm2"), &[width], norm_bias),
                    gate: (shape.mlp == MlpKind::Swiglu)
                        .then(|| b.affine(&at("gate"), &[hidden, width], bias)),
                    up: b.affine(&at("up"), &[hidden, width], bias),
                    down: b.affine(&at("down"), &[width, hidden], bias),
                }
            })
            .collect();
        let norm = b.affine("norm", &[width], norm_bias);
        let head = (!shape.tied).then(|| b.add("head.weight".into(), &[shape.vocab, width], true));
        let position = match position {
            Position::Fixed { .. } | Position::Rope { .. } => None,
            Position::KerpleLog { .. } => {
                Some(b.add("position.kerple_ln".into(), &[2, shape.heads], false))
            }
            Position::T5 { buckets, .. } => {
                Some(b.add("position.t5".into(), &[shape.heads, *buckets], false))
            }
        };
        Self {
            params: b.params,
            embedding,
            layers,
            norm,
            head,
            position,
        }
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.params.last().map_or(0, |p| p.range.end)
    }

    /// Never: every decoder has an embedding.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First values: matrices normal with the deviations of `init`, norms 1, biases 0. Each tensor has its own random stream, named
    /// by seed and name.
    pub fn initial(
        &self,
        shape: &ModelShape,
        position: &Position,
        init: Init,
        seed: u64,
    ) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        for param in &self.params {
            let to = &mut values[param.range.clone()];
            let leaf = param.name.rsplit('.').nth(1).unwrap_or_default();
            if param.shape.len() == 2 && param.decay {
                let deviation = init.deviation(leaf, param.shape[1], shape);
                let mut stream = Stream::of(&[seed, rng::name(&param.name)]);
                for pair in to.chunks_mut(2) {
                    let (a, b) = stream.normal_pair();
                    pair[0] = (a * deviation) as f32;
                    if let Some(second) = pair.get_mut(1) {
                        *second = (b * deviation) as f32;
                    }
                }
            } else if leaf.starts_with("norm") && param.name.ends_with(".weight") {
                to.fill(1.0);
            }
        }
        if let (Some(range), Position::KerpleLog { slopes }) = (&self.position, position) {
            // ln a = 0 already.
            for (to, slope) in values[range.clone()].iter_mut().zip(slopes) {
                *to = slope.ln() as f32;
            }
        }
        values
    }
}

/// Deviation of the first values of matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// 0.02; in the matrices that write into the residual stream `0.02 / sqrt(2 layers)`.
    #[default]
    Gpt2,
    /// `1 / sqrt(inputs)`, half of that in the matrices that write into the residual stream; the embedding 1, its own head 0.02, a
    /// tied embedding `1 / sqrt(width)`. At widths of a hundred or less 0.02 leaves the first scores of attention near zero, and heads that
    /// must find one another, as recall of pairs needs, take many times longer to do so.
    FanIn,
}

impl Init {
    fn deviation(self, leaf: &str, inputs: usize, shape: &ModelShape) -> f64 {
        let residual = matches!(leaf, "out" | "down");
        match (self, leaf) {
            (Self::Gpt2, _) if residual => 0.02 / (2.0 * shape.layers as f64).sqrt(),
            (Self::Gpt2, _) | (Self::FanIn, "head") => 0.02,
            (Self::FanIn, "embedding") if !shape.tied => 1.0,
            (Self::FanIn, _) if residual => 0.5 / (inputs as f64).sqrt(),
            (Self::FanIn, _) => 1.0 / (inputs as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::PositionConfig;

    #[test]
    fn every_place_belongs_to_one_parameter() {
        let shape = ModelShape {
            layers: 2,
            width: 16,
            heads: 4,
            hidden: 40,
            vocab: 33,
            context: 8,
            norm: NormKind::LayerNorm,
            mlp: MlpKind::Swiglu,
            tied: false,
            bias: true,
            dropout: 0.0,
        };
        let position = PositionConfig::default().resolve(4, 8).unwrap();
        let layout = Layout::new(&shape, &position);
        let mut end = 0;
        for param in &layout.params {
            assert_eq!(param.range.start, end, "{}", param.name);
            assert_eq!(param.range.len(), param.shape.iter().product::<usize>());
            end = param.range.end;
        }
        // embedding and head; per layer qkv, out, gate, up, down with biases and two norms; the last norm.
        let layer = 3 * 16 * 17 + 16 * 17 + 2 * 40 * 17 + 16 * 41 + 4 * 16;
        assert_eq!(end, 2 * 33 * 16 + 2 * layer + 2 * 16);
        let values = layout.initial(&shape, &position, Init::Gpt2, 7);
        assert!(values == layout.initial(&shape, &position, Init::Gpt2, 7));
        assert!(values != layout.initial(&shape, &position, Init::Gpt2, 8));
        let deviation_of = |values: &[f32], name: &str| {
            let p = layout.params.iter().find(|p| p.name == name).unwrap();
            let v = &values[p.range.clone()];
            (v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / v.len() as f64).sqrt()
        };
        let deviation = |name: &str| deviation_of(&values, name);
        // 528 and 256 values: a deviation is known to 1/sqrt(2n), taken five times.
        assert!((deviation("embedding.weight") / 0.02 - 1.0).abs() < 0.16);
        assert!((deviation("layers.1.out.weight") / 0.01 - 1.0).abs() < 0.23);
        assert_eq!(deviation("layers.0.norm2.weight"), 1.0);
        assert_eq!(deviation("layers.0.up.bias"), 0.0);

        let values = layout.initial(&shape, &position, Init::FanIn, 7);
        let deviation = |name: &str| deviation_of(&values, name);
        assert!((deviation("embedding.weight") - 1.0).abs() < 0.16);
        assert!((deviation("head.weight") / 0.02 - 1.0).abs() < 0.16);
        assert!((deviation("layers.1.out.weight") / 0.125 - 1.0).abs() < 0.23);
        assert!((deviation("layers.1.up.weight") / 0.25 - 1.0).abs() < 0.16);
    }
}
