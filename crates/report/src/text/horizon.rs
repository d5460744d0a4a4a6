//! Text of `snellen horizon`.

use super::chart::{Cell, Chart, Row};
use super::charts::Named;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, document, outcome, plural};
use crate::number::{grouped, percent, short};
use crate::schema::{HorizonPlan, HorizonReport};

impl RenderText for HorizonReport {
    fn render_text(&self, options: &TextOptions) -> String {
        document(options, &self.envelope, &self.outcome, None, |page| {
            summary(page, self);
            chart_of(self).draw(page);
            for plan in &self.plans {
                page.heading(&rule(plan, &self.criterion));
                page.table(&table_of(self, plan));
            }
        })
    }
}

impl HorizonReport {
    /// Only the slopes, one line a head: `head slope effective-slope`.
    #[must_use]
    pub fn render_slopes(&self) -> String {
        let mut table = Table::new([
            ("head", Align::Right),
            ("slope", Align::Right),
            ("effective", Align::Right),
        ]);
        for head in &self.heads {
            table.row(vec![
                head.head.to_string(),
                head.slope.to_string(),
                head.effective_slope.to_string(),
            ]);
        }
        let panels = table.lines(usize::MAX).panels.into_iter();
        let all: Vec<String> = panels
            .flat_map(|p| p.header.into_iter().chain(p.rows))
            .collect();
        all.join("\n") + "\n"
    }
}

fn summary(page: &mut Page<'_>, report: &HorizonReport) {
    let tokens = plural(report.envelope.length.unwrap_or(0), "token");
    for plan in &report.plans {
        let sum = &plan.summary;
        let key = &plan.info.plan;
        if sum.heads_nan > 0 {
            page.paragraph(&format!(
                "Under {key} the stored bias of {} overflows to infinity within {tokens}: rows that see it are NaN, and \
                 the shares leave them out.",
                plural(sum.heads_nan, "head"),
            ));
        }
        let text = if sum.heads_touched == 0 {
            format!("Under {key} no head is blind within {tokens} by its bias alone.")
        } else {
            let verb = if sum.heads_touched == 1 { "is" } else { "are" };
            format!(
                "Under {key}, {} of {} {verb} blind somewhere within {tokens} by the bias alone: {} of all \
                 (query, key) pairs, and {} of what the last token should see, get a weight of exactly zero.",
                sum.heads_touched,
                plural(sum.heads, "head"),
                percent(sum.blind_share),
                sum.blind_share_last_row
                    .map_or_else(|| "an unknown part".to_owned(), percent),
            )
        };
        page.paragraph(&text);
    }
    let steepest = report
        .heads
        .iter()
        .max_by(|a, b| a.effective_slope.total_cmp(&b.effective_slope));
    if let Some(head) = steepest.filter(|head| head.effective_slope > 0.0) {
        let first = match head.first_blind_distance {
            Some(distance) => format!("is blind from distance {distance}"),
            None => "is never blind".to_owned(),
        };
        page.paragraph(&format!(
            "The steepest head, {} (slope {}), {first}. All content is taken as equal: real scores move every distance, and \
             `snellen measure` shows by how much.",
            head.head,
            short(head.slope),
        ));
    } else {
        page.paragraph("No head has a slope above 0: there is no bias that could blind one.");
    }
}

/// A row a plan: the result is the same in every layer.
pub(super) fn chart_of(report: &HorizonReport) -> Named {
    let findings = &report.outcome.findings;
    let row = |plan: &HorizonPlan| Row {
        label: plan.info.plan.clone(),
        cells: plan
            .heads
            .iter()
            .map(|head| {
                Some(Cell {
                    visible: head.blind_share_last_row.map(|share| 1.0 - share),
                    // the result is the same in every layer
                    mark: outcome::mark(findings, &plan.info.plan, 0, head.head),
                })
            })
            .collect(),
    };
    let chart = Chart {
        row_name: "plan",
        heads: report.heads.iter().map(|head| head.head).collect(),
        rows: report.plans.iter().map(row).collect(),
    };
    Named {
        title: "How much of the last row each head sees".to_owned(),
        whole: "the whole length".to_owned(),
        chart,
    }
}

/// `Plan ftz (f32): zero when exp is 87.34 nats below the row's maximum`.
fn rule(plan: &HorizonPlan, criterion: &str) -> String {
    let numerator = plan
        .info
        .numerator_zero_nats
        .map(|nats| format!("exp is zero more than {nats:.2} nats below the row's maximum"));
    let weight = plan.info.weight_zero_nats.map(|nats| {
        format!("the weight is zero more than {nats:.2} nats below the logarithm of the row's sum")
    });
    let rules = match criterion {
        "exp" => [numerator, None],
        "weight" => [None, weight],
        _ => [numerator, weight],
    };
    let mut rules: Vec<String> = rules.into_iter().flatten().collect();
    if rules.is_empty() {
        // asked for a criterion that the plan itself does not have
        rules.push(format!(
            "exp divided by the row's sum is zero in {}",
            plan.info.dtype
        ));
    }
    format!(
        "Plan {} ({}): {}; bias stored in {} as slope times {}",
        plan.info.plan,
        plan.info.dtype,
        rules.join("; "),
        plan.bias_dtype,
        match (plan.convention.as_str(), plan.key_origin.as_str()) {
            ("absolute", "first key") => "key position".to_owned(),
            ("absolute", origin) => format!("key position, counted from the {origin}"),
            _ => "distance".to_owned(),
        }
    )
}

fn table_of(report: &HorizonReport, plan: &HorizonPlan) -> Table {
    let length = report.envelope.length.unwrap_or(0);
    let any_effective = plan
        .heads
        .iter()
        .any(|head| head.effective_slope != head.slope);
    #[allow(clippy::cast_precision_loss)]
    let overflow = plan.heads.iter().any(|h| {
        h.overflow_distance
            .is_some_and(|d| d.tokens() < 16.0 * length as f64)
    });
    let mut table = Table::new([("head", Align::Right), ("slope", Align::Right)]).optional([
        "blind pairs",
        "effective",
        "overflow at",
    ]);
    if any_effective {
        table.column("effective", Align::Right);
    }
    for name in [
        "first blind",
        "blind pairs",
        "share",
        "last row",
        "distinct/20",
    ] {
        table.column(name, Align::Right);
    }
    if overflow {
        table.column("overflow at", Align::Right);
    }
    for head in &plan.heads {
        let mut row = vec![head.head.to_string(), short(head.slope)];
        if any_effective {
            row.push(short(head.effective_slope));
        }
        row.push(cell(head.first_blind_distance));
        row.push(grouped(head.blind_pairs));
        row.push(percent(head.blind_share));
        row.push(
            head.blind_share_last_row
                .map_or_else(|| "NaN".to_owned(), percent),
        );
        row.push(head.distinct_bias_last_20.to_string());
        if overflow {
            row.push(cell(head.overflow_distance));
        }
        table.row(row);
    }
    table
}
