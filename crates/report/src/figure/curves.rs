//! Curves on two axes: lines that differ by dash and marker, with whiskers where there are intervals.

use super::Figure;
use super::scale::{Kind, Scale};
use super::svg::{Svg, number};
use crate::number::short;

/// One point; the ends of an interval where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A figure of curves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curves {
    pub(super) title: &'static str,
    pub(super) caption: String,
    pub(super) x: (&'static str, Kind),
    pub(super) y: &'static str,
    /// Limits of the y axis where they are fixed, such as those of a share.
    pub(super) limits: Option<(f64, f64)>,
    /// Whether y is a share, shown in percent.
    pub(super) share: bool,
    pub(super) series: Vec<Series>,
    /// A place on the x axis worth a line, and its name.
    pub(super) mark: Option<(f64, String)>,
}

const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 30.0;
const PLOT: f64 = 210.0;
const BOTTOM: f64 = 42.0;
/// More points than this are drawn as a line without markers.
const MARKERS_MAX: usize = 40;

impl Curves {
    /// The figure; `None` without a point.
    pub(super) fn draw(&self, width: f64) -> Option<Figure> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        points().next()?;
        let ends = |pick: &dyn Fn(&Point) -> (f64, f64)| {
            points()
                .map(pick)
                .fold((f64::MAX, f64::MIN), |all, (low, high)| {
                    (all.0.min(low), all.1.max(high))
                })
        };
        let (x_low, x_high) = ends(&|point| (point.x, point.x));
        let x_low = if self.x.1 == Kind::Log { 0.0 } else { x_low };
        let (low, high) = self.limits.unwrap_or_else(|| {
            let (low, high) = ends(&|point| point.interval.unwrap_or((point.y, point.y)));
            let room = 0.06 * (high - low).max(1e-9);
            // a quantity that cannot be negative keeps its zero
            (
                if low >= 0.0 {
                    (low - room).max(0.0)
                } else {
                    low - room
                },
                high + room,
            )
        });
        let x = Scale::new(self.x.1, x_low, x_high, (LEFT, width - RIGHT));
        let y = Scale::new(Kind::Linear, low, high, (TOP + PLOT, TOP));
        let mut svg = Svg::new();
        self.axes(&mut svg, &x, &y, width);
        if let Some((at, name)) = &self.mark {
            let at = x.at(*at);
            svg.line("limit", (at, TOP), (at, TOP + PLOT));
            let right = at > width * 0.7;
            let (anchor, shift) = if right { ("end", -6.0) } else { ("start", 6.0) };
            svg.styled_text(at + shift, TOP + 12.0, anchor, "axis", name);
        }
        #[allow(clippy::cast_precision_loss)] // some characters
        let mut legend = LEFT.max(20.0 + 6.2 * self.y.len() as f64);
        for (index, series) in self.series.iter().enumerate() {
            curve(&mut svg, index, series, &x, &y);
            legend = key(&mut svg, index, &series.name, legend);
        }
        let words = self.series.iter().filter_map(|series| {
            let (first, last) = (series.points.first()?, series.points.last()?);
            Some(format!(
                "{} from {} to {}",
                series.name,
                self.value(first.y),
                self.value(last.y)
            ))
        });
        let words: Vec<String> = words.collect();
        Some(Figure {
            title: self.title.to_owned(),
            label: format!("{}: {}", self.title, words.join("; ")),
            caption: self.caption.clone(),
            role: "img",
            width,
            height: TOP + PLOT + BOTTOM,
            body: svg.finish(),
        })
    }

    fn value(&self, value: f64) -> String {
        if self.share {
            crate::number::percent(value)
        } else {
            short(value)
        }
    }

    fn axes(&self, svg: &mut Svg, x: &Scale, y: &Scale, width: f64) {
        for tick in y.ticks(34.0) {
            let at = y.at(tick);
            svg.line("grid", (LEFT, at), (width - RIGHT, at));
            let text = if self.share {
                format!("{}%", short((1000.0 * tick).round() / 10.0))
            } else {
                tidy(tick)
            };
            svg.styled_text(LEFT - 8.0, at + 4.0, "end", "axis", &text);
        }
        for tick in x.ticks(70.0) {
            let at = x.at(tick);
            svg.line("grid", (at, TOP + PLOT), (at, TOP + PLOT + 4.0));
            svg.styled_text(at, TOP + PLOT + 17.0, "middle", "axis", &tidy(tick));
        }
        svg.styled_text(width - RIGHT, TOP + PLOT + 34.0, "end", "axis", self.x.0);
        svg.styled_text(2.0, TOP - 16.0, "start", "axis", self.y);
    }
}

/// A tick in as few digits as it needs, without those that its arithmetic left.
pub(super) fn tidy(tick: f64) -> String {
    let size = tick.abs();
    if size > 0.0 && !(1e-3..1e7).contains(&size) {
        return format!("{:e}", format!("{tick:.3e}").parse().unwrap_or(tick));
    }
    format!("{}", (tick * 1e6).round() / 1e6)
}

fn curve(svg: &mut Svg, index: usize, series: &Series, x: &Scale, y: &Scale) {
    let mut d = String::new();
    for point in &series.points {
        let command = if d.is_empty() { 'M' } else { 'L' };
        let (px, py) = (x.at(point.x), y.at(point.y));
        d.push_str(&format!("{command}{} {}", number(px), number(py)));
    }
    if series.points.len() > 1 {
        svg.path(&format!("line{}", index % 4), &d);
    }
    for point in &series.points {
        if let Some((low, high)) = point.interval {
            let (px, top, bottom) = (x.at(point.x), y.at(high), y.at(low));
            svg.line("whisker", (px, top), (px, bottom));
            for end in [top, bottom] {
                svg.line("whisker", (px - 3.0, end), (px + 3.0, end));
            }
        }
        if series.points.len() <= MARKERS_MAX {
            let class = format!("dot{}", index % 4);
            svg.marker(index, &class, x.at(point.x), y.at(point.y));
        }
    }
}

/// A line and a marker with the name of a curve, above the plot; the x of the next.
fn key(svg: &mut Svg, index: usize, name: &str, x: f64) -> f64 {
    svg.line(&format!("line{}", index % 4), (x, 10.0), (x + 26.0, 10.0));
    svg.marker(index, &format!("dot{}", index % 4), x + 13.0, 10.0);
    svg.styled_text(x + 32.0, 14.0, "start", "axis", name);
    #[allow(clippy::cast_precision_loss)] // some characters
    let next = x + 50.0 + 6.4 * name.chars().count() as f64;
    next
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn ticks_have_the_digits_they_need() {
        assert_eq!(
            [0.0, 0.1 + 0.2, 1400.0, 0.0015, 5e-4].map(tidy),
            ["0", "0.3", "1400", "0.0015", "5e-4"]
        );
    }
}
