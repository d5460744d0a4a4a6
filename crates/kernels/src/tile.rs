//! One tile of queries against all keys: the kernel.
//!
//! Lanes are *queries*. A tile is `NV` vectors wide; per block of keys
//!
//! ```text
//! S^T[key][query] = sum_c K[key][c] * Q^T[c][query]        (broadcast K, vector of queries)
//! O^T[c][query]   = alpha[query] * O^T[c][query] + sum_key V[key][c] * P^T[key][query]
//! ```
//!
//! so K and V are read in their natural layout, and maxima, sums and rescaling are plain vertical operations: a query never
//! meets another query. Hence a row's bits do not depend on the tile it is in.
//!
//! Blocks run from the newest key to the oldest, because with a bias that falls with distance the maximum is then found
//! early. Sums are taken per block and added to the running sum, so rounding grows with `KEY_BLOCK + n / KEY_BLOCK` and
//! not with `n`.
//!
//! Weights are kept multiplied by [`LIFT`]. Without it the weights between 2^-126 and 2^-149 are subnormal and every
//! multiply-add with one takes a microcode assist (six times slower overall on a steep head); with it none is, and the
//! factor cancels in the quotient.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]

use crate::exp::{exp_lifted, soft_cap};
use crate::input::CapOrder;
use crate::lanes::Lanes;

/// Keys of one block.
pub(crate) const KEY_BLOCK: usize = 64;
/// Rows of the widest tile of any instruction set (3 vectors of 16).
pub(crate) const TILE_MAX: usize = 48;
/// Factor on the weights. The smallest weight that is not 0 becomes 2^-102, so products with values down to 2^-24 stay
/// normal; and `n_keys * max |v|` may reach 2^80.
pub(crate) const LIFT: f32 = (1_u64 << 48) as f32;
/// `ln(LIFT)`
const LIFT_LN: f64 = 48.0 * std::f64::consts::LN_2;

/// Rows of one head: row `t` starts at `ptr + t * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) ptr: *const f32,
    pub(crate) stride: usize,
}

/// Bias of one head as the kernel reads it.
#[derive(Clone, Copy)]
pub(crate) enum TileBias<'a> {
    None,
    /// `[n_keys]`
    ByKey(&'a [f32]),
    /// Entry `zero + (query - key)`, for every difference that a tile can touch, masked or not.
    ByDifference {
        table: &'a [f32],
        zero: usize,
    },
}

/// One head, ready for the kernel. All pointers are valid for the whole call.
#[derive(Clone, Copy)]
pub(crate) struct HeadTask<'a> {
    pub(crate) q: Rows,
    pub(crate) k: Rows,
    pub(crate) v: Rows,
    pub(crate) n_keys: usize,
    pub(crate) width: usize,
    pub(crate) query_offset: usize,
    pub(crate) causal: bool,
    pub(crate) scale: f32,
    pub(crate) soft_cap: Option<(f32, CapOrder)>,
    pub(crate) bias: TileBias<'a>,
    pub(crate) key_valid: Option<&'a [bool]>,
}

/// Where one tile's raw scores go, when somebody watches: row `r` at `ptr + r * stride`, `TILE_MAX` rows, `stride` at
/// least `n_keys` rounded up to a whole block.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) ptr: *mut f32,
    pub(crate) stride: usize,
}

/// Where one tile's results go.
pub(crate) struct TileOut {
    /// Row `r` starts at `ptr + r * stride`.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    /// `[rows]`
    pub(crate) lse: *mut f32,
    /// `[rows]`
    pub(crate) max: [f32; TILE_MAX],
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Zeroed f32 on a cache line boundary.
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![Line([0.0; 16]); len.div_ceil(16)])
    }
    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
    pub(crate) fn as_slice(&self) -> &[f32] {
        // SAFETY: `Line` is 16 f32 without padding, and the vector holds that many initialised lines.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 16) }
    }
}

/// Working memory of one thread for one head width.
pub(crate) struct Scratch {
    /// `[width, tile]`
    qt: Buffer,
    /// `[width, tile]`
    ot: Buffer,
    /// `[KEY_BLOCK, tile]`, scores and then weights
    s: Buffer,
}

impl Scratch {
    pub(crate) fn new(width: usize) -> Self {
        Self {
            qt: Buffer::new(width * TILE_MAX),
            ot: Buffer::new(width * TILE_MAX),
            s: Buffer::new(KEY_BLOCK * TILE_MAX),
        }
    }
}

/// What the score kernel needs to know about one block.
struct Block<'a, 'b> {
    task: &'a HeadTask<'b>,
    /// Key index of the tile's first query.
    first_query: usize,
    /// First key.
    j0: usize,
    /// Keys.
    nk: usize,
    /// Some pair is hidden by the causal rule.
    diagonal: bool,
    /// Some key is padding.
    padded: bool,
}

/// Attention of `rows` queries from row `first_row` on, `rows <= NV * WIDTH`. `R` is the number of keys (then of channels)
/// that a micro-kernel treats at once.
///
/// # Safety
/// The pointers of `task`, `strip` and `to` are valid for what their documentation says.
#[inline(always)]
pub(crate) unsafe fn tile<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    strip: Option<Strip>,
    to: &mut TileOut,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let width = task.width;
    let (qt, ot) = (scratch.qt.as_mut_ptr(), scratch.ot.as_mut_ptr());
    let sp = scratch.s.as_mut_ptr();
    let zero = s.splat(0.0);
    let minus_inf = s.splat(f32::NEG_INFINITY);
    // SAFETY: `qt` and `ot` hold `width * tile` values; row `first_row + r` of q exists for `r < rows`.
    unsafe {
        pack_queries::<S, NV>(s, task, first_row, rows, qt);
        for i in 0..width * NV {
            s.store(ot.add(i * w), zero);
        }
    }
    let mut m = [minus_inf; NV];
    let mut l = [zero; NV];

    let first_query = task.query_offset + first_row;
    let n_keys = if task.causal {
        (first_query + rows).min(task.n_keys)
    } else {
        task.n_keys
    };
    for b in (0..n_keys.div_ceil(KEY_BLOCK)).rev() {
        let j0 = b * KEY_BLOCK;
        let nk = (n_keys - j0).min(KEY_BLOCK);
        let mut padded = false;
        if let Some(valid) = task.key_valid {
            let valid = &valid[j0..j0 + nk];
            padded = valid.contains(&false);
            if padded && !valid.contains(&true) {
                continue;
            }
        }
        let diagonal = task.causal && j0 + nk > first_query + 1;
        let block = Block {
            task,
            first_query,
            j0,
            nk,
            diagonal,
            padded,
        };
        let mut mx = m;
        // SAFETY: keys `j0 .. j0 + nk` exist, the scratch holds a block, the strip `j0 + KEY_BLOCK` columns of a tile.
        unsafe {
            products::<S, R, NV>(s, &block, qt, sp);
            if let Some((cap, CapOrder::BeforeBias)) = task.soft_cap {
                cap_block::<S, NV>(s, nk, cap, sp);
            }
            if let Some(strip) = strip {
                for v in 0..NV {
                    for g in (0..nk).step_by(w) {
                        let dst = strip.ptr.add(v * w * strip.stride + j0 + g);
                        s.transpose(sp.add(g * tile + v * w), tile, dst, strip.stride);
                    }
                }
            }
            finish_scores::<S, NV>(s, &block, sp, &mut mx);
        }
        // A row that has seen nothing has maximum -inf; subtracting 0 instead keeps NaN out of it.
        let mut alpha = [zero; NV];
        let mut base = [zero; NV];
        for v in 0..NV {
            base[v] = s.select(s.le(mx[v], minus_inf), zero, mx[v]);
            alpha[v] = exp_lifted(s, s.sub(m[v], base[v]), 1.0);
            m[v] = mx[v];
        }
        let mut sum = [zero; NV];
        for j in 0..nk {
            for v in 0..NV {
                // SAFETY: inside the block of scores.
                unsafe {
                    let at = sp.add(j * tile + v * w);
                    let p = exp_lifted(s, s.sub(s.load(at), base[v]), LIFT);
                    sum[v] = s.add(sum[v], p);
                    s.store(at, p);
                }
            }
        }
        for v in 0..NV {
            l[v] = s.fma(alpha[v], l[v], sum[v]);
        }
        // SAFETY: `sp` holds `nk` rows of weights, V the same keys, `ot` the whole tile.
        unsafe {
            let v0 = task.v.ptr.add(j0 * task.v.stride);
            if diagonal && !is_finite(s, v0, task.v.stride, nk, width) {
                weighted_values_masked::<S, NV>(s, &block, v0, sp, ot, &alpha);
            } else {
                let mut c = 0;
                while c + R <= width {
                    weighted_values::<S, R, NV>(
                        s,
                        v0.add(c),
                        task.v.stride,
                        sp,
                        nk,
                        ot.add(c * tile),
                        &alpha,
                    );
                    c += R;
                }
                while c < width {
                    weighted_values::<S, 1, NV>(
                        s,
                        v0.add(c),
                        task.v.stride,
                        sp,
                        nk,
                        ot.add(c * tile),
                        &alpha,
                    );
                    c += 1;
                }
            }
        }
    }
    // SAFETY: `ot` holds the tile; `to` has `rows` rows.
    unsafe { write_out::<S, NV>(s, width, rows, &m, &l, ot, to) };
}

/// Q^T: `qt[c * tile + r] = q[first_row + r][c]`, zero for rows beyond `rows`.
///
/// # Safety
/// Rows `first_row .. first_row + rows` exist, `qt` has room for the tile.
#[inline(always)]
unsafe fn pack_queries<S: Lanes, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    qt: *mut f32,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    for v in 0..NV {
        let mut c = 0;
        // SAFETY: whole blocks where the rows exist, single elements elsewhere.
        unsafe {
            if (v + 1) * w <= rows {
                let src = task.q.ptr.add((first_row + v * w) * task.q.stride);
                while c + w <= task.width {
                    s.transpose(src.add(c), task.q.stride, qt.add(c * tile + v * w), tile);
                    c += w;
                }
            }
            while c < task.width {
                for r in v * w..(v + 1) * w {
                    let x = if r < rows {
                        *task.q.ptr.add((first_row + r) * task.q.stride + c)
                    } else {
                        0.0
                    };
                    *qt.add(c * tile + r) = x;
                }
                c += 1;
            }
        }
    }
}

/// Scaled products of a block: `sp[j * tile + lane] = scale * (q[lane] . k[j])`.
///
/// # Safety
/// As for [`tile`], for the keys of `block`.
#[inline(always)]
unsafe fn products<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    sp: *mut f32,
) {
    let mut j = 0;
    // SAFETY: `j + R <= nk` in the first loop, `j < nk` in the second.
    unsafe {
        while j + R <= block.nk {
            product_rows::<S, R, NV>(s, block, j, qt, sp);
            j += R;
        }
        while j < block.nk {
            product_rows::<S, 1, NV>(s, block, j, qt, sp);
            j += 1;
        }
    }
}

/// Scaled products of keys `j .. j + R` of a block. The accumulators are touched by unrolled loops with constant indices
/// only: anything else makes the compiler keep them in memory, at half the speed.
///
/// # Safety
/// Those keys are in the block.
#[inline(always)]
unsafe fn product_rows<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    sp: *mut f32,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let task = block.task;
    let stride = task.k.stride;
    // SAFETY: keys `j0 + j .. j0 + j + R` exist; `qt` and `sp` hold a tile and a block.
    unsafe {
        let k = task.k.ptr.add((block.j0 + j) * stride);
        // Needed soon: the next rows of this block, and the values of these keys.
        let (next_k, v) = (
            k.wrapping_add(R * stride),
            task.v.ptr.add((block.j0 + j) * task.v.stride),
        );
        let mut acc = [[s.splat(0.0); NV]; R];
        let mut c = 0;
        while c + 2 <= task.width {
            if R > 1 {
                s.prefetch(next_k.wrapping_add(c * R));
                s.prefetch(v.wrapping_add(c * R));
            }
            dot_step::<S, R, NV>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
            dot_step::<S, R, NV>(s, k.add(c + 1), stride, qt.add((c + 1) * tile), &mut acc);
            c += 2;
        }
        if c < task.width {
            dot_step::<S, R, NV>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
        }
        let scale = s.splat(task.scale);
        for r in 0..R {
            for v in 0..NV {
                s.store(sp.add((j + r) * tile + v * w), s.mul(acc[r][v], scale));
            }
        }
    }
}

/// Soft cap of a whole block in place.
///
/// # Safety
/// `sp` holds the block.
#[inline(always)]
unsafe fn cap_block<S: Lanes, const NV: usize>(s: S, nk: usize, cap: f32, sp: *mut f32) {
    for i in 0..nk * NV {
        // SAFETY: inside the block.
        unsafe {
            let at = sp.add(i * S::WIDTH);
            s.store(at, soft_cap(s, s.load(at), cap));
        }
    }
}

/// Adds the bias, hides what the mask hides, and raises the running maxima `mx`. `sp` holds raw scores, then scores.
///
/// # Safety
/// `sp` holds the block; the difference table covers every query of the tile against every key of the block.
#[inline(always)]
unsafe fn finish_scores<S: Lanes, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    sp: *mut f32,
    mx: &mut [S::V; NV],
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let task = block.task;
    // SAFETY: by the caller's promise; `j < nk`.
    unsafe {
        match task.bias {
            TileBias::None => {}
            TileBias::ByKey(values) => {
                for (j, &b) in values[block.j0..block.j0 + block.nk].iter().enumerate() {
                    for v in 0..NV {
                        let at = sp.add(j * tile + v * w);
                        s.store(at, s.add(s.load(at), s.splat(b)));
                    }
                }
            }
            TileBias::ByDifference { table, zero } => {
                let from = table.as_ptr().add(zero + block.first_query - block.j0);
                for j in 0..block.nk {
                    for v in 0..NV {
                        let at = sp.add(j * tile + v * w);
                        s.store(at, s.add(s.load(at), s.load(from.sub(j).add(v * w))));
                    }
                }
            }
        }
        if let Some((cap, CapOrder::AfterBias)) = task.soft_cap {
            cap_block::<S, NV>(s, block.nk, cap, sp);
        }
        let minus_inf = s.splat(f32::NEG_INFINITY);
        if block.diagonal {
            for j in 0..block.nk {
                for v in 0..NV {
                    let at = sp.add(j * tile + v * w);
                    s.store(at, s.select(visible(s, block, j, v), s.load(at), minus_inf));
                }
            }
        }
        if let Some(valid) = task.key_valid
            && block.padded
        {
            for (j, _) in valid[block.j0..block.j0 + block.nk]
                .iter()
                .enumerate()
                .filter(|(_, ok)| !**ok)
            {
                for v in 0..NV {
                    s.store(sp.add(j * tile + v * w), minus_inf);
                }
            }
        }
        for j in 0..block.nk {
            for v in 0..NV {
                mx[v] = s.max(mx[v], s.load(sp.add(j * tile + v * w)));
            }
        }
    }
}

/// Adds channel `c` of R keys: `acc[r] += k[r * stride] * q`.
///
/// # Safety
/// `k` is valid for R rows, `q` for a tile.
#[inline(always)]
unsafe fn dot_step<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    k: *const f32,
    stride: usize,
    q: *const f32,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [s.splat(0.0); NV];
        for v in 0..NV {
            x[v] = s.load(q.add(v * S::WIDTH));
        }
        for r in 0..R {
            let b = s.splat(*k.add(r * stride));
            for v in 0..NV {
                acc[r][v] = s.fma(x[v], b, acc[r][v]);
            }
        }
    }
}

/// Which lanes of vector `v` see key `j` of a block on the diagonal. Positions relative to the block are small, so f32
/// holds them exactly.
#[inline(always)]
fn visible<S: Lanes>(s: S, block: &Block<'_, '_>, j: usize, v: usize) -> S::M {
    const IOTA: [f32; 16] = [
        0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
    ];
    // SAFETY: no vector is wider than 16.
    let lane = unsafe { s.load(IOTA.as_ptr()) };
    let key_from_lane0 = (block.j0 + j) as i64 - (block.first_query + v * S::WIDTH) as i64;
    s.le(s.splat(key_from_lane0 as f32), lane)
}

/// `ot[c] = alpha * ot[c] + sum_j v[j][c] * p[j]` for R channels.
///
/// # Safety
/// `v` is valid for `nk` rows of R, `p` for `nk` rows and `ot` for R rows of a tile.
#[inline(always)]
unsafe fn weighted_values<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    v: *const f32,
    stride: usize,
    p: *const f32,
    nk: usize,
    ot: *mut f32,
    alpha: &[S::V; NV],
) {
    let w = S::WIDTH;
    let tile = NV * w;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut acc = [[s.splat(0.0); NV]; R];
        let mut j = 0;
        while j + 2 <= nk {
            value_step::<S, R, NV>(s, v.add(j * stride), p.add(j * tile), &mut acc);
            value_step::<S, R, NV>(s, v.add((j + 1) * stride), p.add((j + 1) * tile), &mut acc);
            j += 2;
        }
        if j < nk {
            value_step::<S, R, NV>(s, v.add(j * stride), p.add(j * tile), &mut acc);
        }
        for r in 0..R {
            for x in 0..NV {
                let at = ot.add(r * tile + x * w);
                s.store(at, s.fma(alpha[x], s.load(at), acc[r][x]));
            }
        }
    }
}

/// Adds one key to R channels: `acc[r] += v[r] * p`.
///
/// # Safety
/// `v` is valid for R values, `p` for a tile.
#[inline(always)]
unsafe fn value_step<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    v: *const f32,
    p: *const f32,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [s.splat(0.0); NV];
        for i in 0..NV {
            x[i] = s.load(p.add(i * S::WIDTH));
        }
        for r in 0..R {
            let b = s.splat(*v.add(r));
            for i in 0..NV {
                acc[r][i] = s.fma(x[i], b, acc[r][i]);
            }
        }
    }
}

/// [`weighted_values`] for a block on the diagonal whose values are not all finite: a hidden pair has weight 0, and 0 times
/// infinity or NaN would reach rows that never see the key. Here hidden pairs add nothing at all.
///
/// # Safety
/// As for [`weighted_values`], for all channels.
#[inline(always)]
unsafe fn weighted_values_masked<S: Lanes, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    v: *const f32,
    p: *const f32,
    ot: *mut f32,
    alpha: &[S::V; NV],
) {
    let w = S::WIDTH;
    let tile = NV * w;
    for c in 0..block.task.width {
        for x in 0..NV {
            // SAFETY: by the caller's promise.
            unsafe {
                let mut acc = s.splat(0.0);
                for j in 0..block.nk {
                    let b = s.splat(*v.add(j * block.task.v.stride + c));
                    let sum = s.fma(s.load(p.add(j * tile + x * w)), b, acc);
                    acc = s.select(visible(s, block, j, x), sum, acc);
                }
                let at = ot.add(c * tile + x * w);
                s.store(at, s.fma(alpha[x], s.load(at), acc));
            }
        }
    }
}

/// Whether all `rows * width` values are finite.
///
/// # Safety
/// `v` is valid for them.
#[inline(always)]
unsafe fn is_finite<S: Lanes>(
    s: S,
    v: *const f32,
    stride: usize,
    rows: usize,
    width: usize,
) -> bool {
    // 0 * x is 0 for finite x and NaN otherwise; NaN sticks in a sum.
    let zero = s.splat(0.0);
    let mut sum = zero;
    let mut rest = 0.0_f32;
    for r in 0..rows {
        let mut c = 0;
        // SAFETY: inside row `r`.
        unsafe {
            while c + S::WIDTH <= width {
                sum = s.fma(s.load(v.add(r * stride + c)), zero, sum);
                c += S::WIDTH;
            }
            while c < width {
                rest += *v.add(r * stride + c) * 0.0;
                c += 1;
            }
        }
    }
    let mut lanes = [0.0_f32; 16];
    // SAFETY: no vector is wider than 16.
    unsafe { s.store(lanes.as_mut_ptr(), sum) };
    !rest.is_nan() && !lanes.iter().any(|x| x.is_nan())
}

/// Divides by the sums, transposes back, and gives the log-sum-exp.
///
/// # Safety
/// `ot` holds the tile and `to` has `rows` rows.
#[inline(always)]
unsafe fn write_out<S: Lanes, const NV: usize>(
    s: S,
    width: usize,
    rows: usize,
    m: &[S::V; NV],
    l: &[S::V; NV],
    ot: *mut f32,
    to: &mut TileOut,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let zero = s.splat(0.0);
    let mut sums = [0.0_f32; TILE_MAX];
    // SAFETY: all inside the tile or the `rows` rows of the output.
    unsafe {
        for v in 0..NV {
            s.store(sums.as_mut_ptr().add(v * w), l[v]);
            s.store(to.max.as_mut_ptr().add(v * w), m[v]);
            // A sum of 0 means that the row saw nothing (the largest weight of any other row is 1).
            let empty = s.le(l[v], zero);
            for c in 0..width {
                let at = ot.add(c * tile + v * w);
                s.store(at, s.select(empty, zero, s.div(s.load(at), l[v])));
            }
        }
        for v in 0..NV {
            let mut c = 0;
            if (v + 1) * w <= rows {
                let dst = to.out.add(v * w * to.out_stride);
                while c + w <= width {
                    s.transpose(ot.add(c * tile + v * w), tile, dst.add(c), to.out_stride);
                    c += w;
                }
            }
            while c < width {
                for r in v * w..((v + 1) * w).min(rows) {
                    *to.out.add(r * to.out_stride + c) = *ot.add(c * tile + r);
                }
                c += 1;
            }
        }
        for r in 0..rows {
            let (max, sum) = (f64::from(to.max[r]), f64::from(sums[r]));
            *to.lse.add(r) = if sum <= 0.0 {
                f32::NEG_INFINITY
            } else {
                (max + sum.ln() - LIFT_LN) as f32
            };
        }
    }
}
