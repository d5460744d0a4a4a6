//! How each model family's own reference implementation forms its bias.
//!
//! Two models with the same slopes lose precision at different places: a bias that grows with the key's position is rounded
//! worst for the newest keys, a bias of the distance for the oldest. And Falcon divides the bias by `sqrt(head_width)` with
//! the score, so its slopes are that much flatter than they look.

use crate::format::Format;
use crate::slopes::SlopeSchedule;

/// Whether the stored bias depends on the key's position or on the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BiasForm {
    /// `+m (j - origin)`: the same for every query, equal to ALiBi up to a constant of the row.
    KeyPosition,
    /// `-m |i - j|`.
    Relative,
}

/// The position at which a key-position bias is 0. Without meaning for [`BiasForm::Relative`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyOrigin {
    /// `m j`: the first (unpadded) key has 0.
    Zero,
    /// `m (j - (max_len - 1))`: the last key has 0.
    LengthEnd,
    /// `m (j + 1)`: the running sum of the mask, not reduced by 1.
    One,
}

/// Whether the bias is scaled together with the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleOrder {
    /// `q.k * scale + bias`.
    BiasAfterScale,
    /// `(q.k + bias) * scale` (Falcon): the effective slope is `m * scale`.
    BiasBeforeScale,
}

/// The format in which slopes reach the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlopeStorage {
    /// `f32`, whatever the model's dtype.
    F32,
    /// The model's dtype: slopes are a checkpoint parameter that is cast on load (Jais, BTLM).
    ModelDtype,
}

/// Roundings of the bias that a family fixes whatever the model's dtype:
/// `stored = product(slope(m) * position(j))`, one rounding each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BiasStorage {
    /// Format the slope is rounded to.
    pub slope: Format,
    /// Format the key position or distance is rounded to.
    pub position: Format,
    /// Format the product is rounded to.
    pub product: Format,
}

impl BiasStorage {
    /// The stored magnitude `product(slope(m) * position(p))`. The inner product is exact in `f64` for every format of at
    /// most 26 significand bits.
    pub fn store(&self, slope: f64, position: f64) -> f64 {
        self.product
            .round(self.slope.round(slope) * self.position.round(position))
    }
}

/// How a family forms its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BiasConvention {
    /// Key position or distance.
    pub form: BiasForm,
    /// Where a key-position bias is 0.
    pub key_origin: KeyOrigin,
    /// Whether the bias is scaled with the score.
    pub scale_order: ScaleOrder,
    /// Format of the slopes.
    pub slope_storage: SlopeStorage,
    /// Roundings fixed by the family; `None` where the runtime and dtype decide (the precision plan says).
    pub storage: Option<BiasStorage>,
    /// Whether keys after the query are masked.
    pub causal: bool,
}

/// A model family, by the reference implementation whose conventions it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// BLOOM, BLOOMZ, Poro.
    Bloom,
    /// MPT.
    Mpt,
    /// Falcon-RW, the Falcon models with ALiBi.
    Falcon,
    /// Baichuan-13B and Baichuan2-13B.
    Baichuan,
    /// Jais and BTLM.
    Jais,
    /// Refact-1.6B.
    Refact,
    /// Replit code models from 1.5 on (llm-foundry layout). The first one, replit-code-v1-3b, differs: naive slopes and
    /// slopes and positions in the model's dtype.
    Replit,
    /// Jina embeddings v2.
    JinaBert,
    /// MosaicBERT and DNABERT-2.
    MosaicBert,
    /// A decoder described by its user: relative, causal, bias after the scale, `f32` slopes, unless the description says
    /// otherwise.
    Custom,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 10] = [
        Family::Bloom,
        Family::Mpt,
        Family::Falcon,
        Family::Baichuan,
        Family::Jais,
        Family::Refact,
        Family::Replit,
        Family::JinaBert,
        Family::MosaicBert,
        Family::Custom,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Bloom => "bloom",
            Family::Mpt => "mpt",
            Family::Falcon => "falcon",
            Family::Baichuan => "baichuan",
            Family::Jais => "jais",
            Family::Refact => "refact",
            Family::Replit => "replit",
            Family::JinaBert => "jina-bert",
            Family::MosaicBert => "mosaic-bert",
            Family::Custom => "custom",
        }
    }

    /// Reads a [`Family::name`] or a common alias, ignoring case; `None` for anything else.
    pub fn parse(s: &str) -> Option<Family> {
        let name = s.trim().to_ascii_lowercase().replace('_', "-");
        Some(match name.as_str() {
            "bloomz" => Family::Bloom,
            "falcon-rw" | "refinedweb" | "refinedwebmodel" => Family::Falcon,
            "baichuan2" => Family::Baichuan,
            "btlm" => Family::Jais,
            "gpt-refact" => Family::Refact,
            "jina" | "jinabert" | "jina-bert-v2" => Family::JinaBert,
            "mosaicbert" | "dnabert-2" | "dnabert2" => Family::MosaicBert,
            other => {
                return Family::ALL
                    .into_iter()
                    .find(|family| family.name() == other);
            }
        })
    }

    /// How the family's reference implementation forms the bias (source: its attention code, read in the versions that
    /// docs/FAMILIES.md names).
    pub const fn convention(self) -> BiasConvention {
        let key_position = BiasConvention {
            form: BiasForm::KeyPosition,
            key_origin: KeyOrigin::Zero,
            scale_order: ScaleOrder::BiasAfterScale,
            slope_storage: SlopeStorage::F32,
            storage: None,
            causal: true,
        };
        let relative = BiasConvention {
            form: BiasForm::Relative,
            ..key_position
        };
        match self {
            // f32 slope times (cumsum(mask) - 1), cast to the model's dtype, then baddbmm.
            Family::Bloom => key_position,
            // f32 table over the maximum length, its tail sliced: the last key has 0.
            Family::Mpt | Family::Replit => BiasConvention {
                key_origin: KeyOrigin::LengthEnd,
                ..key_position
            },
            // bf16 twice even in f32 models; (q.k + alibi) / sqrt(d).
            Family::Falcon => BiasConvention {
                scale_order: ScaleOrder::BiasBeforeScale,
                storage: Some(BiasStorage {
                    slope: Format::Bf16,
                    position: Format::Bf16,
                    product: Format::Bf16,
                }),
                ..key_position
            },
            // m * arange, cast to the model's dtype. Baichuan2's inference table differs by a constant of the row.
            Family::Baichuan => key_position,
            // Slopes are a parameter: slope and |j - i| in the model's dtype.
            Family::Jais => BiasConvention {
                slope_storage: SlopeStorage::ModelDtype,
                ..relative
            },
            // m * cumsum(mask).
            Family::Refact => BiasConvention {
                key_origin: KeyOrigin::One,
                ..key_position
            },
            // f32 table of -m |i - j|, both directions.
            Family::JinaBert | Family::MosaicBert => BiasConvention {
                causal: false,
                ..relative
            },
            Family::Custom => relative,
        }
    }

    /// The family's slope rule; `bias_max` is used by those that have one (MPT, Replit; 8 if not given). `None` for
    /// [`Family::Custom`], whose slopes are never guessed. Jais keeps its slopes in the checkpoint, made by this rule.
    pub fn slope_schedule(self, bias_max: Option<f64>) -> Option<SlopeSchedule> {
        match self {
            Family::Mpt | Family::Replit => Some(SlopeSchedule::Mpt {
                bias_max: bias_max.unwrap_or(8.0),
            }),
            Family::Custom => None,
            _ => Some(SlopeSchedule::Press),
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
