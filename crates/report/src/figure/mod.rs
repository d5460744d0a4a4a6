//! Pictures of a result: as SVG in the page and as a file by itself, and as PNG.
//!
//! A figure is drawn here once, for a width in pixels, and says everything without colour: a cell has a bar and, where they fit,
//! its numbers; curves differ by dash and marker; what is missing is a question mark. In the page the colours are those of its
//! style sheet, and follow light and dark; a file carries its own, on white.

mod curves;
mod eye;
mod forest;
mod head;
mod heat;
mod pair;
pub mod png;
mod quantity;
mod scale;
mod scores;
mod study;
mod svg;
mod verbs;

use crate::document::Document;
use crate::summary::Summary;
use svg::Svg;

pub use head::HeadPlace;
pub(crate) use heat::share;
pub(crate) use pair::lettered;
pub use quantity::names as quantities;
pub(crate) use scores::scores;

/// One picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Heading.
    pub(crate) title: String,
    /// What it shows, in words: for those who do not see it.
    pub(crate) label: String,
    /// What bars, marks and axes mean.
    pub(crate) caption: String,
    /// `img`, or `grid` where cells can be walked through.
    pub(crate) role: &'static str,
    /// Pixels.
    pub(crate) width: f64,
    /// Pixels.
    pub(crate) height: f64,
    /// What is inside the `svg` element.
    body: String,
}

/// Width of the figures of a file, pixels.
const FILE_WIDTH: f64 = 960.0;
/// White around them.
const MARGIN: f64 = 24.0;

impl Figure {
    /// The element for a page, whose style sheet has the classes.
    pub(crate) fn element(&self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"{}\" \
             aria-label=\"{}\">{}</svg>",
            self.role,
            crate::html::escape_html(&self.label),
            self.body,
            w = svg::number(self.width),
            h = svg::number(self.height)
        )
    }
}

/// The figures of a result at a width in pixels; empty where it has none.
pub(crate) fn figures(document: &Document, width: f64) -> Vec<Figure> {
    verbs::figures(document, width)
}

/// Which figures of a result are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Chosen {
    /// All, the eye chart by the verb's own quantity.
    #[default]
    Everything,
    /// Those of one head.
    Head(HeadPlace),
    /// The eye chart by this one of [`quantities`].
    Quantity(String),
}

/// The chosen figures of a result as one SVG document with its colours; `None` where it has none.
#[must_use]
pub fn render(document: &Document, chosen: &Chosen) -> Option<String> {
    let figures = match chosen {
        Chosen::Head(place) => head::figures(document, *place, FILE_WIDTH)?,
        Chosen::Quantity(name) => quantity::figures(document, name, FILE_WIDTH)?,
        Chosen::Everything => figures(document, FILE_WIDTH),
    };
    let inner = figures
        .iter()
        .map(|figure| figure.width)
        .fold(FILE_WIDTH, f64::max);
    if figures.is_empty() {
        return None;
    }
    let mut svg = Svg::new();
    let subject = crate::html::subject(document);
    let heading = format!("snellen {}: {subject}", document.verb());
    let mut y = MARGIN - 6.0;
    // letters of a title are wider than those of a caption
    for line in wrapped(&heading, inner * 0.57) {
        y += 24.0;
        svg.styled_text(MARGIN, y, "start", "title", &line);
    }
    for line in wrapped(&Summary::of(document).headline, inner) {
        y += 20.0;
        svg.text(MARGIN, y, "start", &line);
    }
    for figure in &figures {
        y += 38.0;
        svg.styled_text(MARGIN, y, "start", "subtitle", &figure.title);
        y += 12.0;
        svg.group(MARGIN, y, &figure.label, &figure.body);
        y += figure.height;
        for line in wrapped(&figure.caption, inner) {
            y += 16.0;
            svg.styled_text(MARGIN, y, "start", "axis", &line);
        }
    }
    y += 30.0;
    let program = format!("snellen {}", document.tool_version());
    svg.styled_text(MARGIN, y, "start", "axis", &program);
    let (width, height) = (svg::number(inner + 2.0 * MARGIN), svg::number(y + MARGIN));
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}\n</svg>\n",
        crate::html::escape_html(&heading),
        svg.finish()
    ))
}

/// Text in lines that fit `width` pixels at the size of a caption.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some hundreds of pixels
    let options = crate::text::TextOptions {
        width: (width / 6.6) as usize,
        ..crate::text::TextOptions::default()
    };
    options
        .wrap(&crate::text::escape(text), 0, 0)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Colours of a file: the page's light ones, by the same classes.
const STYLE: &str = include_str!("file.css");
