//! Lowers a family's position bias to a table the attention kernel adds, with the roundings of the family's f32 code.

use kernels::BiasTable;
use numerics::{BiasForm, BiasShape, CapOrder, KeyOrigin, ScaleOrder};

use crate::spec::AlibiSpec;

/// A bias table that owns its values. Linear in the number of keys.
#[derive(Clone, Debug, PartialEq)]
pub enum LoweredBias {
    /// No bias.
    None,
    /// `[heads, n_keys]`, nats, by key index.
    ByKey(Vec<f32>),
    /// `[heads, n_keys]`, nats, by `|query - key|`.
    ByDistance(Vec<f32>),
}

impl LoweredBias {
    /// The kernel's view.
    pub fn table(&self) -> BiasTable<'_> {
        match self {
            Self::None => BiasTable::None,
            Self::ByKey(values) => BiasTable::ByKey { values },
            Self::ByDistance(values) => BiasTable::ByDistance { values },
        }
    }

    /// The table of a sequence of `n_keys` keys. `key_valid` (`None`: all) marks padding; `score_scale` is the factor of
    /// `q.k`, which the bias shares where the family adds it before scaling.
    ///
    /// Plain linear ALiBi keeps the family's form: by key position, `m * position` rounded once to f32 (or as the family's
    /// [`numerics::BiasStorage`] says), or by distance. Any other bias function, and one inside a soft cap, exists only as a function
    /// of distance; what is not linear is rounded once from f64, its parameters nats after scaling.
    pub fn lower(
        alibi: &AlibiSpec,
        score_scale: f32,
        n_keys: usize,
        key_valid: Option<&[bool]>,
    ) -> Self {
        let (bias, convention) = (&alibi.bias, &alibi.convention);
        let factor = match convention.scale_order {
            ScaleOrder::BiasAfterScale => 1.0,
            ScaleOrder::BiasBeforeScale => f64::from(score_scale),
        };
        // Magnitude of slope times position in nats, with the family's roundings.
        let product = |slope: f64, position: f64| -> f32 {
            let slope = slope * bias.interpolation;
            let stored = match &convention.storage {
                Some(storage) => storage.store(slope, position) as f32,
                None => slope as f32 * position as f32,
            };
            if factor == 1.0 {
                stored
            } else {
                (f64::from(stored) * factor) as f32
            }
        };
        let linear = bias.shape == BiasShape::Linear && bias.clamp.is_none();
        // A cap of the sum bends what a constant of the row would leave alone, so a bias inside one is a function of the distance.
        let capped = bias
            .soft_cap
            .is_some_and(|cap| cap.order == CapOrder::AfterBias);
        let heads = || alibi.slopes.iter().enumerate();
        if bias.shape == BiasShape::None {
            Self::None
        } else if linear && !capped && convention.form == BiasForm::KeyPosition {
            let positions = key_positions(convention.key_origin, n_keys, key_valid);
            let row = |(_, &slope)| positions.iter().map(move |&p| (slope, p));
            let values = heads().flat_map(row).map(|(slope, p)| product(slope, p));
            Self::ByKey(values.collect())
        } else {
            let mut values = Vec::with_capacity(alibi.slopes.len() * n_keys);
            for (head, &slope) in heads() {
                // `0.0 - x`: the diagonal's bias is +0.
                values.extend((0..n_keys).map(|d| {
                    if linear && !capped {
                        0.0 - product(slope, d as f64)
                    } else {
                        bias.bias(head, slope * factor, d as f64) as f32
                    }
                }));
            }
            Self::ByDistance(values)
        }
    }

    /// Bytes a table of this model takes.
    pub(crate) fn bytes(n_heads: usize, n_keys: usize) -> u64 {
        n_heads as u64 * n_keys as u64 * 4
    }
}

/// Position of every key as the family counts it. Left padding shifts the count where it is a running sum of the mask.
fn key_positions(origin: KeyOrigin, n_keys: usize, key_valid: Option<&[bool]>) -> Vec<f64> {
    let mut running = 0u64;
    let mut count = |key: usize| {
        let valid = key_valid.is_none_or(|v| v[key]);
        running += u64::from(valid);
        (running, valid)
    };
    let position = |key: usize| match origin {
        // (cumsum(mask) - 1) * mask
        KeyOrigin::Zero => match count(key) {
            (n, true) => (n - 1) as f64,
            (_, false) => 0.0,
        },
        // cumsum(mask)
        KeyOrigin::One => count(key).0 as f64,
        // j - (n - 1): the tail of a table over the maximum length
        KeyOrigin::LengthEnd => key as f64 - (n_keys as f64 - 1.0),
    };
    (0..n_keys).map(position).collect()
}
