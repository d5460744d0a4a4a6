//! Findings grouped by code, and their places in few words: a model has thousands of heads.

use crate::schema::{FindingRecord, Severity};
use std::collections::BTreeMap;

/// Findings of one code and one severity, in the order of the document.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// At least one.
    pub(crate) findings: Vec<&'a FindingRecord>,
}

/// The groups, worst first.
pub(crate) fn groups(findings: &[FindingRecord]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<(std::cmp::Reverse<Severity>, &str), Group<'_>> = BTreeMap::new();
    for finding in findings {
        groups
            .entry((std::cmp::Reverse(finding.severity), &finding.code))
            .or_insert_with(|| Group {
                findings: Vec::new(),
            })
            .findings
            .push(finding);
    }
    groups.into_values().collect()
}

/// `layer 3 head 0`; `None` where the finding is about the whole model.
pub(crate) fn place(finding: &FindingRecord) -> Option<String> {
    match (finding.layer, finding.head) {
        (Some(layer), Some(head)) => Some(format!("layer {layer} head {head}")),
        (Some(layer), None) => Some(format!("layer {layer}")),
        (None, Some(head)) => Some(format!("head {head} of every layer")),
        (None, None) => None,
    }
}

impl Group<'_> {
    /// All places under each plan: `ieee: layer 0 heads 0-7, 9; layer 1 heads 0-3. ftz: ...`.
    pub(crate) fn places(&self) -> String {
        type Layers = BTreeMap<Option<u64>, Vec<Option<u64>>>;
        let mut plans: Vec<(Option<&str>, Layers)> = Vec::new();
        for finding in &self.findings {
            let plan = finding.plan.as_deref();
            let index = plans.iter().position(|(known, _)| *known == plan);
            let index = index.unwrap_or_else(|| {
                plans.push((plan, BTreeMap::new()));
                plans.len() - 1
            });
            let heads = plans[index].1.entry(finding.layer).or_default();
            heads.push(finding.head);
        }
        let parts = plans.into_iter().map(|(plan, layers)| {
            let layers = layers.into_iter().map(|(layer, heads)| {
                let mut heads: Vec<u64> = heads.into_iter().flatten().collect();
                heads.sort_unstable();
                heads.dedup();
                let noun = if heads.len() == 1 { "head" } else { "heads" };
                match (layer, heads.is_empty()) {
                    (Some(layer), true) => format!("layer {layer}"),
                    (Some(layer), false) => format!("layer {layer} {noun} {}", ranges(&heads)),
                    (None, true) => "the model".to_owned(),
                    (None, false) => format!("{noun} {} of every layer", ranges(&heads)),
                }
            });
            let layers = layers.collect::<Vec<_>>().join("; ");
            plan.map_or_else(|| layers.clone(), |plan| format!("{plan}: {layers}"))
        });
        parts.collect::<Vec<_>>().join(". ")
    }
}

/// `0-7, 9` of sorted, distinct numbers.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short_and_exact() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
    }
}
