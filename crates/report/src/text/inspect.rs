//! Text of `snellen inspect`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, escape, outcome, title};
use crate::number::{bytes, grouped, short};
use crate::schema::InspectReport;

/// Slopes shown at each end of a long list.
const SLOPES_SHOWN: usize = 8;
/// Folded tensors shown.
const TENSORS_SHOWN: usize = 40;

impl RenderText for InspectReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let mut page = Page::new(options);
        title(&mut page, &self.envelope);
        if let (Some(parameters), Some(size)) = (self.parameters, self.tensor_bytes) {
            let dtypes: Vec<_> = self
                .dtypes
                .iter()
                .map(|d| format!("{} in {} tensors", escape(&d.dtype), d.tensors))
                .collect();
            page.paragraph(&format!(
                "{} parameters, {}: {}",
                grouped(parameters.into()),
                bytes(size),
                dtypes.join(", ")
            ));
        } else {
            page.paragraph("No weights here: configuration only.");
        }
        alibi(&mut page, self);
        page.heading("Is the bias applied?");
        for check in &self.self_check {
            let verdict = match check.holds {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "not checked",
            };
            page.item(&format!(
                "{}: {verdict} ({})",
                check.check,
                escape(&check.detail)
            ));
        }
        tensors(&mut page, self);
        outcome::render(&mut page, &self.outcome, None);
        page.finish()
    }
}

fn alibi(page: &mut Page<'_>, report: &InspectReport) {
    let facts = &report.alibi;
    page.heading("ALiBi");
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    row(
        "bias form",
        format!("{}, from {}", facts.form, facts.key_origin),
    );
    row(
        "added",
        format!(
            "{} the scores are scaled",
            facts.scale_order.replace("-scale", "")
        ),
    );
    row(
        "stored as",
        facts
            .storage
            .clone()
            .unwrap_or_else(|| "the model's number format".to_owned()),
    );
    if let Some(scale) = facts.score_scale {
        row("score scale", short(scale));
    }
    row(
        "slopes",
        format!("{}: {}", facts.slope_rule, list(&facts.slopes)),
    );
    if facts.slopes != facts.effective_slopes {
        row("effective", list(&facts.effective_slopes));
    }
    page.lines(&table.lines()[1..]);
}

fn list(slopes: &[f64]) -> String {
    let text = |part: &[f64]| {
        part.iter()
            .map(|slope| short(*slope))
            .collect::<Vec<_>>()
            .join(" ")
    };
    if slopes.len() <= 2 * SLOPES_SHOWN {
        text(slopes)
    } else {
        format!(
            "{} ... {}",
            text(&slopes[..SLOPES_SHOWN]),
            text(&slopes[slopes.len() - SLOPES_SHOWN..])
        )
    }
}

fn tensors(page: &mut Page<'_>, report: &InspectReport) {
    if report.tensors_folded.is_empty() {
        return;
    }
    page.heading("Tensors (layer numbers folded to N)");
    let mut table = Table::new([
        ("count", Align::Right),
        ("dtype", Align::Left),
        ("shape", Align::Left),
        ("name", Align::Left),
    ]);
    for tensor in report.tensors_folded.iter().take(TENSORS_SHOWN) {
        let shape: Vec<_> = tensor.shape.iter().map(u64::to_string).collect();
        table.row(vec![
            tensor.count.to_string(),
            escape(&tensor.dtype).into_owned(),
            format!("[{}]", shape.join(", ")),
            escape(&tensor.pattern).into_owned(),
        ]);
    }
    page.table(&table);
    if report.tensors_folded.len() > TENSORS_SHOWN {
        let rest = report.tensors_folded.len() - TENSORS_SHOWN;
        page.line(&format!(
            "  ... and {rest} more kinds; --json lists every tensor"
        ));
    }
}
