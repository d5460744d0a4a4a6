//! Text of `snellen measure`.

use std::cmp::Ordering;

use super::audit::by_layer;
use super::chart::Cell;
use super::charts::Named;
use super::spark::Sparks;
use super::table::{Align, Table};
use super::{
    Page, RenderText, TextOptions, cell, checked, document, escape, outcome, plural,
    shortest_sighted,
};
use crate::number::{finite, percent, short};
use crate::schema::{MeasureHead, MeasureReport};
use crate::summary::blind_pairs;

/// Rows of the table of the worst heads.
const WORST_SHOWN: usize = 12;

impl RenderText for MeasureReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let checked = checked(self.heads.len());
        let body = |page: &mut Page<'_>| {
            summary(page, self);
            if !self.heads.is_empty() {
                chart_of(self, self.envelope.plan.as_deref().unwrap_or("")).draw(page);
                by_distance(page, self);
                worst(page, self);
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

fn summary(page: &mut Page<'_>, report: &MeasureReport) {
    if let Some(text) = &report.envelope.text {
        let available = plural(text.tokens_available, "token");
        let used = match text.tokens.cmp(&text.tokens_available) {
            Ordering::Equal => format!("all {available}"),
            Ordering::Less => format!("the first {} of {available}", text.tokens),
            Ordering::Greater => format!("its {available} repeated to {}", text.tokens),
        };
        let ids = if text.tokenizer == "ids" {
            "token ids as given".to_owned()
        } else {
            format!("ids from {}", escape(&text.tokenizer))
        };
        let mut line = format!("Text: {}, {used} ({ids})", escape(&text.source));
        if let Some(loss) = report.loss.as_ref().and_then(|loss| loss.nats_per_token) {
            line.push_str(&format!("; loss {loss:.3} nats a token"));
        }
        page.paragraph(&format!("{line}."));
    }
    for plan in &report.plans {
        let Some(sum) = report.summary.plans.get(&plan.plan) else {
            continue;
        };
        let heads = plural(report.summary.heads, "head");
        page.paragraph(&format!("Under {}{}", plan.plan, blind_pairs(sum, &heads)));
    }
    let mut reach: Vec<u64> = report
        .heads
        .iter()
        .filter_map(|head| head.reach_90)
        .collect();
    reach.sort_unstable();
    if let Some(middle) = reach.get(reach.len() / 2) {
        page.paragraph(&format!(
            "Half of the heads place nine tenths of their attention within {}.",
            plural(*middle, "token")
        ));
    }
}

/// The chart of the pairs seen under a plan.
pub(super) fn chart_of(report: &MeasureReport, plan: &str) -> Named {
    let chart = by_layer(
        &report.heads,
        |head| (head.layer, head.head),
        |head| Cell {
            visible: blind_share(head, plan).map(|share| 1.0 - share),
            mark: outcome::mark(&report.outcome.findings, plan, head.layer, head.head),
        },
    );
    Named {
        title: format!("Share of its pairs that each head sees, under {plan}"),
        whole: "every pair".to_owned(),
        chart,
    }
}

/// Mean attention mass by distance over all heads, before any plan's roundings, and the share of pairs that is blind.
fn by_distance(page: &mut Page<'_>, report: &MeasureReport) {
    let Some(first) = report.heads.first() else {
        return;
    };
    let bins = first.mass_by_distance.len();
    let same = |head: &MeasureHead| {
        let edges = |head: &MeasureHead| {
            let bins = head.mass_by_distance.iter();
            bins.map(|bin| (bin.from, bin.to)).collect::<Vec<_>>()
        };
        edges(head) == edges(first)
    };
    if bins < 2 || !report.heads.iter().all(same) {
        return;
    }
    #[allow(clippy::cast_precision_loss)] // heads and pairs
    let mean = |bin: usize| {
        let masses = report
            .heads
            .iter()
            .map(|head| head.mass_by_distance[bin].mass);
        Some(masses.sum::<f64>() / report.heads.len() as f64)
    };
    #[allow(clippy::cast_precision_loss)]
    let blind = |bin: usize| {
        let of = |count: &dyn Fn(&crate::schema::DistanceBin) -> u64| {
            let bins = report.heads.iter().map(|head| &head.mass_by_distance[bin]);
            bins.map(count).sum::<u64>() as f64
        };
        finite(of(&|bin| bin.blind_pairs) / of(&|bin| bin.pairs))
    };
    let last = &first.mass_by_distance[bins - 1];
    page.heading(&format!(
        "By distance, {bins} bins of powers of two from {} to {}",
        first.mass_by_distance[0].from, last.to
    ));
    Sparks {
        limits: Some((0.0, 1.0)),
        lines: vec![
            ("attention".to_owned(), (0..bins).map(mean).collect()),
            ("blind pairs".to_owned(), (0..bins).map(blind).collect()),
        ],
        number: &percent,
    }
    .draw(page);
}

fn blind_share(head: &MeasureHead, plan: &str) -> Option<f64> {
    head.plans
        .get(plan)
        .and_then(|evidence| evidence.blind_share)
}

fn worst(page: &mut Page<'_>, report: &MeasureReport) {
    let plan = report.envelope.plan.as_deref().unwrap_or("");
    let mut heads: Vec<&MeasureHead> = report.heads.iter().collect();
    // most blind first; among equals, the one that reaches least far
    let blind = |head: &MeasureHead| blind_share(head, plan).unwrap_or(0.0);
    let reach = |head: &MeasureHead| head.reach_90.unwrap_or(u64::MAX);
    heads.sort_by(|a, b| {
        let order = blind(b)
            .total_cmp(&blind(a))
            .then_with(|| reach(a).cmp(&reach(b)));
        order.then_with(|| (a.layer, a.head).cmp(&(b.layer, b.head)))
    });
    let shown = shortest_sighted(page, &report.envelope, heads.len(), WORST_SHOWN);
    let mut table = Table::new([
        ("layer", Align::Right),
        ("head", Align::Right),
        ("slope", Align::Right),
        ("blind", Align::Right),
        ("first blind", Align::Right),
        ("last seen", Align::Right),
        ("reach 50/90/99", Align::Right),
        ("effective", Align::Right),
        ("entropy", Align::Right),
        ("key 0", Align::Right),
    ])
    .optional(["last seen", "entropy", "key 0"])
    .keys(2);
    for head in &heads[..shown] {
        let evidence = head.plans.get(plan);
        table.row(vec![
            head.layer.to_string(),
            head.head.to_string(),
            short(head.effective_slope),
            cell(
                evidence
                    .and_then(|evidence| evidence.blind_share)
                    .map(percent),
            ),
            cell(evidence.and_then(|evidence| evidence.first_blind_distance)),
            cell(evidence.and_then(|evidence| evidence.last_visible_distance)),
            format!(
                "{}/{}/{}",
                cell(head.reach_50),
                cell(head.reach_90),
                cell(head.reach_99)
            ),
            cell(
                head.effective_horizon
                    .map(|distance| short(distance.tokens().round())),
            ),
            cell(head.entropy_nats.map(short)),
            cell(head.key0_mass.map(percent)),
        ]);
    }
    page.table(&table);
    page.indented(
        "reach: distance that holds 50/90/99 % of the attention; effective: where the bias outweighs the largest content \
         advantage this text showed; entropy in nats; key 0: mean weight that later tokens put on the first",
    );
}
