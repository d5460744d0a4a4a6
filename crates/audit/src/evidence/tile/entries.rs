//! Entries of a block under the plans of one group: their maxima, their gaps, and which pairs lie beyond a threshold.

use kernels::{Band, BandCounts, count_above};

use super::plans::{ROOM_NATS, Taker};
use super::{Block, Carrier, Lanes, TileScratch};

impl Taker<'_> {
    /// Whether gaps of the forward pass stand in for those of this group where they decide: its own take more work (four times as
    /// much in 64 bits, and the maxima of its entries), and are nearly the same.
    pub(super) fn stands_in(&self) -> bool {
        self.table.is_wide() || (!self.is_own && self.group.shares_sum)
    }

    /// Largest entry of each lane; lanes without a finite one are counted and dropped.
    #[inline(always)]
    pub(super) fn maximum<T: Carrier, const W: usize>(
        &mut self,
        plans: &[usize],
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
    ) -> [T; W] {
        if self.is_own {
            return lanes.max.map(T::of_f32);
        }
        let mut max = [T::LOWEST; W];
        for index in 0..buffers.blocks.len() {
            let block = buffers.blocks[index].clone();
            // The gap of a largest entry is 0 here, so it is at most the slack in the forward pass.
            if f64::from(block.near) - self.slack > ROOM_NATS {
                continue;
            }
            self.raise(&block, lanes, buffers, &mut max);
        }
        for lane in 0..W {
            if lanes.good[lane] && !max[lane].to_f64().is_finite() {
                let base = self.job.offsets.base(self.tile.first_query + lane);
                let run = base..base + (lanes.last_key[lane] + 1) as usize;
                lanes.drop_lane(lane);
                for block in &mut buffers.blocks {
                    block.hidden = true;
                }
                for &plan in plans {
                    self.counts.plans[plan].overflow(self.job.offsets, [run.clone()]);
                }
            }
        }
        max
    }

    /// Raises each lane's maximum to its largest entry in a block.
    #[inline(always)]
    pub(super) fn raise<T: Carrier, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
        max: &mut [T; W],
    ) {
        let entries = self.table.sums::<W>(self.tile.first_query, &block.keys);
        if let (Some(entries), Some(max)) = (entries, T::narrow(max)) {
            let keys = block.keys.clone();
            self.tile
                .raise_rounded(keys, &entries, &lanes.last_key, max);
            return;
        }
        T::raise(self.entries::<T, W>(block, lanes, buffers), max);
    }

    /// Entries of a block, the lowest value where a pair is hidden.
    #[inline(always)]
    pub(super) fn entries<'b, T: Carrier, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        buffers: &'b mut TileScratch,
    ) -> &'b mut [T] {
        let entries = &mut T::entries(buffers)[..block.keys.len() * W];
        let raw = self.tile.raw(block.keys.clone());
        self.table
            .entries::<T, W>(raw, self.tile.first_query, &block.keys, entries);
        if block.hidden {
            lanes.hide(&block.keys, T::LOWEST, entries);
        }
        entries
    }

    /// Gaps of a block, the lowest value where a pair is hidden: nothing counts there.
    #[inline(always)]
    pub(super) fn gaps<'b, T: Carrier, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        max: &[T; W],
        buffers: &'b mut TileScratch,
    ) -> &'b mut [T] {
        let gaps = &mut T::entries(buffers)[..block.keys.len() * W];
        let raw = self.tile.raw(block.keys.clone());
        self.table
            .gaps::<T, W>(raw, self.tile.first_query, &block.keys, max, gaps);
        if block.hidden {
            lanes.hide(&block.keys, T::LOWEST, gaps);
        }
        gaps
    }

    /// Counts the pairs of a block whose gaps are above some bands: gaps of the forward pass where those are the table's or stand in
    /// for them. `ones` as in [`ScoreTile::beyond`].
    ///
    /// [`ScoreTile::beyond`]: kernels::ScoreTile::beyond
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
    pub(super) fn count_bands<T: Carrier, const W: usize>(
        &mut self,
        plan: usize,
        block: &Block,
        bands: &[Band<'_>],
        max: &mut Option<[T; W]>,
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
        ones: Option<&mut [u32]>,
    ) -> BandCounts {
        if self.stands_in() {
            let last = block.hidden.then_some(&lanes.last_key[..]);
            let keys = block.keys.clone();
            return self.tile.beyond(keys, None, &lanes.max, last, bands, ones);
        }
        let max = max.get_or_insert_with(|| self.maximum::<T, W>(&[plan], lanes, buffers));
        let mut narrow = [0.0_f32; W];
        for lane in 0..W {
            narrow[lane] = max[lane].to_f32();
        }
        // A lane may just have been dropped.
        let block = Block {
            hidden: block.hidden || lanes.n_good < W as u64,
            ..block.clone()
        };
        self.count_bands_from(&block, bands, &narrow, lanes, buffers, ones)
    }

    /// Counts the pairs of a block whose gaps from `max` are above some bands, for entries of f32.
    #[inline(always)]
    pub(super) fn count_bands_from<const W: usize>(
        &self,
        block: &Block,
        bands: &[Band<'_>],
        max: &[f32; W],
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
        ones: Option<&mut [u32]>,
    ) -> BandCounts {
        let keys = block.keys.clone();
        let bias = self.table.plain_bias::<W>(self.tile.first_query, &keys);
        if self.is_own || bias.is_some() {
            let bias = if self.is_own { None } else { bias };
            let last = block.hidden.then_some(&lanes.last_key[..]);
            return self.tile.beyond(keys, bias, max, last, bands, ones);
        }
        let gaps = self.gaps::<f32, W>(block, lanes, max, buffers);
        count_above(W, gaps, bands, ones)
    }
}
