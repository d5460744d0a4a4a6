//! Entries of a block of keys for a tile of queries side by side: the layout in which the kernel holds scores.
//!
//! The same entries, bit for bit, as [`crate::evidence::table`] gives for one row; a test of the collector holds it.

use std::ops::Range;

use kernels::{LaneBias, RoundedEntries, lane_gaps};
use numerics::Rounding;

use crate::evidence::scan::Real;

/// Entries before difference 0 in a table by distance: hidden pairs of a tile read them.
const PAD: usize = 64;

/// How raw score and bias make an entry; see `table::Kind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LaneKind {
    Exact,
    F32,
    Rounded { scaled: Rounding, sum: Rounding },
    BeforeScale { scale: f32 },
}

/// The bias of one head, contiguous in the query.
#[derive(Clone, Debug)]
pub(crate) struct LaneTable {
    kind: LaneKind,
    by_key: bool,
    /// By key, or at `PAD + query - key`.
    bias: Vec<f32>,
    bias_f64: Vec<f64>,
}

/// The bias of a block: one value a key, or a slice whose last `W` values belong to the first key, each further key one
/// earlier.
#[derive(Clone, Copy)]
enum BlockBias<'a, B> {
    ByKey(&'a [B]),
    ByDifference(&'a [B]),
}

impl LaneTable {
    /// `bias` (or `bias_f64`) by key, or by `key - query + n_keys - 1`.
    pub(crate) fn new(kind: LaneKind, by_key: bool, bias: &[f32], bias_f64: &[f64]) -> Self {
        Self {
            kind,
            by_key,
            bias: turned(bias, by_key),
            bias_f64: turned(bias_f64, by_key),
        }
    }

    /// Whether entries need an f64.
    pub(crate) fn is_wide(&self) -> bool {
        self.kind == LaneKind::Exact
    }

    /// The bias of a block, if an entry is nothing but raw score plus bias in f32.
    #[inline(always)]
    pub(crate) fn plain_bias<const W: usize>(
        &self,
        first_query: usize,
        keys: &Range<usize>,
    ) -> Option<LaneBias<'_>> {
        let plain = self.kind == LaneKind::F32;
        plain.then(|| {
            lane_bias(block_bias::<f32, W>(
                &self.bias,
                self.by_key,
                first_query,
                keys,
            ))
        })
    }

    /// The entries of a block, if they are raw score plus bias, whatever is rounded to 16 bits.
    #[inline(always)]
    pub(crate) fn sums<const W: usize>(
        &self,
        first_query: usize,
        keys: &Range<usize>,
    ) -> Option<RoundedEntries<'_>> {
        let keep = Rounding::Keep;
        let plain = |bias| RoundedEntries {
            bias,
            scaled: keep,
            sum: keep,
        };
        let bias = self.plain_bias::<W>(first_query, keys);
        bias.map(plain)
            .or_else(|| self.rounded::<W>(first_query, keys))
    }

    /// The entries of a block, if they are rounded to 16 bits somewhere.
    #[inline(always)]
    pub(crate) fn rounded<const W: usize>(
        &self,
        first_query: usize,
        keys: &Range<usize>,
    ) -> Option<RoundedEntries<'_>> {
        let LaneKind::Rounded { scaled, sum } = self.kind else {
            return None;
        };
        Some(RoundedEntries {
            bias: lane_bias(block_bias::<f32, W>(
                &self.bias,
                self.by_key,
                first_query,
                keys,
            )),
            scaled,
            sum,
        })
    }

    /// Gaps `max - entry` of the keys `keys` for `W` queries from `first_query` on; `raw` and `out` are `[keys, W]`.
    #[inline(always)]
    pub(crate) fn gaps<T: Entry, const W: usize>(
        &self,
        raw: &[f32],
        first_query: usize,
        keys: &Range<usize>,
        max: &[T; W],
        out: &mut [T],
    ) {
        T::fill::<W, true>(self, raw, first_query, keys, max, out);
    }

    /// Entries of the keys `keys` for `W` queries from `first_query` on; `raw` and `out` are `[keys, W]`.
    #[inline(always)]
    pub(crate) fn entries<T: Entry, const W: usize>(
        &self,
        raw: &[f32],
        first_query: usize,
        keys: &Range<usize>,
        out: &mut [T],
    ) {
        T::fill::<W, false>(self, raw, first_query, keys, &[T::ZERO; W], out);
    }
}

/// Carriers whose blocks of entries or gaps can be filled. Not inlined: there are many loops and many callers.
pub(crate) trait Entry: Real {
    fn fill<const W: usize, const GAPS: bool>(
        table: &LaneTable,
        raw: &[f32],
        first_query: usize,
        keys: &Range<usize>,
        max: &[Self; W],
        out: &mut [Self],
    );
}

impl Entry for f64 {
    #[inline(never)]
    fn fill<const W: usize, const GAPS: bool>(
        table: &LaneTable,
        raw: &[f32],
        first_query: usize,
        keys: &Range<usize>,
        max: &[f64; W],
        out: &mut [f64],
    ) {
        assert!(table.is_wide(), "f64 entries of an f32 table");
        let bias = block_bias::<f64, W>(&table.bias_f64, table.by_key, first_query, keys);
        vectorize::<W>(
            #[inline(always)]
            || {
                each::<f64, f64, W, GAPS>(out, raw, bias, max, |raw, bias| f64::from(raw) + bias);
            },
        );
    }
}

impl Entry for f32 {
    #[inline(never)]
    fn fill<const W: usize, const GAPS: bool>(
        table: &LaneTable,
        raw: &[f32],
        first_query: usize,
        keys: &Range<usize>,
        max: &[f32; W],
        out: &mut [f32],
    ) {
        let bias = block_bias::<f32, W>(&table.bias, table.by_key, first_query, keys);
        if table.kind == LaneKind::F32 {
            return lane_gaps(W, raw, lane_bias(bias), GAPS.then_some(&max[..]), out);
        }
        vectorize::<W>(
            #[inline(always)]
            || narrow::<W, GAPS>(table.kind, raw, bias, max, out),
        );
    }
}

fn lane_bias(bias: BlockBias<'_, f32>) -> LaneBias<'_> {
    match bias {
        BlockBias::ByKey(bias) => LaneBias::ByKey(bias),
        BlockBias::ByDifference(bias) => LaneBias::ByDifference(bias),
    }
}

#[inline(always)]
fn narrow<const W: usize, const GAPS: bool>(
    kind: LaneKind,
    raw: &[f32],
    bias: BlockBias<'_, f32>,
    max: &[f32; W],
    out: &mut [f32],
) {
    macro_rules! fill {
        ($entry:expr) => {
            each::<f32, f32, W, GAPS>(out, raw, bias, max, $entry)
        };
    }
    match kind {
        // Division by a power of two is multiplication by another.
        LaneKind::BeforeScale { scale } if (1.0 / scale).to_bits().trailing_zeros() >= 23 => {
            let inverse = 1.0 / scale;
            fill!(|raw: f32, bias: f32| (raw * inverse + bias) * scale)
        }
        LaneKind::BeforeScale { scale } => {
            fill!(|raw: f32, bias: f32| (raw / scale + bias) * scale)
        }
        LaneKind::Exact | LaneKind::F32 | LaneKind::Rounded { .. } => {
            unreachable!("{kind:?} has loops of its own")
        }
    }
}

impl LaneKind {
    /// The kind with these roundings, if there is one.
    pub(crate) fn rounded(scaled: Rounding, sum: Rounding) -> Option<Self> {
        let alone = scaled == Rounding::Keep || sum == Rounding::Keep || scaled == sum;
        let any = scaled != Rounding::Keep || sum != Rounding::Keep;
        (alone && any).then_some(Self::Rounded { scaled, sum })
    }
}

/// Runs a function compiled for an instruction set, so that not every width of a tile is compiled for every one: tiles of more than 16
/// lanes there are with AVX-512 alone, and those of 16 are no slower on AVX2.
#[inline(always)]
pub(crate) fn vectorize<const W: usize>(run: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        use pulp::x86::{V3, V4};
        if W > 16 {
            if let Some(v4) = V4::try_new() {
                return pulp::Simd::vectorize(v4, run);
            }
        } else if let Some(v3) = V3::try_new() {
            return pulp::Simd::vectorize(v3, run);
        }
    }
    run();
}

/// By key as it is; by distance turned round, with room on both sides for the hidden pairs and idle lanes of a tile.
fn turned<B: Copy + Default>(bias: &[B], by_key: bool) -> Vec<B> {
    if by_key || bias.is_empty() {
        return bias.to_vec();
    }
    let mut turned = vec![B::default(); PAD];
    turned.extend(bias.iter().rev());
    turned.resize(turned.len() + PAD, B::default());
    turned
}

#[inline(always)]
fn block_bias<'a, B, const W: usize>(
    table: &'a [B],
    by_key: bool,
    first_query: usize,
    keys: &Range<usize>,
) -> BlockBias<'a, B> {
    if by_key {
        return BlockBias::ByKey(&table[keys.clone()]);
    }
    let nearest = PAD + first_query + 1 - keys.end;
    BlockBias::ByDifference(&table[nearest..nearest + keys.len() - 1 + W])
}

#[inline(always)]
fn each<T: Real, B: Copy, const W: usize, const GAPS: bool>(
    out: &mut [T],
    raw: &[f32],
    bias: BlockBias<'_, B>,
    max: &[T; W],
    entry: impl Fn(f32, B) -> T,
) {
    if W.is_multiple_of(16) {
        each_group::<T, B, W, 16, GAPS>(out, raw, bias, max, entry);
    } else {
        each_group::<T, B, W, 8, GAPS>(out, raw, bias, max, entry);
    }
}

/// `G` lanes at a time over all keys: loops of a constant length that the compiler turns into single vectors.
#[inline(always)]
fn each_group<T: Real, B: Copy, const W: usize, const G: usize, const GAPS: bool>(
    out: &mut [T],
    raw: &[f32],
    bias: BlockBias<'_, B>,
    max: &[T; W],
    entry: impl Fn(f32, B) -> T,
) {
    let keys = out.len() / W;
    for from in (0..W).step_by(G) {
        let max: [T; G] = *group(&max[from..]);
        macro_rules! lanes {
            ($bias:expr) => {
                for key in 0..keys {
                    let bias = $bias(key);
                    let raw: &[f32; G] = group(&raw[key * W + from..]);
                    let out: &mut [T; G] = out[key * W + from..]
                        .first_chunk_mut()
                        .expect("a group of lanes");
                    // Into registers first: the compiler does not see that the slices are apart.
                    let mut values = [T::ZERO; G];
                    for lane in 0..G {
                        let entry = entry(raw[lane], bias[lane]);
                        values[lane] = if GAPS { max[lane].minus(entry) } else { entry };
                    }
                    *out = values;
                }
            };
        }
        match bias {
            BlockBias::ByKey(bias) => lanes!(|key: usize| [bias[key]; G]),
            BlockBias::ByDifference(bias) => {
                lanes!(|key: usize| *group::<B, G>(&bias[keys - 1 - key + from..]));
            }
        }
    }
}

/// The first `G` values.
#[inline(always)]
fn group<T, const G: usize>(values: &[T]) -> &[T; G] {
    values.first_chunk().expect("a group of lanes")
}
