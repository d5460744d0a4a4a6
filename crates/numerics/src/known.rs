//! Published models whose shape is known, so that their horizons can be had without any file.

use crate::convention::Family;
use crate::slopes::SlopeSchedule;

/// Shape of a published model, as far as the horizon needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownModel {
    /// Name without the publisher, lower case.
    pub name: &'static str,
    /// Conventions it follows.
    pub family: Family,
    /// Attention (query) heads a layer.
    pub n_heads: usize,
    /// Width of one head; `n_heads * head_width` is the model's width.
    pub head_width: usize,
    /// Layers; `None` where not known.
    pub n_layers: Option<usize>,
    /// Length in tokens it was trained at; `None` where not known.
    pub trained_length: Option<u64>,
    /// Bias maximum of the slope rule; 8 wherever the family has no such setting.
    pub bias_max: f64,
    /// Where the numbers come from. "from memory" marks what was not checked against a configuration file.
    pub source: &'static str,
}

impl KnownModel {
    /// Model width, `n_heads * head_width`.
    pub const fn width(&self) -> usize {
        self.n_heads * self.head_width
    }

    /// The slope rule of the model.
    pub fn slope_schedule(&self) -> SlopeSchedule {
        self.family.slope_schedule(Some(self.bias_max)).expect(
            "no known model is of the custom family, the only one without a rule (a test holds it)",
        )
    }
}

const NOTES: &str = "sizes: survey of configurations (docs/FAMILIES.md)";
const NOTES_LENGTH_MEMORY: &str =
    "sizes: survey of configurations (docs/FAMILIES.md); trained length from memory";
const NOTES_LAYERS_LENGTH_MEMORY: &str = "heads and width: survey of configurations (docs/FAMILIES.md); layers and trained length from memory";
const NOTES_LENGTH_CARD: &str =
    "sizes: survey of configurations (docs/FAMILIES.md); trained length: model card";
const CARD_LENGTH_MEMORY: &str = "width: survey of configurations (docs/FAMILIES.md); heads and layers: model card; trained length from memory";
const MEMORY_LENGTH_CARD: &str = "sizes from memory; trained length: model card";
const MEMORY: &str = "from memory";

const fn model(
    name: &'static str,
    family: Family,
    [n_heads, head_width, n_layers]: [usize; 3],
    trained_length: Option<u64>,
    source: &'static str,
) -> KnownModel {
    KnownModel {
        name,
        family,
        n_heads,
        head_width,
        n_layers: Some(n_layers),
        trained_length,
        bias_max: 8.0,
        source,
    }
}

const MODELS: &[KnownModel] = &[
    model(
        "bloom-560m",
        Family::Bloom,
        [16, 64, 24],
        Some(2048),
        NOTES_LENGTH_CARD,
    ),
    model("bloom-1b1", Family::Bloom, [16, 96, 24], Some(2048), MEMORY),
    model(
        "bloom-1b7",
        Family::Bloom,
        [16, 128, 24],
        Some(2048),
        CARD_LENGTH_MEMORY,
    ),
    model(
        "bloom-3b",
        Family::Bloom,
        [32, 80, 30],
        Some(2048),
        NOTES_LENGTH_MEMORY,
    ),
    model(
        "bloom-7b1",
        Family::Bloom,
        [32, 128, 30],
        Some(2048),
        NOTES_LENGTH_CARD,
    ),
    model(
        "bloom",
        Family::Bloom,
        [112, 128, 70],
        Some(2048),
        NOTES_LENGTH_MEMORY,
    ),
    model("poro-34b", Family::Bloom, [56, 128, 54], None, MEMORY),
    model("mpt-7b", Family::Mpt, [32, 128, 32], Some(2048), NOTES),
    model("mpt-30b", Family::Mpt, [64, 112, 48], Some(8192), NOTES),
    KnownModel {
        bias_max: 16.0,
        ..model(
            "mpt-7b-storywriter",
            Family::Mpt,
            [32, 128, 32],
            Some(65_536),
            MEMORY,
        )
    },
    model(
        "falcon-rw-1b",
        Family::Falcon,
        [32, 64, 24],
        Some(2048),
        NOTES_LAYERS_LENGTH_MEMORY,
    ),
    model(
        "falcon-rw-7b",
        Family::Falcon,
        [64, 64, 36],
        Some(2048),
        MEMORY,
    ),
    model(
        "baichuan-13b",
        Family::Baichuan,
        [40, 128, 40],
        Some(4096),
        NOTES,
    ),
    model(
        "jina-v2-base",
        Family::JinaBert,
        [12, 64, 12],
        Some(512),
        NOTES_LENGTH_MEMORY,
    ),
    model(
        "jina-v2-small",
        Family::JinaBert,
        [8, 64, 4],
        Some(512),
        MEMORY_LENGTH_CARD,
    ),
    model("btlm-3b", Family::Jais, [32, 80, 32], Some(8192), MEMORY),
    model("jais-13b", Family::Jais, [40, 128, 40], Some(2048), MEMORY),
    model(
        "refact-1.6b",
        Family::Refact,
        [32, 64, 32],
        Some(4096),
        NOTES,
    ),
    model(
        "replit-code-1.5",
        Family::Replit,
        [24, 128, 32],
        Some(4096),
        NOTES,
    ),
    model(
        "mosaicbert",
        Family::MosaicBert,
        [12, 64, 12],
        Some(128),
        MEMORY,
    ),
    model("dnabert-2", Family::MosaicBert, [12, 64, 12], None, MEMORY),
];

/// Every known model, by family.
pub fn known_models() -> &'static [KnownModel] {
    MODELS
}

/// The known model of this name, ignoring case and a publisher before a slash; `bloom-176b` is `bloom`.
pub fn known_model(name: &str) -> Option<&'static KnownModel> {
    let lower = name.trim().to_ascii_lowercase();
    let base = lower.rsplit('/').next().unwrap_or(&lower);
    let canonical = match base {
        "bloom-176b" => "bloom",
        "jina-embeddings-v2-base-en" => "jina-v2-base",
        "jina-embeddings-v2-small-en" => "jina-v2-small",
        "btlm-3b-8k-base" => "btlm-3b",
        "refact-1_6b-fim" | "refact-1_6b-base" => "refact-1.6b",
        "replit-code-v1_5-3b" => "replit-code-1.5",
        "mosaic-bert-base" => "mosaicbert",
        "dnabert-2-117m" => "dnabert-2",
        "baichuan-13b-base" => "baichuan-13b",
        other => other,
    };
    MODELS.iter().find(|model| model.name == canonical)
}
