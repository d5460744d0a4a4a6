//! Entries of a block under the plans of one group: their maxima, their gaps, and which pairs lie beyond thresholds.

use kernels::{Below, CUTS, Cut, LaneBias, count_below, find_in_doubt};

use super::plans::{ROOM_NATS, Taker};
use super::{Block, Carrier, Lanes, TileScratch};

impl Taker<'_> {
    /// Whether gaps of the forward pass stand in for those of this group where they decide: its own take more work (four times as
    /// much in 64 bits, and the maxima of its entries), and are nearly the same.
    pub(super) fn stands_in(&self) -> bool {
        self.table.is_wide() || (!self.is_own && self.group.shares_sum)
    }

    /// Whether the scores that are compared with bounds are those of the forward pass: its own, or where they stand in.
    pub(super) fn by_forward(&self) -> bool {
        self.is_own || self.stands_in()
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
        let entries = self.entries::<T, W>(block, T::LOWEST, lanes, buffers);
        T::raise(entries, max);
    }

    /// Entries of a block, `hidden` where a pair is.
    #[inline(always)]
    pub(super) fn entries<'b, T: Carrier, const W: usize>(
        &self,
        block: &Block,
        hidden: T,
        lanes: &Lanes<W>,
        buffers: &'b mut TileScratch,
    ) -> &'b mut [T] {
        let entries = &mut T::entries(buffers)[..block.keys.len() * W];
        let rounded = self.table.rounded::<W>(self.tile.first_query, &block.keys);
        if let (Some(rounded), Some(out)) = (rounded, T::narrow(entries)) {
            let (keys, hidden) = (block.keys.clone(), hidden.to_f32());
            self.tile
                .rounded_entries(keys, &rounded, &lanes.last_key, hidden, out);
            return entries;
        }
        let raw = self.tile.raw(block.keys.clone());
        self.table
            .entries::<T, W>(raw, self.tile.first_query, &block.keys, entries);
        if block.hidden {
            lanes.hide(&block.keys, hidden, entries);
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

    /// Counts the pairs of a block whose scores are below some cuts: scores of the forward pass where those are the table's or stand
    /// in for them. `to` as in [`ScoreTile::below`].
    ///
    /// [`ScoreTile::below`]: kernels::ScoreTile::below
    #[inline(always)]
    pub(super) fn count_below<const W: usize>(
        &self,
        block: &Block,
        cuts: &[Cut<'_>],
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
        to: Option<&mut [u32]>,
    ) -> [Below; CUTS] {
        match self.scores::<W>(block, lanes) {
            Some((bias, last)) => self.tile.below(block.keys.clone(), bias, last, cuts, to),
            None => {
                let entries = self.entries(block, f32::INFINITY, lanes, buffers);
                count_below(W, entries, cuts, to)
            }
        }
    }

    /// The pairs of a block that are in doubt, as key and lane.
    pub(super) fn in_doubt<const W: usize>(
        &self,
        block: &Block,
        cut: Cut<'_>,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) -> Vec<(usize, usize)> {
        if let Some((bias, last)) = self.scores::<W>(block, lanes) {
            return self.tile.in_doubt(block.keys.clone(), bias, last, cut);
        }
        let entries = self.entries(block, f32::INFINITY, lanes, buffers);
        let pairs = find_in_doubt(W, entries, cut);
        let first = block.keys.start;
        pairs
            .into_iter()
            .map(|(j, lane)| (first + j, lane))
            .collect()
    }

    /// How scores of a block that are compared with cuts come from raw ones: the bias, if it is not that of the forward pass, and each
    /// lane's last key, if not every lane sees all. `None` for entries that take more than a bias.
    #[inline(always)]
    fn scores<'a, const W: usize>(
        &'a self,
        block: &Block,
        lanes: &'a Lanes<W>,
    ) -> Option<(Option<LaneBias<'a>>, Option<&'a [i32]>)> {
        // No score of a lane that takes no part is below anything.
        let last = block.diagonal.then_some(&lanes.last_key[..]);
        if self.by_forward() {
            return Some((None, last));
        }
        let bias = self
            .table
            .plain_bias::<W>(self.tile.first_query, &block.keys);
        bias.map(|bias| (Some(bias), last))
    }
}
