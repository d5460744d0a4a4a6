//! `snellen audit`: what the weights prove, for any text.

use super::{describe, estimate};
use crate::args::{GlobalArgs, PlanArgs};
use crate::failure::{Exit, Failure};
use crate::parse::{self, Selection};
use ::audit::bounds::{BoundsOptions, HeadBounds, static_bounds};
use ::audit::certificate::{CertificateInput, HeadCertificate, certify};
use ::audit::checks::{AuditContext, CertifiedHead, LENGTH_DEFAULT, Target, run_all};
use checkpoint::HashCover;
use clap::Args;
use numerics::PrecisionPlan;
use report::Distance;
use report::number::finite;
use report::schema::{
    AuditHead, AuditPlanCertificate, AuditReport, AuditSummary, Envelope, Outcome,
};
use std::path::PathBuf;

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// A model folder, .safetensors file or spec .toml
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Sequence length in tokens [default: the trained length, else 2048]
    #[arg(short, long, value_name = "TOKENS", value_parser = parse::length)]
    length: Option<u64>,
    #[command(flatten)]
    plans: PlanArgs,
    /// Layers to look at, by index: 3,5 or 0-7
    #[arg(long, value_name = "LIST")]
    layers: Option<Selection>,
    /// Heads to look at, by index: 3,5 or 0-7
    #[arg(long, value_name = "LIST")]
    heads: Option<Selection>,
}

/// Runs the verb.
pub(crate) fn run(args: &AuditArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let checkpoint = describe::open(&args.path)?;
    let facts = &checkpoint.config;
    let spec = checkpoint.runnable()?;
    let layers = Selection::resolve(args.layers.as_ref(), "--layers", spec.n_layers)?;
    let heads = Selection::resolve(args.heads.as_ref(), "--heads", spec.n_heads)?;
    let plans = args.plans.resolve(facts)?;
    let length = args
        .length
        .or(facts.trained_length)
        .unwrap_or(LENGTH_DEFAULT);
    estimate::check_bounds(spec, global)?;
    let mut outcome = Outcome {
        notes: describe::notes(facts),
        ..Outcome::default()
    };
    if args.length.is_none() {
        let why = if facts.trained_length.is_some() {
            "the trained length"
        } else {
            "a default"
        };
        outcome.notes.insert(
            0,
            format!("length {length} is {why}; --length looks at another"),
        );
    }

    let bar = global.talk().spinner("bounding the scores of every head");
    let keep = |layer: usize, head: usize| layers.contains(&layer) && heads.contains(&head);
    let bounds = static_bounds(
        spec,
        &checkpoint,
        &BoundsOptions {
            keep: &keep,
            ..BoundsOptions::default()
        },
    );
    bar.finish_and_clear();
    let bounds =
        bounds.map_err(|error| Failure::error(format!("{}: {error}", args.path.display())))?;
    // Values, the projection of the output and the rest do not enter the bounds, but a certificate about a model that computes NaN
    // would be worth nothing.
    let bar = global
        .talk()
        .spinner("looking for weights that are not finite");
    let finite = checkpoint.check_finite();
    bar.finish_and_clear();
    finite?;

    let mut certified = Vec::new();
    let mut rows = Vec::new();
    for head in &bounds {
        let certificates: Vec<HeadCertificate> = plans
            .iter()
            .map(|plan| {
                let input = CertificateInput {
                    plan,
                    bias: &spec.alibi.bias,
                    length,
                    causal: facts.causal,
                };
                certify(head, &input)
            })
            .collect();
        for (plan, certificate) in plans.iter().zip(&certificates) {
            certified.push(CertifiedHead {
                layer: head.layer,
                head: head.head,
                plan: plan.key().to_owned(),
                guaranteed_visible: certificate.guaranteed_visible,
                expected_horizon: certificate.expected_horizon,
                certified_horizon: certificate.certified_horizon,
            });
        }
        rows.extend(row(head, &plans, &certificates));
    }

    let target = args.path.display().to_string();
    let context = AuditContext {
        target: Target::Path(&target),
        facts,
        plans: &plans,
        length,
        text: None,
        certificates: Some(&certified),
        evidence: None,
    };
    outcome.notes.extend(describe::unused(&checkpoint));
    outcome.add_checks(&run_all(&context));
    outcome.drop_repeated_notes();

    let mut envelope = Envelope::new("audit", super::VERSION);
    envelope.model = Some(describe::hashed(&checkpoint, &args.path, HashCover::Read));
    envelope.plan = plans.first().map(|plan| plan.key().to_owned());
    envelope.length = Some(length);
    let report = AuditReport {
        envelope,
        plans: plans.iter().map(describe::plan).collect(),
        summary: AuditSummary::of(&rows, length),
        heads: rows,
        outcome,
    };
    crate::output::emit(report, global)
}

/// One head of the report; `certificates` are in the order of `plans`.
fn row(
    head: &HeadBounds,
    plans: &[PrecisionPlan],
    certificates: &[HeadCertificate],
) -> Option<AuditHead> {
    let distance = |tokens: Option<u64>| tokens.map(Distance::from);
    let record = |certificate: &HeadCertificate| AuditPlanCertificate {
        guaranteed_visible: distance(certificate.guaranteed_visible),
        expected_horizon: distance(certificate.expected_horizon),
        certified_horizon: distance(certificate.certified_horizon),
        always_visible: certificate.always_visible,
        reason: certificate.reason.clone(),
    };
    let first = record(certificates.first()?);
    Some(AuditHead {
        layer: head.layer as u64,
        head: head.head as u64,
        slope: head.slope,
        effective_slope: head.effective_slope,
        score_bound: finite(head.score_bound),
        gap_bound: finite(head.gap_bound),
        score_deviation: finite(head.score_deviation),
        method: head.method.name().to_owned(),
        guaranteed_visible: first.guaranteed_visible,
        expected_horizon: first.expected_horizon,
        certified_horizon: first.certified_horizon,
        always_visible: first.always_visible,
        certificate_reason: first.reason,
        plans: plans
            .iter()
            .zip(certificates)
            .map(|(plan, c)| (plan.key().to_owned(), record(c)))
            .collect(),
    })
}
