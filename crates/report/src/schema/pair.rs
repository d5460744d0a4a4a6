//! `snellen report A.json B.json`: two results side by side.

use super::{FindingRecord, SCHEMA_VERSION, Tool};
use crate::document::Document;
use crate::heads::{Cell, HeadTable, Row};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Two results: compared head by head where they are of one verb, otherwise shown together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PairReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program.
    pub tool: Tool,
    /// `report`.
    pub verb: String,
    /// The first result (before).
    pub a: Document,
    /// The second result (after).
    pub b: Document,
    /// Whether the two are of one verb, so that their heads can be compared.
    pub comparable: bool,
    /// What differs between them besides the heads (model, length, text): a comparison has to be read with it.
    pub differences: Vec<String>,
    /// One entry for each head that both have, under each plan that both have.
    pub heads: Vec<HeadDifference>,
    /// Counts of heads by what became of each quantity.
    pub summary: Vec<QuantitySummary>,
    /// Findings that only the second has; they decide the exit code.
    pub findings_new: Vec<FindingRecord>,
    /// Findings that only the first has.
    pub findings_gone: Vec<FindingRecord>,
    /// Findings that both have: same code, place and plan.
    pub findings_kept: u64,
}

/// One head in both results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeadDifference {
    /// Layer; `null` where the results are the same in every layer.
    pub layer: Option<u64>,
    /// Head within the layer.
    pub head: u64,
    /// Plan of the first result.
    pub plan_a: Option<String>,
    /// Plan of the second result.
    pub plan_b: Option<String>,
    /// Quantities by the name of their field.
    pub quantities: BTreeMap<String, Difference>,
}

/// One quantity before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Difference {
    /// In the first result; `null` where it was not measured or does not exist.
    pub a: Option<f64>,
    /// In the second result.
    pub b: Option<f64>,
    /// `b - a`; `null` unless both exist.
    pub change: Option<f64>,
}

/// What became of one quantity over all heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuantitySummary {
    /// Plan of the first result.
    pub plan_a: Option<String>,
    /// Plan of the second result.
    pub plan_b: Option<String>,
    /// Name of the field.
    pub quantity: String,
    /// Heads in which it grew.
    pub heads_more: u64,
    /// Heads in which it shrank.
    pub heads_less: u64,
    /// Heads in which it is the same number, or exists in neither.
    pub heads_same: u64,
    /// Heads in which it exists in the second result only.
    pub heads_gained: u64,
    /// Heads in which it exists in the first result only.
    pub heads_lost: u64,
}

impl PairReport {
    /// Puts two results side by side, as written by program version `version`.
    #[must_use]
    pub fn new(version: &str, a: Document, b: Document) -> Self {
        let comparable = a.verb() == b.verb() && a.outcome().is_some();
        let (heads, unmatched) = if comparable {
            differences_by_head(&a, &b)
        } else {
            (Vec::new(), 0)
        };
        let mut differences = describe_differences(&a, &b);
        if unmatched > 0 {
            let rows = crate::summary::plural(unmatched as u64, "row");
            differences.push(format!(
                "{rows} (a head under a plan) in one result only, not compared"
            ));
        }
        let (findings_new, findings_gone, findings_kept) = if comparable {
            let (of_a, of_b) = (findings(&a), findings(&b));
            let (keys_a, keys_b) = (keys(of_a), keys(of_b));
            let kept = of_b.iter().filter(|f| keys_a.contains(&key(f))).count() as u64;
            let only = |from: &[FindingRecord], other: &HashSet<FindingKey<'_>>| {
                let only = from.iter().filter(|f| !other.contains(&key(f)));
                only.cloned().collect::<Vec<_>>()
            };
            (only(of_b, &keys_a), only(of_a, &keys_b), kept)
        } else {
            (Vec::new(), Vec::new(), 0)
        };
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool {
                name: "snellen".to_owned(),
                version: version.to_owned(),
            },
            verb: "report".to_owned(),
            comparable,
            differences,
            summary: sum_up(&heads),
            heads,
            findings_new,
            findings_gone,
            findings_kept,
            a,
            b,
        }
    }
}

fn findings(document: &Document) -> &[FindingRecord] {
    document
        .outcome()
        .map(|outcome| outcome.findings.as_slice())
        .unwrap_or_default()
}

/// What makes two findings the same one.
type FindingKey<'a> = (&'a str, Option<u64>, Option<u64>, Option<&'a str>);

fn key(finding: &FindingRecord) -> FindingKey<'_> {
    let plan = finding.plan.as_deref();
    (&finding.code, finding.layer, finding.head, plan)
}

fn keys(findings: &[FindingRecord]) -> HashSet<FindingKey<'_>> {
    findings.iter().map(key).collect()
}

/// Plans that are compared with one another: those of one key; if there are none, the first of each.
fn plan_pairs(a: &HeadTable, b: &HeadTable) -> Vec<(Option<String>, Option<String>)> {
    let plans = |table: &HeadTable| {
        let mut plans: Vec<Option<String>> = Vec::new();
        for row in &table.rows {
            if !plans.contains(&row.plan) {
                plans.push(row.plan.clone());
            }
        }
        plans
    };
    let (of_a, of_b) = (plans(a), plans(b));
    let common: Vec<_> = of_a
        .iter()
        .filter(|plan| of_b.contains(plan))
        .map(|plan| (plan.clone(), plan.clone()))
        .collect();
    if !common.is_empty() {
        return common;
    }
    of_a.into_iter().zip(of_b).take(1).collect()
}

/// The differences, and the number of rows that are in one table only.
fn differences_by_head(a: &Document, b: &Document) -> (Vec<HeadDifference>, usize) {
    let (Some(table_a), Some(table_b)) = (HeadTable::of(a), HeadTable::of(b)) else {
        return (Vec::new(), 0);
    };
    let rows_b: HashMap<(Option<u64>, u64, &Option<String>), &Row> = table_b
        .rows
        .iter()
        .map(|row| ((row.layer, row.head, &row.plan), row))
        .collect();
    let mut heads = Vec::new();
    for (plan_a, plan_b) in plan_pairs(&table_a, &table_b) {
        for row in table_a.rows.iter().filter(|row| row.plan == plan_a) {
            let Some(other) = rows_b.get(&(row.layer, row.head, &plan_b)) else {
                continue;
            };
            let quantities = table_a
                .columns
                .iter()
                .zip(row.cells.iter().zip(&other.cells))
                .filter(|(_, (x, y))| is_quantity(x) && is_quantity(y))
                .map(|(name, (x, y))| ((*name).to_owned(), difference(x, y)))
                .collect();
            heads.push(HeadDifference {
                layer: row.layer,
                head: row.head,
                plan_a: plan_a.clone(),
                plan_b: plan_b.clone(),
                quantities,
            });
        }
    }
    let unmatched = table_a.rows.len() + table_b.rows.len() - 2 * heads.len();
    (heads, unmatched)
}

fn is_quantity(cell: &Cell) -> bool {
    !matches!(cell, Cell::Word(_) | Cell::Flag(_))
}

fn difference(a: &Cell, b: &Cell) -> Difference {
    let (a, b) = (a.as_f64(), b.as_f64());
    Difference {
        a,
        b,
        change: a
            .zip(b)
            .map(|(a, b)| b - a)
            .filter(|change| change.is_finite()),
    }
}

fn sum_up(heads: &[HeadDifference]) -> Vec<QuantitySummary> {
    let mut sums: Vec<QuantitySummary> = Vec::new();
    let mut places: HashMap<(&Option<String>, &str), usize> = HashMap::new();
    for head in heads {
        for (name, difference) in &head.quantities {
            let place = *places.entry((&head.plan_a, name)).or_insert_with(|| {
                sums.push(QuantitySummary {
                    plan_a: head.plan_a.clone(),
                    plan_b: head.plan_b.clone(),
                    quantity: name.clone(),
                    heads_more: 0,
                    heads_less: 0,
                    heads_same: 0,
                    heads_gained: 0,
                    heads_lost: 0,
                });
                sums.len() - 1
            });
            let sum = &mut sums[place];
            let count = match (difference.a, difference.b) {
                (Some(a), Some(b)) if b > a => &mut sum.heads_more,
                (Some(a), Some(b)) if b < a => &mut sum.heads_less,
                (None, Some(_)) => &mut sum.heads_gained,
                (Some(_), None) => &mut sum.heads_lost,
                _ => &mut sum.heads_same,
            };
            *count += 1;
        }
    }
    sums
}

/// What differs besides the heads.
fn describe_differences(a: &Document, b: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    if a.verb() != b.verb() {
        lines.push(format!(
            "A is of {} and B of {}: they are shown together, not compared",
            a.verb(),
            b.verb()
        ));
    }
    let (Some(of_a), Some(of_b)) = (a.envelope(), b.envelope()) else {
        return lines;
    };
    let mut differ = |what: &str, x: Option<String>, y: Option<String>| {
        if x != y {
            let name = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
            lines.push(format!("{what}: {} in A, {} in B", name(x), name(y)));
        }
    };
    let model = |e: &super::Envelope| e.model.as_ref().map(|model| model.name.clone());
    let hash = |e: &super::Envelope| {
        let hash = e.model.as_ref().and_then(|model| model.hash.clone());
        // the first eight digits tell two hashes apart
        hash.map(|hash| hash.chars().take(8).collect::<String>())
    };
    differ("model", model(of_a), model(of_b));
    if a.verb() == b.verb() {
        differ("model hash", hash(of_a), hash(of_b));
    }
    differ(
        "length",
        of_a.length.map(|n| n.to_string()),
        of_b.length.map(|n| n.to_string()),
    );
    differ("first plan", of_a.plan.clone(), of_b.plan.clone());
    if let (Some(x), Some(y)) = (&of_a.text, &of_b.text) {
        let short = |hash: &str| Some(hash.chars().take(8).collect::<String>());
        differ("text hash", short(&x.hash), short(&y.hash));
    }
    if let (Document::Horizon(x), Document::Horizon(y)) = (a, b) {
        differ("remedy", x.remedy.clone(), y.remedy.clone());
        differ("slopes", Some(x.slopes.clone()), Some(y.slopes.clone()));
    }
    lines
}
