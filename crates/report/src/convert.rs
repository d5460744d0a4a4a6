//! From the types of `audit` and `numerics` to the schema.

use crate::number::{Distance, finite};
use crate::schema::{
    CheckRecord, DistanceBin, FindingRecord, MeasureHead, MeasurePlanEvidence, Outcome, Severity,
    Skipped,
};
use audit::{CheckResult, CheckStatus, Finding, HeadEvidence};

impl From<audit::Severity> for Severity {
    fn from(severity: audit::Severity) -> Self {
        match severity {
            audit::Severity::Note => Self::Note,
            audit::Severity::Warning => Self::Warning,
            audit::Severity::Error => Self::Error,
        }
    }
}

impl From<&Finding> for FindingRecord {
    fn from(finding: &Finding) -> Self {
        Self {
            code: finding.code.to_owned(),
            name: finding.name.to_owned(),
            severity: finding.severity.into(),
            layer: finding.layer.map(|layer| layer as u64),
            head: finding.head.map(|head| head as u64),
            plan: finding.plan.clone(),
            value: finding.value.and_then(finite),
            threshold: finding.threshold.and_then(finite),
            message: finding.message.clone(),
            next_command: (!finding.next_command.is_empty()).then(|| finding.next_command.clone()),
        }
    }
}

impl From<&CheckResult> for CheckRecord {
    fn from(result: &CheckResult) -> Self {
        let (status, items, reason) = match &result.status {
            CheckStatus::Checked { items } => ("checked", *items, None),
            CheckStatus::NotMeasured { reason } => ("not-measured", 0, Some(reason.clone())),
            CheckStatus::NotApplicable { reason } => ("not-applicable", 0, Some(reason.clone())),
        };
        Self {
            code: result.doc.code.to_owned(),
            name: result.doc.name.to_owned(),
            status: status.to_owned(),
            items,
            reason,
            findings: result.findings.len() as u64,
        }
    }
}

impl Outcome {
    /// Adds what the checks came to: their findings worst first, and what could not be measured among the skipped.
    pub fn add_checks(&mut self, results: &[CheckResult]) {
        for result in results {
            self.checks.push(result.into());
            self.findings
                .extend(result.findings.iter().map(FindingRecord::from));
            if let CheckStatus::NotMeasured { reason } = &result.status {
                let what = format!("{} {}", result.doc.code, result.doc.name);
                self.skipped.push(Skipped {
                    what,
                    reason: reason.clone(),
                });
            }
        }
        // stable: within one severity and code the order of the check (layer, head, plan) is kept
        self.findings.sort_by(|a, b| {
            b.severity
                .cmp(&a.severity)
                .then_with(|| a.code.cmp(&b.code))
        });
    }
}

impl Outcome {
    /// Drops notes that a finding already says.
    pub fn drop_repeated_notes(&mut self) {
        let findings = &self.findings;
        self.notes
            .retain(|note| findings.iter().all(|finding| finding.message != *note));
    }
}

impl MeasureHead {
    /// The evidence of one head; `edges` are the edges of the distance bins (`audit::Evidence::edges`).
    #[must_use]
    pub fn new(evidence: &HeadEvidence, edges: &[u64]) -> Self {
        let number = |value: Option<f64>| value.and_then(finite);
        let distance = |value: Option<f64>| value.and_then(Distance::new);
        let blind = evidence
            .plans
            .first()
            .map(|plan| plan.blind_by_distance.as_slice())
            .unwrap_or_default();
        let bins = edges.windows(2).enumerate().map(|(bin, edge)| DistanceBin {
            from: edge[0],
            to: edge[1] - 1,
            mass: evidence
                .mass_by_distance
                .get(bin)
                .copied()
                .and_then(finite)
                .unwrap_or(0.0),
            pairs: evidence.pairs_by_distance.get(bin).copied().unwrap_or(0),
            blind_pairs: blind.get(bin).copied().unwrap_or(0),
        });
        let plans = evidence.plans.iter().map(|plan| {
            let record = MeasurePlanEvidence {
                pairs: plan.pairs,
                non_finite_rows: plan.non_finite_rows,
                non_finite_pairs: plan.non_finite_pairs,
                blind_pairs: plan.blind_pairs,
                blind_numerator: plan.blind_numerator,
                blind_weight: plan.blind_weight,
                undecided_pairs: plan.undecided_pairs,
                blind_share: plan.blind_share(),
                first_blind_distance: plan.first_blind_distance,
                last_visible_distance: plan.last_visible_distance,
                mass_by_distance: plan
                    .mass_by_distance
                    .iter()
                    .map(|&mass| finite(mass).unwrap_or(0.0))
                    .collect(),
                total_variation: number(plan.total_variation),
            };
            (plan.plan.clone(), record)
        });
        let advantage = &evidence.advantage;
        Self {
            layer: evidence.layer as u64,
            head: evidence.head as u64,
            slope: evidence.slope,
            effective_slope: evidence.effective_slope,
            plans: plans.collect(),
            reach_50: evidence.reach_50,
            reach_90: evidence.reach_90,
            reach_99: evidence.reach_99,
            entropy_nats: number(evidence.entropy_nats),
            key0_mass: number(evidence.key0_mass),
            key0_baseline: number(evidence.key0_baseline),
            key0_excess: number(evidence.key0_excess()),
            mean_distance: number(evidence.mean_distance),
            max_score: number(evidence.max_score),
            share_below_bf16_ulp: number(evidence.share_below_bf16_ulp),
            share_below_f32_ulp: number(evidence.share_below_f32_ulp),
            advantage_diagonal_max: number(advantage.largest_over_diagonal),
            advantage_diagonal_p99: number(advantage.p99_over_diagonal),
            advantage_recent_max: number(advantage.largest_over_recent),
            advantage_recent_p99: number(advantage.p99_over_recent),
            effective_horizon: distance(advantage.effective_horizon),
            effective_horizon_p99: distance(advantage.effective_horizon_p99),
            mass_by_distance: bins.collect(),
        }
    }
}
