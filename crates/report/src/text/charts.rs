//! The eye chart of each verb: which share a cell shows, and what a full one sees. The terminal and the figures draw the same.

use super::Page;
use super::audit::{by_layer, chart_of as audit_chart};
use super::chart::{Cell, Chart};
use super::horizon::chart_of as horizon_chart;
use super::measure::chart_of as measure_chart;
use crate::document::Document;
use crate::schema::{PlanInfo, TrainReport};

/// A chart with its words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    /// Heading.
    pub(crate) title: String,
    /// What a full cell sees.
    pub(crate) whole: String,
    /// The cells.
    pub(crate) chart: Chart,
}

impl Named {
    /// Heading, chart and legends.
    pub(super) fn draw(&self, page: &mut Page<'_>) {
        page.heading(&self.title);
        self.chart.draw(page, &self.whole);
    }
}

/// The charts of a result, one for each plan where they differ by plan; empty where it has none or no heads.
pub(crate) fn of(document: &Document) -> Vec<Named> {
    let names = |plans: &[PlanInfo]| plans.iter().map(|plan| plan.plan.clone()).collect();
    let mut named: Vec<Named> = match document {
        Document::Horizon(report) => vec![horizon_chart(report)],
        Document::Audit(report) => {
            let plans: Vec<String> = names(&report.plans);
            plans.iter().map(|plan| audit_chart(report, plan)).collect()
        }
        Document::Measure(report) => {
            let plans: Vec<String> = names(&report.plans);
            plans
                .iter()
                .map(|plan| measure_chart(report, plan))
                .collect()
        }
        Document::Train(report) => last_look(report).into_iter().collect(),
        _ => Vec::new(),
    };
    named.retain(|named| !named.chart.heads.is_empty());
    named
}

/// Heads of a training run at the last look at them.
pub(crate) fn last_look(report: &TrainReport) -> Option<Named> {
    let look = report.looks.last()?;
    let chart = by_layer(
        &look.heads,
        |head| (head.layer, head.head),
        |head| Cell {
            visible: head.blind_share.map(|share| 1.0 - share),
            mark: None,
        },
    );
    Some(Named {
        title: format!(
            "Share of its pairs that each head saw after step {}, at {} tokens",
            look.step, look.length
        ),
        whole: "every pair".to_owned(),
        chart,
    })
}
