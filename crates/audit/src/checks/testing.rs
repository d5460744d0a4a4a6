//! Small contexts for the tests of the checks.

use checkpoint::ModelFacts;
use numerics::{BiasFunction, Family, PrecisionPlan, SlopeSchedule};

use super::AuditContext;
use crate::evidence::{ContentAdvantage, Evidence, HeadEvidence, PlanEvidence, distance_edges};

pub(crate) fn facts(family: Family) -> ModelFacts {
    ModelFacts {
        name: "tiny".into(),
        family,
        model_type: family.name().into(),
        evidence: "test".into(),
        n_layers: 2,
        n_heads: 16,
        n_kv_heads: 16,
        head_width: 64,
        width: 1024,
        vocab_size: None,
        slopes: SlopeSchedule::Press,
        bias_max: None,
        bias: BiasFunction::linear(),
        convention: family.convention(),
        score_scale: 0.125,
        trained_length: Some(2048),
        causal: family.convention().causal,
        notes: Vec::new(),
    }
}

pub(crate) fn context<'a>(facts: &'a ModelFacts, plans: &'a [PrecisionPlan]) -> AuditContext<'a> {
    AuditContext {
        target: super::Target::Path("model"),
        facts,
        plans,
        length: 2048,
        text: None,
        certificates: None,
        evidence: None,
    }
}

pub(crate) fn plans(family: Family, specs: &[&str]) -> Vec<PrecisionPlan> {
    specs
        .iter()
        .map(|spec| PrecisionPlan::parse(spec, family).unwrap())
        .collect()
}

/// A healthy head on 2048 tokens, one plan.
pub(crate) fn head(layer: usize, head: usize) -> HeadEvidence {
    let pairs = 2048 * 2049 / 2;
    HeadEvidence {
        layer,
        head,
        slope: 0.5,
        effective_slope: 0.5,
        rows: 2048,
        non_finite_rows: 0,
        pairs,
        pairs_by_distance: Vec::new(),
        plans: vec![PlanEvidence {
            plan: "ftz".into(),
            pairs,
            blind_pairs: 0,
            blind_numerator: 0,
            blind_weight: 0,
            blind_by_distance: Vec::new(),
            first_blind_distance: None,
            last_visible_distance: Some(2047),
            undecided_pairs: 0,
            non_finite_rows: 0,
            non_finite_pairs: 0,
            mass_by_distance: Vec::new(),
            total_variation: Some(0.0),
        }],
        mass_by_distance: Vec::new(),
        reach_50: Some(1),
        reach_90: Some(3),
        reach_99: Some(9),
        mean_distance: Some(1.5),
        entropy_nats: Some(1.0),
        key0_mass: Some(0.01),
        key0_baseline: Some(0.0035),
        max_score: Some(4.0),
        share_below_bf16_ulp: Some(0.2),
        share_below_f32_ulp: Some(0.1),
        advantage: ContentAdvantage {
            largest_over_diagonal: Some(8.0),
            effective_horizon: Some(3000.0),
            ..ContentAdvantage::default()
        },
    }
}

pub(crate) fn evidence(heads: Vec<HeadEvidence>) -> Evidence {
    Evidence {
        length: 2048,
        calls: 1,
        causal: true,
        edges: distance_edges(2048),
        plans: vec!["ftz".into()],
        heads,
    }
}
