//! Where each weight of a [`ModelSpec`] lies in the tensors of a checkpoint, and how to read it.
//!
//! A family only says, for every role, the tensor's name and which of its rows are meant; the checks (is it there, has it the
//! shape that the model needs, is it a float) and the reading are the same for all. They need headers only, so a checkpoint
//! that does not fit its configuration is refused before anything is computed.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use model::{ModelSpec, Weight, WeightRole};

use crate::error::{CheckpointError, quoted};
use crate::finite::{self, Stored};
use crate::safetensors::{Dtype, TensorFile, TensorInfo, Tensors};

/// Which rows (first dimension, output channels) of a stored tensor make up a weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rows {
    /// All of them.
    All,
    /// `groups` groups of `stride` rows; of each group the `take` rows from `first` on. With one group: a contiguous block.
    Grouped {
        groups: usize,
        stride: usize,
        first: usize,
        take: usize,
    },
}

impl Rows {
    /// A block of `take` rows from `first` on, of `total`.
    pub(crate) fn block(first: usize, take: usize, total: usize) -> Rows {
        Rows::Grouped {
            groups: 1,
            stride: total,
            first,
            take,
        }
    }

    /// Part `part` of 3 of a fused projection laid out `[heads, 3, head_width]` (BLOOM, Falcon).
    pub(crate) fn per_head(part: usize, heads: usize, head_width: usize) -> Rows {
        Rows::Grouped {
            groups: heads,
            stride: 3 * head_width,
            first: part * head_width,
            take: head_width,
        }
    }

    fn stored(&self, wanted: usize) -> usize {
        match *self {
            Rows::All => wanted,
            Rows::Grouped { groups, stride, .. } => groups * stride,
        }
    }

    /// Stored row of logical row `row`.
    fn stored_row(&self, row: usize) -> usize {
        match *self {
            Rows::All => row,
            Rows::Grouped {
                stride,
                first,
                take,
                ..
            } => row / take * stride + first + row % take,
        }
    }

    /// Stored ranges of the logical rows `rows`, in order.
    fn ranges(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let take = match *self {
            Rows::All => return vec![rows],
            Rows::Grouped { take, .. } => take,
        };
        let mut ranges = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let stop = rows.end.min((row / take + 1) * take);
            let stored = self.stored_row(row);
            ranges.push(stored..stored + (stop - row));
            row = stop;
        }
        ranges
    }
}

/// Where one weight lies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) tensor: String,
    pub(crate) rows: Rows,
    /// Whether a matrix is stored `[in, out]`.
    pub(crate) transposed: bool,
}

impl Place {
    pub(crate) fn whole(tensor: impl Into<String>) -> Place {
        Place::part(tensor, Rows::All)
    }

    pub(crate) fn part(tensor: impl Into<String>, rows: Rows) -> Place {
        Place {
            tensor: tensor.into(),
            rows,
            transposed: false,
        }
    }
}

/// Every weight of a model, checked against the headers.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    places: HashMap<WeightRole, (Place, Vec<usize>)>,
}

impl Layout {
    /// Asks `place` for every weight of `spec` and checks the tensors' presence, shape and dtype.
    pub(crate) fn build(
        spec: &ModelSpec,
        tensors: &Tensors,
        place: impl Fn(WeightRole) -> Place,
    ) -> Result<Layout, CheckpointError> {
        let mut places = HashMap::new();
        for role in spec.weight_roles() {
            let shape = spec
                .weight_shape(role)
                .expect("weight_roles lists only weights that exist");
            let place = place(role);
            let (file, tensor) = tensors.find(&place.tensor).ok_or_else(|| {
                CheckpointError::missing(format!(
                    "tensor {} is missing; it is the {role}",
                    quoted(&place.tensor)
                ))
                .in_file(tensors.path())
            })?;
            let expected = stored_shape(&place, &shape);
            if tensor.shape != expected {
                return Err(CheckpointError::malformed(format!(
                    "tensor {}: expected shape {expected:?} ({role}), found {:?}; the configuration and the weights do not belong together",
                    quoted(&place.tensor),
                    tensor.shape
                ))
                .in_file(file.path()));
            }
            if !matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
                return Err(CheckpointError::unsupported(format!(
                    "tensor {}: dtype {} is not read as weights, only F32, F16 and BF16 are; convert the checkpoint to one of them",
                    quoted(&place.tensor),
                    tensor.dtype.name()
                ))
                .in_file(file.path()));
            }
            places.insert(role, (place, shape));
        }
        Ok(Layout { places })
    }

    /// The tensor that holds a weight, or part of one.
    pub(crate) fn tensor_name(&self, role: WeightRole) -> Option<&str> {
        self.places
            .get(&role)
            .map(|(place, _)| place.tensor.as_str())
    }

    /// Names of all tensors that are used. Aliases are resolved.
    pub(crate) fn used<'t>(&self, tensors: &'t Tensors) -> HashSet<&'t str> {
        self.places
            .values()
            .filter_map(|(p, _)| tensors.find(&p.tensor))
            .map(|(_, t)| t.name.as_str())
            .collect()
    }

    /// What is stored for the weights that `skip` does not hold, by file and position, each byte once.
    pub(crate) fn stored<'t>(
        &self,
        tensors: &'t Tensors,
        skip: &HashSet<WeightRole>,
    ) -> Vec<Stored<'t>> {
        let wanted = self.places.iter().filter(|(role, _)| !skip.contains(role));
        let mut stored: Vec<Stored<'t>> = wanted
            .filter_map(|(_, (place, shape))| Some((place, shape, tensors.find(&place.tensor)?)))
            .flat_map(|(place, shape, (file, tensor))| {
                let columns: usize = shape[1..].iter().product();
                let (rows, width) = if place.transposed {
                    // columns of what is stored: all of it is looked at
                    (Rows::All.ranges(0..1), tensor.elements() as usize)
                } else {
                    (place.rows.ranges(0..shape[0]), columns)
                };
                rows.into_iter().map(move |rows| Stored {
                    file,
                    tensor,
                    elements: rows.start * width..rows.end * width,
                })
            })
            .collect();
        stored.sort_by_key(|s| (s.file.path(), s.tensor.begin, s.elements.start));
        stored.dedup_by(|next, before| before.extend(next));
        stored
    }

    /// Reads a weight, or the rows `rows` of it, widened to f32. `None`: the model has no such weight.
    pub(crate) fn read(
        &self,
        tensors: &Tensors,
        role: WeightRole,
        rows: Option<Range<usize>>,
    ) -> Option<Result<Weight, CheckpointError>> {
        let (place, shape) = self.places.get(&role)?;
        Some(read(tensors, place, shape, rows))
    }
}

/// Shape of the stored tensor of which `place` takes a weight of shape `wanted`.
fn stored_shape(place: &Place, wanted: &[usize]) -> Vec<u64> {
    let mut shape: Vec<u64> = wanted.iter().map(|&n| n as u64).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = place.rows.stored(wanted[0]) as u64;
    }
    if place.transposed {
        shape.reverse();
    }
    shape
}

fn read(
    tensors: &Tensors,
    place: &Place,
    shape: &[usize],
    rows: Option<Range<usize>>,
) -> Result<Weight, CheckpointError> {
    let (file, tensor) = tensors.find(&place.tensor).ok_or_else(|| {
        CheckpointError::missing(format!("tensor {} is missing", quoted(&place.tensor)))
            .in_file(tensors.path())
    })?;
    let n_rows = shape[0];
    let rows = rows.unwrap_or(0..n_rows);
    if rows.start > rows.end || rows.end > n_rows {
        return Err(CheckpointError::malformed(format!(
            "tensor {}: rows {rows:?} of {n_rows} asked for",
            quoted(&place.tensor)
        )));
    }
    let columns: usize = shape[1..].iter().product();
    let mut data = Vec::with_capacity(rows.len() * columns);
    if place.transposed && shape.len() == 2 {
        let stored_rows = place.rows.stored(n_rows);
        let mut whole = Vec::new();
        file.widen(tensor, 0..stored_rows * columns, &mut whole)?;
        for row in rows.clone() {
            let stored = place.rows.stored_row(row);
            data.extend((0..columns).map(|column| whole[column * stored_rows + stored]));
        }
    } else {
        for range in place.rows.ranges(rows.clone()) {
            file.widen(
                tensor,
                range.start * columns..range.end * columns,
                &mut data,
            )?;
        }
    }
    check_finite(file, tensor, place, &data, rows.start, columns, shape.len())?;
    let mut shape = shape.to_vec();
    shape[0] = rows.len();
    Ok(Weight { shape, data })
}

/// Refuses NaN and infinities, giving the position in the stored tensor.
fn check_finite(
    file: &TensorFile,
    tensor: &TensorInfo,
    place: &Place,
    data: &[f32],
    first_row: usize,
    columns: usize,
    rank: usize,
) -> Result<(), CheckpointError> {
    if model::all_finite(data) {
        return Ok(());
    }
    let mut bad = data.iter().enumerate().filter(|(_, x)| !x.is_finite());
    let Some((flat, first)) = bad.next() else {
        return Ok(());
    };
    let count = 1 + bad.count();
    let (row, column) = (
        place.rows.stored_row(first_row + flat / columns),
        flat % columns,
    );
    let index = match (rank, place.transposed) {
        (1, _) => format!("[{row}]"),
        (_, false) => format!("[{row}, {column}]"),
        (_, true) => format!("[{column}, {row}]"),
    };
    Err(CheckpointError::malformed(format!(
        "tensor {}: {count} of {} values read are not finite, the first at {index} is {}; {}",
        quoted(&tensor.name),
        data.len(),
        first,
        finite::ADVICE
    ))
    .in_file(file.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_heads_are_picked_row_by_row() {
        // Two heads of width 2, [H, 3, d]: rows q0 q0 k0 k0 v0 v0 q1 q1 k1 k1 v1 v1.
        let key = Rows::per_head(1, 2, 2);
        assert_eq!(
            (0..4).map(|r| key.stored_row(r)).collect::<Vec<_>>(),
            [2, 3, 8, 9]
        );
        assert_eq!(key.ranges(0..4), [2..4, 8..10]);
        assert_eq!(key.ranges(1..3), [3..4, 8..9]);
        assert_eq!(key.stored(4), 12);
        let block = Rows::block(4, 2, 8);
        assert_eq!(
            block.ranges(0..2),
            std::iter::once(4..6).collect::<Vec<_>>()
        );
        assert_eq!(block.stored(2), 8);
        assert!(key.ranges(2..2).is_empty());
    }
}
