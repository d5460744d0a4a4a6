//! One number for a grid.

/// Area under accuracy over the grid, as a share of the most possible: by the trapezoid rule first over the depth, then over the
/// binary logarithm of the length, so that each doubling counts alike. Entries are (length in tokens, depth, accuracy); an axis with
/// one point contributes its value. `None` without entries.
#[must_use]
pub fn area(cells: &[(usize, f64, f64)]) -> Option<f64> {
    let mut lengths: Vec<usize> = cells.iter().map(|cell| cell.0).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let by_length = lengths.iter().filter_map(|&length| {
        let depths = cells.iter().filter(|cell| cell.0 == length);
        let mean = mean_height(depths.map(|cell| (cell.1, cell.2)).collect())?;
        #[allow(clippy::cast_precision_loss)] // lengths
        let at = (length as f64).log2();
        Some((at, mean))
    });
    mean_height(by_length.collect())
}

/// Trapezoid area over the extent of the points.
fn mean_height(mut points: Vec<(f64, f64)>) -> Option<f64> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (points.first()?, points.last()?);
    let extent = last.0 - first.0;
    if extent == 0.0 {
        return Some(first.1);
    }
    let strips = points.windows(2).map(|pair| {
        let [a, b] = pair else { return 0.0 };
        (b.0 - a.0) * (a.1 + b.1) / 2.0
    });
    Some(strips.sum::<f64>() / extent)
}

#[cfg(test)]
mod tests {
    use super::area;

    #[test]
    fn areas_of_simple_grids() {
        assert_eq!(area(&[]), None);
        assert_eq!(area(&[(128, 0.5, 0.25)]), Some(0.25));
        // linear in depth: the mean of the ends
        assert_eq!(area(&[(128, 1.0, 1.0), (128, 0.0, 0.0)]), Some(0.5));
        // the middle counts twice
        let depth = [(64, 0.0, 0.0), (64, 0.5, 1.0), (64, 1.0, 0.0)];
        assert_eq!(area(&depth), Some(0.5));
        // doublings count alike
        let lengths = [(128, 0.0, 1.0), (256, 0.0, 1.0), (512, 0.0, 0.0)];
        assert_eq!(area(&lengths), Some(0.75));
    }
}
