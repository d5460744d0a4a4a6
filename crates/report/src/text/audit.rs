//! Text of `snellen audit`.

use super::chart::{Cell, Chart, Row};
use super::charts::Named;
use super::table::{Align, Table};
use super::{
    Page, RenderText, TextOptions, cell, checked, document, outcome, plural, seen_share,
    shortest_sighted,
};
use crate::number::short;
use crate::schema::{AuditHead, AuditReport};

/// Rows of the table of the worst heads.
const WORST_SHOWN: usize = 16;

impl RenderText for AuditReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let checked = checked(self.heads.len());
        let body = |page: &mut Page<'_>| {
            summary(page, self);
            if !self.heads.is_empty() {
                chart_of(self, self.envelope.plan.as_deref().unwrap_or("")).draw(page);
                worst(page, self);
                other_plans(page, self);
            }
        };
        document(
            options,
            &self.envelope,
            &self.outcome,
            checked.as_deref(),
            body,
        )
    }
}

fn summary(page: &mut Page<'_>, report: &AuditReport) {
    let sum = &report.summary;
    let plan = report.envelope.plan.as_deref().unwrap_or("no plan");
    let length = report.envelope.length.unwrap_or(0);
    if sum.heads == 0 {
        page.paragraph("No head could be bounded, so nothing is certified.");
        return;
    }
    page.paragraph(&format!(
        "From the weights alone, for any text whatever, under {plan}: of {}, {} certainly blind somewhere within {}, \
         {} certain to see all of it, and for the rest it depends on the text. An input of typical size blinds {}.",
        plural(sum.heads, "head"),
        are(sum.heads_certified_blind),
        plural(length, "token"),
        are(sum.heads_guaranteed_visible),
        sum.heads_expected_blind,
    ));
}

fn are(count: u64) -> String {
    if count == 1 {
        "1 is".to_owned()
    } else {
        format!("{count} are")
    }
}

/// The chart of the expected horizons under a plan.
pub(super) fn chart_of(report: &AuditReport, plan: &str) -> Named {
    let length = report.envelope.length.unwrap_or(0);
    let chart = by_layer(
        &report.heads,
        |head| (head.layer, head.head),
        |head| Cell {
            // without any of the three nothing is known; without an expected horizon a typical input sees everything
            visible: head.plans.get(plan).and_then(|own| {
                let known = own.guaranteed_visible.or(own.expected_horizon).is_some();
                (own.always_visible || known).then(|| seen_share(own.expected_horizon, length))
            }),
            mark: outcome::mark(&report.outcome.findings, plan, head.layer, head.head),
        },
    );
    Named {
        title: format!("How much of the length each head is expected to see, under {plan}"),
        whole: format!("all {}", plural(length, "token")),
        chart,
    }
}

/// The chart of results that are ordered by layer, then head, with filters applied.
pub(super) fn by_layer<T>(
    heads: &[T],
    place: impl Fn(&T) -> (u64, u64),
    draw: impl Fn(&T) -> Cell,
) -> Chart {
    let columns: std::collections::BTreeSet<u64> = heads.iter().map(|head| place(head).1).collect();
    let columns: Vec<u64> = columns.into_iter().collect();
    let mut layers: std::collections::BTreeMap<u64, Vec<Option<Cell>>> =
        std::collections::BTreeMap::new();
    for head in heads {
        let (layer, index) = place(head);
        let cells = layers
            .entry(layer)
            .or_insert_with(|| vec![None; columns.len()]);
        if let Ok(column) = columns.binary_search(&index) {
            cells[column] = Some(draw(head));
        }
    }
    let rows = layers
        .into_iter()
        .map(|(layer, cells)| Row {
            label: layer.to_string(),
            cells,
        })
        .collect();
    Chart {
        row_name: "layer",
        heads: columns,
        rows,
    }
}

fn worst(page: &mut Page<'_>, report: &AuditReport) {
    let mut heads: Vec<&AuditHead> = report.heads.iter().collect();
    let key = |head: &AuditHead| {
        head.expected_horizon
            .map_or(f64::INFINITY, crate::Distance::tokens)
    };
    heads.sort_by(|a, b| {
        key(a)
            .total_cmp(&key(b))
            .then_with(|| (a.layer, a.head).cmp(&(b.layer, b.head)))
    });
    let shown = shortest_sighted(page, &report.envelope, heads.len(), WORST_SHOWN);
    let mut table = Table::new([
        ("layer", Align::Right),
        ("head", Align::Right),
        ("slope", Align::Right),
        ("score bound", Align::Right),
        ("visible to", Align::Right),
        ("expected blind", Align::Right),
        ("blind past", Align::Right),
    ])
    .keys(2);
    for head in &heads[..shown] {
        table.row(vec![
            head.layer.to_string(),
            head.head.to_string(),
            short(head.effective_slope),
            cell(head.score_bound.map(short)),
            cell(head.guaranteed_visible),
            cell(head.expected_horizon),
            cell(head.certified_horizon),
        ]);
    }
    page.table(&table);
    page.indented("visible to, blind past: certain for any text; expected: inputs of typical size; bound in nats");
}

/// One line for every further plan.
fn other_plans(page: &mut Page<'_>, report: &AuditReport) {
    if report.plans.len() < 2 {
        return;
    }
    page.heading("By plan");
    let mut table = Table::new([
        ("plan", Align::Left),
        ("shortest visible to", Align::Right),
        ("shortest expected", Align::Right),
        ("shortest blind past", Align::Right),
    ]);
    for plan in &report.plans {
        let least =
            |value: &dyn Fn(&crate::schema::AuditPlanCertificate) -> Option<crate::Distance>| {
                let values = report
                    .heads
                    .iter()
                    .filter_map(|head| head.plans.get(&plan.plan).and_then(value));
                cell(values.min_by(|a, b| a.tokens().total_cmp(&b.tokens())))
            };
        table.row(vec![
            plan.plan.clone(),
            least(&|certificate| certificate.guaranteed_visible),
            least(&|certificate| certificate.expected_horizon),
            least(&|certificate| certificate.certified_horizon),
        ]);
    }
    page.table(&table);
}
