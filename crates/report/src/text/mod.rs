//! The text renderer: a summary in plain words, the eye chart, the worst heads, then the findings.

mod audit;
pub(crate) mod chart;
pub(crate) mod charts;
mod escape;
mod eval;
mod explain;
mod horizon;
mod inspect;
mod measure;
mod outcome;
mod pair;
mod probe;
mod spark;
mod study;
mod style;
mod table;
mod train;

pub use escape::escape;
pub(crate) use outcome::{MARKS, mark, mark_legend};
pub use style::TextOptions;

use crate::number::Distance;
use crate::schema::{Envelope, ModelInfo, Outcome};
use style::Style;

/// A report that has a text form.
pub trait RenderText {
    /// The document, ending in a newline.
    fn render_text(&self, options: &TextOptions) -> String;
}

/// A document under construction.
#[derive(Debug)]
struct Page<'a> {
    options: &'a TextOptions,
    out: String,
}

impl<'a> Page<'a> {
    fn new(options: &'a TextOptions) -> Self {
        Self {
            options,
            out: String::new(),
        }
    }

    /// A line as it is.
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A paragraph, wrapped.
    fn paragraph(&mut self, text: &str) {
        let wrapped = self.options.wrap(text, 0, 0);
        self.line(&wrapped);
    }

    /// A paragraph, wrapped and indented by two.
    fn indented(&mut self, text: &str) {
        let wrapped = self.options.wrap(text, 2, 2);
        self.line(&format!("  {wrapped}"));
    }

    /// A list item, wrapped, with a hanging indent of four.
    fn item(&mut self, text: &str) {
        let wrapped = self.options.wrap(&format!("- {text}"), 2, 4);
        self.line(&format!("  {wrapped}"));
    }

    /// A blank line and a heading, wrapped.
    fn heading(&mut self, text: &str) {
        let wrapped = self.options.wrap(text, 0, 2);
        let painted = self.options.paint(Style::Bold, &wrapped);
        self.out.push('\n');
        self.line(&painted);
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(line);
        }
    }

    /// A table with its header dimmed, and what the width left no room for.
    fn table(&mut self, table: &table::Table) {
        let lines = table.lines(self.options.width);
        for (position, panel) in lines.panels.iter().enumerate() {
            if position > 0 {
                self.line("");
            }
            for header in &panel.header {
                let painted = self.options.paint(Style::Dim, header);
                self.line(&painted);
            }
            self.lines(&panel.rows);
        }
        if !lines.left_out.is_empty() {
            self.indented(&format!(
                "(too narrow for: {}; a wider terminal or --format json has it)",
                lines.left_out.join(", ")
            ));
        }
    }

    /// Names with their values, wrapped behind the longest name.
    fn facts(&mut self, facts: &[(&str, String)]) {
        let widest = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let indent = widest + 4;
        for (name, value) in facts {
            let value = self.options.wrap(value, indent, indent);
            self.line(&format!("  {name:<widest$}  {value}"));
        }
    }

    fn finish(self) -> String {
        self.out
    }
}

/// A whole document: the title, what the verb found, the outcome. `checked` is what was looked at, for the verdict.
fn document(
    options: &TextOptions,
    envelope: &Envelope,
    outcome: &Outcome,
    checked: Option<&str>,
    body: impl FnOnce(&mut Page<'_>),
) -> String {
    let mut page = Page::new(options);
    title(&mut page, envelope);
    body(&mut page);
    outcome::render(&mut page, outcome, checked);
    page.finish()
}

/// The first line of every document: what was looked at.
fn title(page: &mut Page<'_>, envelope: &Envelope) {
    let subject = envelope
        .model
        .as_ref()
        .map_or_else(|| "no model".to_owned(), describe_model);
    let mut text = subject;
    if let Some(length) = envelope.length {
        text.push_str(&format!(", {}", plural(length, "token")));
    }
    let program = format!("snellen {}", envelope.verb);
    let text = page.options.wrap(&text, program.chars().count() + 2, 2);
    let program = page.options.paint(Style::Bold, &program);
    page.line(&format!("{program}: {text}"));
}

/// `bloom-560m (bloom, 24 layers, 16 heads of 64, trained at 2048)`.
fn describe_model(model: &ModelInfo) -> String {
    let mut facts = vec![model.family.clone()];
    facts.extend(model.n_layers.map(|n| plural(n, "layer")));
    match (model.n_heads, model.head_width) {
        (Some(heads), Some(width)) => facts.push(format!("{} of {width}", plural(heads, "head"))),
        (Some(heads), None) => facts.push(plural(heads, "head")),
        _ => {}
    }
    if !model.causal {
        facts.push("bidirectional".to_owned());
    }
    facts.extend(
        model
            .trained_length
            .map(|length| format!("trained at {length}")),
    );
    format!("{} ({})", escape(&model.name), facts.join(", "))
}

/// `1 head`, `3 heads`.
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// A table cell: the value, or a dash where there is none.
fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The share of `length` that lies nearer than `distance`; all of it when there is no such distance.
fn seen_share(distance: Option<Distance>, length: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a display value
    let length = length.max(1) as f64;
    distance.map_or(1.0, |distance| (distance.tokens() / length).min(1.0))
}

/// What a verdict is about: never a verdict over no heads.
fn checked(heads: usize) -> Option<String> {
    (heads > 0).then(|| plural(heads as u64, "head"))
}

/// The heading of the table of the worst heads, and how many it has: at most `most`.
fn shortest_sighted(page: &mut Page<'_>, envelope: &Envelope, heads: usize, most: usize) -> usize {
    let shown = heads.min(most);
    let plan = envelope.plan.as_deref().unwrap_or("");
    page.heading(&format!(
        "Shortest-sighted heads under {plan} ({shown} of {heads})"
    ));
    shown
}
