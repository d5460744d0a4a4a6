//! Forests: an estimate and its interval for each row, in a panel for each quantity.

use super::Figure;
use super::scale::{Kind, Scale};
use super::svg::Svg;
use crate::number::{percent, short};

/// One estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// Ends of its interval; `None` where there is none.
    pub(super) interval: Option<(f64, f64)>,
    /// Whether it is shown as one that differs from what it is compared with.
    pub(super) clear: bool,
}

/// The estimates of one quantity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Whether values are shares, shown in percent.
    pub(super) share: bool,
    /// Ends of the axis; `None` where the estimates decide.
    pub(super) limits: Option<(f64, f64)>,
    /// A value worth a line through all rows.
    pub(super) mark: Option<f64>,
    /// One a row; `None` where there is none.
    pub(super) estimates: Vec<Option<Estimate>>,
}

/// A figure of panels over the same rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Forest {
    pub(super) title: String,
    pub(super) caption: String,
    pub(super) rows: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

const ROW: f64 = 19.0;
/// Above the rows of a band: the titles of its panels.
const TOP: f64 = 24.0;
/// Below them: the ticks.
const BOTTOM: f64 = 26.0;
/// Narrowest panel; what does not fit beside others goes below them.
const PANEL_MIN: f64 = 148.0;
/// Room for the number at the right of a row.
const NUMBER: f64 = 54.0;
/// Longest label of a row, characters; more are cut off.
const LABEL_MAX: usize = 34;
/// Pixels of a character of a label.
const CHARACTER: f64 = 6.7;

/// The label, cut where it would leave no room for anything else.
pub(super) fn clipped(label: &str, characters: usize) -> String {
    if label.chars().count() <= characters {
        return label.to_owned();
    }
    let kept: String = label.chars().take(characters.saturating_sub(1)).collect();
    format!("{kept}…")
}

impl Forest {
    /// The figure; `None` without an estimate.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // some rows and panels
    pub(super) fn draw(&self, width: f64) -> Option<Figure> {
        let estimates = || self.panels.iter().flat_map(|panel| &panel.estimates);
        estimates().flatten().next()?;
        let longest = ((width * 0.4) / CHARACTER) as usize;
        let labels: Vec<String> = self
            .rows
            .iter()
            .map(|row| clipped(&crate::text::escape(row), LABEL_MAX.min(longest)))
            .collect();
        let widest = labels.iter().map(|label| label.chars().count()).max();
        let left = 14.0 + CHARACTER * widest.unwrap_or(0) as f64;
        let beside = ((width - left) / PANEL_MIN).floor().max(1.0) as usize;
        // as many in each band, so that none holds a single one
        let bands = self.panels.len().div_ceil(beside);
        let beside = self.panels.len().div_ceil(bands);
        let pitch = (width - left) / beside as f64;
        let band = TOP + ROW * labels.len() as f64 + BOTTOM;
        let mut svg = Svg::new();
        for (index, panels) in self.panels.chunks(beside).enumerate() {
            let top = index as f64 * (band + 12.0) + TOP;
            for (row, label) in labels.iter().enumerate() {
                let y = top + (row as f64 + 0.5) * ROW + 4.0;
                svg.styled_text(left - 10.0, y, "end", "label", label);
            }
            for (column, panel) in panels.iter().enumerate() {
                let from = left + column as f64 * pitch;
                panel.draw(&mut svg, (from, from + pitch - 12.0), top);
            }
        }
        Some(Figure {
            title: self.title.clone(),
            label: self.label(),
            caption: self.caption.clone(),
            role: "img",
            width,
            height: bands as f64 * (band + 12.0),
            body: svg.finish(),
        })
    }

    /// The lowest and the highest row of every panel, in words.
    fn label(&self) -> String {
        let words = self.panels.iter().filter_map(|panel| {
            let known = panel.estimates.iter().zip(&self.rows);
            let mut known: Vec<(f64, &String)> = known
                .filter_map(|(estimate, row)| Some((estimate.as_ref()?.value, row)))
                .collect();
            known.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (low, high) = (known.first()?, known.last()?);
            Some(format!(
                "{} from {} ({}) to {} ({})",
                panel.title,
                panel.text(low.0),
                low.1,
                panel.text(high.0),
                high.1
            ))
        });
        format!("{}: {}", self.title, words.collect::<Vec<_>>().join("; "))
    }
}

impl Panel {
    fn text(&self, value: f64) -> String {
        if self.share {
            percent(value)
        } else {
            short(value)
        }
    }

    /// Ends of the axis: those given, or such that every interval has room.
    fn ends(&self) -> (f64, f64) {
        self.limits.unwrap_or_else(|| {
            let values = self.estimates.iter().flatten();
            let ends = values.map(|e| e.interval.unwrap_or((e.value, e.value)));
            let ends = ends.chain(self.mark.map(|mark| (mark, mark)));
            let all = ends.fold((f64::MAX, f64::MIN), |all, (low, high)| {
                (all.0.min(low), all.1.max(high))
            });
            // of values that are all the same the axis is as wide as they are large
            let range = all.1 - all.0;
            let room = if range > 0.0 {
                0.04 * range
            } else {
                0.5 * all.0.abs().max(0.1)
            };
            (all.0 - room, all.1 + room)
        })
    }

    #[allow(clippy::cast_precision_loss)] // some rows
    fn draw(&self, svg: &mut Svg, (left, right): (f64, f64), top: f64) {
        let bottom = top + ROW * self.estimates.len() as f64;
        let (low, high) = self.ends();
        let right_axis = right - NUMBER;
        let x = Scale::new(Kind::Linear, low, high, (left + 6.0, right_axis));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some characters
        let room = ((right - left) / 6.2) as usize;
        svg.styled_text(
            left,
            top - 8.0,
            "start",
            "axis",
            &clipped(&self.title, room),
        );
        for tick in x.ticks(52.0) {
            let at = x.at(tick);
            svg.line("grid", (at, top), (at, bottom));
            let text = if self.share {
                format!("{}%", short((1000.0 * tick).round() / 10.0))
            } else {
                super::curves::tidy(tick)
            };
            svg.styled_text(at, bottom + 15.0, "middle", "axis", &text);
        }
        if let Some(mark) = self.mark {
            let at = x.at(mark);
            svg.line("limit", (at, top), (at, bottom));
        }
        for (row, estimate) in self.estimates.iter().enumerate() {
            let y = top + (row as f64 + 0.5) * ROW;
            let Some(estimate) = estimate else {
                svg.styled_text(right, y + 4.0, "end", "axis", "?");
                continue;
            };
            if let Some((from, to)) = estimate.interval {
                svg.line("whisker", (x.at(from), y), (x.at(to), y));
                // an end outside the axis has no cap
                for end in [from, to]
                    .into_iter()
                    .filter(|end| (low..=high).contains(end))
                {
                    svg.line("whisker", (x.at(end), y - 4.0), (x.at(end), y + 4.0));
                }
            }
            let shape = if estimate.clear { 2 } else { 0 };
            svg.marker(shape, "dot0", x.at(estimate.value), y);
            svg.styled_text(right, y + 4.0, "end", "value", &self.text(estimate.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forest() -> Forest {
        let estimate = |value, interval, clear| {
            Some(Estimate {
                value,
                interval,
                clear,
            })
        };
        let panel = |title: &str, limits| Panel {
            title: title.to_owned(),
            share: limits == Some((0.0, 1.0)),
            limits,
            mark: Some(0.25),
            estimates: vec![
                estimate(0.25, Some((-0.5, 0.75)), false),
                None,
                estimate(1.0, None, true),
            ],
        };
        Forest {
            title: "Recall".to_owned(),
            caption: String::new(),
            rows: vec![
                "linear".to_owned(),
                "missing".to_owned(),
                "</text>".repeat(20),
            ],
            panels: vec![panel("far", Some((0.0, 1.0))), panel("loss", None)],
        }
    }

    #[test]
    fn every_estimate_has_a_mark_a_number_and_its_interval_and_what_is_missing_is_seen() {
        let figure = forest().draw(900.0).unwrap();
        assert_eq!(figure.body.matches(">?</text>").count(), 2);
        assert_eq!(figure.body.matches(">25.0%</text>").count(), 1);
        // the interval's lower end lies outside an axis from 0: one cap there, two on the other panel
        assert_eq!(figure.body.matches("class=\"whisker\"").count(), 2 + 3);
        assert!(!figure.body.contains("</text></text>") && figure.body.contains('…'));
        let label = &figure.label;
        assert!(
            label.starts_with("Recall: far from 25.0% (linear) to 100.0%"),
            "{label}"
        );
    }

    #[test]
    fn panels_that_do_not_fit_go_below() {
        let (wide, narrow) = (forest().draw(900.0).unwrap(), forest().draw(350.0).unwrap());
        assert!(narrow.height > 1.9 * wide.height);
        assert_eq!(narrow.width, 350.0);
    }
}
