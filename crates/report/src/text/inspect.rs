//! Text of `snellen inspect`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, document, escape, plural};
use crate::number::{bytes, grouped, short};
use crate::schema::InspectReport;

/// Slopes shown at each end of a long list.
const SLOPES_SHOWN: usize = 8;
/// Folded tensors shown.
const TENSORS_SHOWN: usize = 40;

impl RenderText for InspectReport {
    fn render_text(&self, options: &TextOptions) -> String {
        document(options, &self.envelope, &self.outcome, None, |page| {
            body(page, self);
        })
    }
}

fn body(page: &mut Page<'_>, report: &InspectReport) {
    if let (Some(parameters), Some(size)) = (report.parameters, report.tensor_bytes) {
        let dtypes: Vec<_> = report
            .dtypes
            .iter()
            .map(|d| format!("{} in {}", escape(&d.dtype), plural(d.tensors, "tensor")))
            .collect();
        page.paragraph(&format!(
            "{} parameters, {}: {}",
            grouped(parameters.into()),
            bytes(size),
            dtypes.join(", ")
        ));
    } else {
        page.paragraph("No weights are read here: configuration only.");
    }
    alibi(page, report);
    page.heading("Is the bias applied?");
    for check in &report.self_check {
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
    tensors(page, report);
}

fn alibi(page: &mut Page<'_>, report: &InspectReport) {
    let facts = &report.alibi;
    page.heading("ALiBi");
    let mut rows = Vec::new();
    let mut row = |name: &'static str, value: String| rows.push((name, value));
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
            .unwrap_or_else(|| "the runtime and its dtype decide".to_owned()),
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
    page.facts(&rows);
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
