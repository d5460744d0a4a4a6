//! Elements of SVG as text. Names are escaped here and nowhere else.

use crate::html::escape_html;
use std::fmt::Write as _;

/// Elements under construction.
#[derive(Debug, Default)]
pub(super) struct Svg(String);

/// A coordinate with one decimal at most.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

impl Svg {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    /// Text in the ordinary style; `anchor` is `start`, `middle` or `end`.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.styled_text(x, y, anchor, "label", text);
    }

    /// Text of a class.
    pub(super) fn styled_text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let _ = write!(
            self.0,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            number(x),
            number(y),
            escape_html(text)
        );
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.0,
            "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        );
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = write!(
            self.0,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            number(x),
            number(y),
            number(width.max(0.0)),
            number(height.max(0.0))
        );
    }

    pub(super) fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            let _ = write!(self.0, "<path class=\"{class}\" d=\"{d}\"/>");
        }
    }

    /// A shape centred on a point; shapes tell apart what colours might not.
    pub(super) fn marker(&mut self, shape: usize, class: &str, x: f64, y: f64) {
        let at = |dx: f64, dy: f64| format!("{} {}", number(x + dx), number(y + dy));
        let d = match shape % 4 {
            0 => format!("M{}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", at(-3.5, 0.0)),
            1 => format!("M{}h7v7h-7z", at(-3.5, -3.5)),
            2 => format!("M{}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", at(0.0, -4.5)),
            _ => format!("M{}h9l-4.5 8z", at(-4.5, -4.0)),
        };
        self.path(class, &d);
    }

    /// Elements that are part of a picture, moved to a place and named.
    pub(super) fn group(&mut self, x: f64, y: f64, label: &str, body: &str) {
        let _ = write!(
            self.0,
            "\n<g transform=\"translate({} {})\" role=\"group\" aria-label=\"{}\">{body}</g>\n",
            number(x),
            number(y),
            escape_html(label)
        );
    }

    /// Elements as they are.
    pub(super) fn raw(&mut self, elements: &str) {
        self.0.push_str(elements);
    }
}
