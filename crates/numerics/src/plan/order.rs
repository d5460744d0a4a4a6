//! In which order streaming kernels visit blocks of keys.

/// In which order a streaming kernel visits key blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOrder {
    /// The block of the newest key first: with ALiBi the maximum is found at once and old keys underflow against it.
    NewestFirst,
    /// The block of key 0 first: old keys are weighed against the maximum so far, then scaled down in the accumulator.
    OldestFirst,
    /// Blocks that a causal mask cuts through first, then those that it leaves whole, each oldest first. The mask is known in squares
    /// of `mask_block` queries and as many keys, and a square that reaches beyond the sequence counts as cut through: rows of
    /// the last one, where it is not whole, are [`BlockOrder::OldestFirst`], as is everything without a mask.
    MaskedFirst {
        /// A multiple of the kernel's own blocks of keys.
        mask_block: usize,
    },
}

/// Where a row of scores is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Position of the query.
    pub query: usize,
    /// Number of keys of the whole sequence.
    pub length: usize,
    /// Whether keys after the query are masked.
    pub causal: bool,
}

/// In which order the key blocks of one row are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOrder {
    /// The last block first.
    NewestFirst,
    /// The block of this key and those after it, then those before it, each oldest first. From key 0: oldest first.
    From(usize),
}

impl BlockOrder {
    /// The order for one row.
    #[must_use]
    pub const fn of_row(self, row: RowPlace) -> RowOrder {
        match self {
            BlockOrder::NewestFirst => RowOrder::NewestFirst,
            BlockOrder::OldestFirst => RowOrder::From(0),
            BlockOrder::MaskedFirst { mask_block } => {
                let start = row.query / mask_block * mask_block;
                let is_whole = start + mask_block <= row.length;
                RowOrder::From(if row.causal && is_whole { start } else { 0 })
            }
        }
    }
}

impl RowOrder {
    /// The visits of `n` ascending blocks, given the first key of each.
    #[must_use]
    pub fn visits(self, n: usize, first_key: impl Fn(usize) -> usize) -> BlockVisits {
        match self {
            RowOrder::NewestFirst => BlockVisits {
                n,
                newest_first: true,
                first: n.saturating_sub(1),
            },
            RowOrder::From(key) => {
                let first = (0..n).position(|block| first_key(block) >= key);
                BlockVisits {
                    n,
                    newest_first: false,
                    first: first.unwrap_or(0),
                }
            }
        }
    }
}

/// In which order `n` ascending blocks are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockVisits {
    n: usize,
    newest_first: bool,
    /// The block that is visited first.
    first: usize,
}

impl BlockVisits {
    /// The block that is visited as number `place`.
    #[must_use]
    pub const fn block(self, place: usize) -> usize {
        if self.newest_first {
            self.first - place
        } else if place < self.n - self.first {
            self.first + place
        } else {
            place - (self.n - self.first)
        }
    }

    /// As which number a block is visited: the inverse of [`BlockVisits::block`].
    #[must_use]
    pub const fn place(self, block: usize) -> usize {
        if self.newest_first {
            self.first - block
        } else if block >= self.first {
            block - self.first
        } else {
            block + (self.n - self.first)
        }
    }

    /// Puts ascending blocks into the order of the visit.
    pub fn arrange<T>(self, blocks: &mut [T]) {
        if self.newest_first {
            blocks.reverse();
        } else {
            blocks.rotate_left(self.first);
        }
    }

    /// The blocks in the order of the visit.
    pub fn blocks(self) -> impl Iterator<Item = usize> {
        (0..self.n).map(move |place| self.block(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_on_the_diagonal_come_first_where_they_are_whole() {
        let order = BlockOrder::MaskedFirst { mask_block: 128 };
        let visited = |query, length, causal| {
            let row = RowPlace {
                query,
                length,
                causal,
            };
            let order = order.of_row(row);
            let n = if causal {
                query / 64 + 1
            } else {
                length.div_ceil(64)
            };
            let visits = order.visits(n, |block| block * 64);
            let blocks: Vec<usize> = visits.blocks().collect();
            for (place, &block) in blocks.iter().enumerate() {
                assert_eq!(visits.place(block), place);
            }
            let mut arranged: Vec<usize> = (0..n).collect();
            visits.arrange(&mut arranged);
            assert_eq!(arranged, blocks);
            blocks
        };
        assert_eq!(visited(300, 384, true), [4, 0, 1, 2, 3]);
        assert_eq!(visited(330, 384, true), [4, 5, 0, 1, 2, 3]);
        assert_eq!(visited(100, 384, true), [0, 1]);
        assert_eq!(visited(300, 383, true), [0, 1, 2, 3, 4]);
        assert_eq!(visited(255, 383, true), [2, 3, 0, 1]);
        assert_eq!(visited(300, 384, false), [0, 1, 2, 3, 4, 5]);
        let newest: Vec<usize> = RowOrder::NewestFirst.visits(3, |_| 0).blocks().collect();
        assert_eq!(newest, [2, 1, 0]);
    }
}
