//! Two results compared: heads and findings that both looked at, what only one of them did, and what differs besides.

use crate::document::Document;
use crate::heads::{Cell, HeadTable, Row};
use crate::paired::{self, Paired};
use crate::schema::{
    Difference, Envelope, FindingRecord, HeadDifference, PairReport, QuantitySummary,
    SCHEMA_VERSION, Tool,
};
use std::collections::{BTreeSet, HashMap, HashSet};

impl PairReport {
    /// Puts two results side by side, as written by program version `version`.
    #[must_use]
    pub fn new(version: &str, a: Document, b: Document) -> Self {
        let comparable = a.verb() == b.verb() && a.outcome().is_some();
        let mut differences = describe_differences(&a, &b);
        let mut heads = Vec::new();
        let mut paired = Vec::new();
        let mut findings = Compared::default();
        if comparable {
            let (tables, found) = (HeadTable::of(&a).zip(HeadTable::of(&b)), pairs_of(&a, &b));
            if let Some((table_a, table_b)) = &tables {
                heads = differences_by_head(table_a, table_b);
                differences.extend(unmeasured_heads(table_a, table_b));
            }
            differences.extend(found.remarks);
            paired = found.differences;
            findings = Compared::new(&a, &b, tables.as_ref());
        }
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
            findings_new: findings.new,
            findings_gone: findings.gone,
            findings_kept: findings.kept,
            findings_not_measured_in_a: findings.not_in_a,
            findings_not_measured_in_b: findings.not_in_b,
            paired,
            a,
            b,
        }
    }
}

/// Differences over what both looked at, for results that are not about heads.
fn pairs_of(a: &Document, b: &Document) -> Paired {
    match (a, b) {
        (Document::Probe(x), Document::Probe(y)) => paired::probes(x, y),
        (Document::Eval(x), Document::Eval(y)) => paired::evaluations(x, y),
        (Document::Train(x), Document::Train(y)) => paired::runs(x, y),
        _ => Paired::default(),
    }
}

/// What became of the findings.
#[derive(Default)]
struct Compared {
    new: Vec<FindingRecord>,
    gone: Vec<FindingRecord>,
    kept: u64,
    not_in_a: Vec<FindingRecord>,
    not_in_b: Vec<FindingRecord>,
}

impl Compared {
    fn new(a: &Document, b: &Document, tables: Option<&(HeadTable, HeadTable)>) -> Self {
        let (of_a, of_b) = (findings(a), findings(b));
        let (keys_a, keys_b) = (keys(of_a), keys(of_b));
        let only = |from: &[FindingRecord],
                    others: &HashSet<FindingKey<'_>>,
                    table: Option<&HeadTable>| {
            let only = from.iter().filter(|f| !others.contains(&key(f))).cloned();
            only.partition(|finding| table.is_none_or(|table| looked_at(table, finding)))
        };
        let (new, not_in_a) = only(of_b, &keys_a, tables.map(|(table, _)| table));
        let (gone, not_in_b) = only(of_a, &keys_b, tables.map(|(_, table)| table));
        Self {
            new,
            gone,
            kept: of_b.iter().filter(|f| keys_a.contains(&key(f))).count() as u64,
            not_in_a,
            not_in_b,
        }
    }
}

/// Whether a result looked where a finding of the other one is: at that head, under that plan.
fn looked_at(table: &HeadTable, finding: &FindingRecord) -> bool {
    let any = |of: &dyn Fn(&Row) -> bool| table.rows.iter().any(of);
    let without_plans = any(&|row| row.plan.is_none());
    let plan = finding
        .plan
        .as_ref()
        .is_none_or(|plan| without_plans || any(&|row| row.plan.as_ref() == Some(plan)));
    // a finding about the whole model or about a layer is not tied to one head
    let same =
        |ours: Option<u64>, theirs: Option<u64>| ours.zip(theirs).is_none_or(|(x, y)| x == y);
    let place = any(&|row| {
        same(row.layer, finding.layer) && finding.head.is_none_or(|head| row.head == head)
    });
    plan && place
}

/// Heads and plans that only one of the two looked at.
fn unmeasured_heads(a: &HeadTable, b: &HeadTable) -> Vec<String> {
    type Heads = BTreeSet<(Option<u64>, u64)>;
    let heads = |table: &HeadTable| -> Heads {
        table.rows.iter().map(|row| (row.layer, row.head)).collect()
    };
    let plans = |table: &HeadTable| -> BTreeSet<String> {
        table
            .rows
            .iter()
            .filter_map(|row| row.plan.clone())
            .collect()
    };
    let mut lines = Vec::new();
    for (side, here, there) in [("A", a, b), ("B", b, a)] {
        let missing = heads(there).difference(&heads(here)).count() as u64;
        if missing > 0 {
            let heads = crate::summary::plural(missing, "head");
            lines.push(format!("{heads} not measured in {side}, not compared"));
        }
    }
    let (of_a, of_b) = (plans(a), plans(b));
    if of_a.intersection(&of_b).next().is_none() {
        return lines; // the first plans are compared, which is said elsewhere
    }
    for (side, here, there) in [("A", &of_a, &of_b), ("B", &of_b, &of_a)] {
        for plan in there.difference(here) {
            lines.push(format!("plan {plan} not measured in {side}, not compared"));
        }
    }
    lines
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

/// One entry for each row (a head under a plan) that both tables have.
fn differences_by_head(table_a: &HeadTable, table_b: &HeadTable) -> Vec<HeadDifference> {
    let rows_b: HashMap<(Option<u64>, u64, &Option<String>), &Row> = table_b
        .rows
        .iter()
        .map(|row| ((row.layer, row.head, &row.plan), row))
        .collect();
    let mut heads = Vec::new();
    for (plan_a, plan_b) in plan_pairs(table_a, table_b) {
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
    heads
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
    let model = |e: &Envelope| e.model.as_ref().map(|model| model.name.clone());
    let hash = |e: &Envelope| {
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
