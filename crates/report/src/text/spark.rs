//! Sparklines: a curve in one line of text. Eight heights of Unicode blocks, digits where the terminal has no such glyphs.

use super::Page;
use super::style::TextOptions;

const RAMP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values as glyphs between `low` and `high`, at most `width` of them; more values than that are averaged in equal parts. A
/// value that does not exist is `?`.
pub(super) fn glyphs(
    values: &[Option<f64>],
    (low, high): (f64, f64),
    width: usize,
    ascii: bool,
) -> String {
    let part = values.len().div_ceil(width.max(1)).max(1);
    let glyph = |part: &[Option<f64>]| {
        let known: Vec<f64> = part.iter().flatten().copied().collect();
        if known.is_empty() {
            return '?';
        }
        #[allow(clippy::cast_precision_loss)] // a few values
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let share = if high > low {
            ((mean - low) / (high - low)).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let steps = if ascii { 9.0 } else { 7.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 9
        let step = (share * steps).round() as usize;
        if ascii {
            char::from_digit(step.min(9) as u32, 10).unwrap_or('?')
        } else {
            RAMP[step.min(7)]
        }
    };
    values.chunks(part).map(glyph).collect()
}

/// Lines of curves that share one axis: name, glyphs, and the first and the last value.
pub(super) struct Sparks<'a> {
    /// Limits of the glyphs; `None`: least and greatest of all values.
    pub(super) limits: Option<(f64, f64)>,
    /// Name and values of each curve.
    pub(super) lines: Vec<(String, Vec<Option<f64>>)>,
    /// How values are written.
    pub(super) number: &'a dyn Fn(f64) -> String,
}

impl Sparks<'_> {
    /// Writes the lines; nothing where no value exists.
    pub(super) fn draw(&self, page: &mut Page<'_>) {
        let options: TextOptions = *page.options;
        let known = || {
            self.lines
                .iter()
                .flat_map(|(_, values)| values.iter().flatten())
        };
        let Some(first) = known().next() else { return };
        let limits = self.limits.unwrap_or_else(|| {
            known().fold((*first, *first), |(low, high), value| {
                (low.min(*value), high.max(*value))
            })
        });
        let names = self.lines.iter().map(|(name, _)| name.chars().count());
        let widest = names.max().unwrap_or(0);
        let ends: Vec<String> = self
            .lines
            .iter()
            .map(|(_, values)| self.ends(values))
            .collect();
        let behind = ends
            .iter()
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0);
        let room = options
            .width
            .saturating_sub(widest + behind + 6)
            .clamp(8, 64);
        for ((name, values), ends) in self.lines.iter().zip(ends) {
            let glyphs = glyphs(values, limits, room, options.ascii);
            page.line(&format!("  {name:<widest$}  {glyphs}  {ends}"));
        }
        let (low, high) = ((self.number)(limits.0), (self.number)(limits.1));
        page.indented(&if options.ascii {
            format!("0 is {low}, 9 is {high}; ? not measured")
        } else {
            format!(
                "{} is {low}, {} is {high}; ? not measured",
                RAMP[0], RAMP[7]
            )
        });
    }

    fn ends(&self, values: &[Option<f64>]) -> String {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        match known.as_slice() {
            [] => "none".to_owned(),
            [one] => (self.number)(*one),
            [first, .., last] => {
                format!("{} to {}", (self.number)(*first), (self.number)(*last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_a_line_within_its_width() {
        let values: Vec<_> = (0..8).map(|value| Some(f64::from(value))).collect();
        assert_eq!(glyphs(&values, (0.0, 7.0), 20, false), "▁▂▃▄▅▆▇█");
        assert_eq!(glyphs(&values, (0.0, 7.0), 20, true), "01345689");
        assert_eq!(glyphs(&values, (0.0, 7.0), 4, true), "1368");
        assert_eq!(glyphs(&[Some(1.0), None], (1.0, 1.0), 9, false), "▁?");
        assert_eq!(glyphs(&[], (0.0, 1.0), 9, false), "");
    }

    #[test]
    fn narrow_pages_keep_the_ends() {
        let options = TextOptions {
            width: 40,
            ..TextOptions::default()
        };
        let mut page = Page::new(&options);
        let lines = vec![(
            "loss".to_owned(),
            (0..100).map(|n| Some(f64::from(n))).collect(),
        )];
        Sparks {
            limits: None,
            lines,
            number: &|value| format!("{value:.0}"),
        }
        .draw(&mut page);
        let text = page.finish();
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(text.contains("0 to 99"), "{text}");
    }
}
