//! `snellen horizon`: closed forms from slopes, a length and a plan.

mod subject;

use super::describe;
use crate::args::{GlobalArgs, PlanArgs};
use crate::failure::{Exit, Failure};
use crate::parse;
use ::audit::checks::{AuditContext, LENGTH_DEFAULT, run_all};
use clap::{Args, ValueEnum};
use numerics::{
    BiasForm, BiasFunction, Criterion, Format, HorizonInput, PrecisionPlan, Remedy, ScaleOrder,
};
use report::Distance;
use report::number::finite;
use report::schema::{Envelope, HorizonHead, HorizonPlan, HorizonReport, HorizonSummary, Outcome};
use std::path::PathBuf;
use subject::Subject;

/// Arguments of `horizon`.
#[derive(Debug, Args)]
pub(crate) struct HorizonArgs {
    /// A model folder, config.json, .safetensors file or spec .toml: heads, slopes and conventions are read from it
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Number of heads
    #[arg(long = "heads", alias = "heads-total", value_name = "N", conflicts_with_all = ["path", "like"])]
    heads_total: Option<usize>,
    /// A published model, such as bloom-560m; no file is needed
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    like: Option<String>,
    /// Sequence length in tokens [default: the trained length, else 2048]
    #[arg(short, long, value_name = "TOKENS", value_parser = parse::length)]
    length: Option<u64>,
    #[command(flatten)]
    plans: PlanArgs,
    /// Change of the bias: clamp=-12, log, sqrt, cap=30, cap-after=30, interpolate=0.5, robust=even|geometric|max-distance,
    /// joined with +
    #[arg(long, value_name = "REMEDY", allow_hyphen_values = true)]
    remedy: Option<String>,
    /// Slope rule: press, mpt, naive, or a comma separated list of slopes
    #[arg(long, value_name = "RULE")]
    slopes: Option<String>,
    /// Bias maximum of the mpt rule
    #[arg(long, value_name = "B")]
    bias_max: Option<f64>,
    /// Family whose conventions apply to --heads
    #[arg(long, value_name = "FAMILY", conflicts_with_all = ["path", "like"])]
    family: Option<String>,
    /// Width of one head; needed where the family scales the bias with the scores (falcon)
    #[arg(long, value_name = "N", conflicts_with_all = ["path", "like"])]
    head_width: Option<usize>,
    /// Format the bias is stored in, for the collapse columns
    #[arg(long, value_name = "DTYPE")]
    bias_dtype: Option<String>,
    /// Form of the stored bias: slope times key index, or slope times distance
    #[arg(long, value_enum)]
    convention: Option<Convention>,
    /// Which zero to count: either of the plan's, the exponential's, or the normalised weight's
    #[arg(long, value_enum, default_value_t = CriterionArg::Plan)]
    criterion: CriterionArg,
    /// Every query sees the keys after it too
    #[arg(long)]
    bidirectional: bool,
    /// Order of the heads
    #[arg(long, value_enum, default_value_t = Sort::Head)]
    sort: Sort,
    /// Print the slopes and nothing else
    #[arg(long)]
    print_slopes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Convention {
    /// Slope times key index
    #[value(alias = "key-position")]
    Absolute,
    /// Slope times distance
    Relative,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CriterionArg {
    /// Either zero, as the plan has them
    Plan,
    /// exp(score - max) is zero
    Exp,
    /// exp(score - max)/sum is zero
    Weight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By index
    Head,
    /// Steepest first
    Slope,
}

/// Runs the verb.
pub(crate) fn run(args: &HorizonArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let subject = Subject::new(args)?;
    let length = args
        .length
        .or(subject.facts.trained_length)
        .unwrap_or(LENGTH_DEFAULT);
    let report = build(args, subject, length)?;
    let global = &global.judging_a_description();
    if args.print_slopes && global.format() == crate::args::Format::Text {
        let rules = crate::fail_on::Rules::of(global)?;
        crate::output::write(&report.render_slopes(), global)?;
        let findings: Vec<_> = report.outcome.findings.iter().collect();
        return Ok(rules.judge(&findings, global));
    }
    crate::output::emit(report, global)
}

fn build(args: &HorizonArgs, subject: Subject, length: u64) -> Result<HorizonReport, Failure> {
    let mut facts = subject.facts;
    let remedy = args.remedy.as_deref().map(parse_remedy).transpose()?;
    let replaces = remedy
        .as_ref()
        .is_some_and(|remedy| remedy.robust.is_some());
    let given = [
        ("--slopes", args.slopes.is_some()),
        ("--bias-max", args.bias_max.is_some()),
    ];
    if let Some((flag, _)) = given.iter().find(|(_, given)| replaces && *given) {
        return Err(Failure::error(format!(
            "{flag}: robust slopes take the place of all others; leave the flag away, or use another remedy"
        )));
    }
    let mut as_run = facts.clone();
    if remedy.as_ref().is_some_and(|remedy| {
        remedy.robust.is_some() || remedy.bias.interpolation != facts.bias.interpolation
    }) {
        // What a remedy puts in the place of the slopes is not what a runtime misreads.
        as_run.notes.clear();
    }
    let plans = args.plans.resolve(&as_run)?;
    let plans = plans
        .into_iter()
        .map(|plan| overridden(plan, args))
        .collect::<Result<Vec<_>, _>>()?;
    let mut notes = subject.notes;
    if let Some(remedy) = &remedy {
        // one model has one set of slopes: the first plan's threshold decides them
        let tau = plans
            .first()
            .map_or(0.0, |plan| -plan.numerator_zero_nats());
        if remedy.robust.is_some() {
            notes.push(format!(
                "robust slopes for {length} tokens and the first plan's threshold of {tau:.2} nats"
            ));
        }
        facts.slopes = remedy.schedule(&facts.slopes, length, tau);
        facts.bias = remedy.bias.clone();
    }
    let slopes = facts
        .slope_values()
        .map_err(|error| Failure::error(error.to_string()))?;
    facts
        .bias
        .validate(slopes.len())
        .map_err(|error| Failure::error(error.to_string()))?;
    facts.causal &= !args.bidirectional;

    let mut results = Vec::new();
    for plan in &plans {
        let scale_before = match plan.scale_order {
            ScaleOrder::BiasAfterScale => 1.0,
            ScaleOrder::BiasBeforeScale if subject.knows_scale => facts.score_scale,
            ScaleOrder::BiasBeforeScale => {
                return Err(Failure::error(format!(
                    "{} scales the bias by 1/sqrt(head width): add --head-width N",
                    facts.family
                )));
            }
        };
        let input = HorizonInput {
            slopes: &slopes,
            scale_before,
            bias: &facts.bias,
            plan,
            criterion: criterion(args.criterion),
            length,
            causal: facts.causal,
        };
        let heads = numerics::horizon(&input)
            .map_err(|error| Failure::error(format!("plan {}: {error}", plan.key())))?;
        let mut heads: Vec<HorizonHead> = heads
            .iter()
            .map(|head| head_row(head, &facts.bias))
            .collect();
        if args.sort == Sort::Slope {
            heads.sort_by(|a, b| {
                b.effective_slope
                    .total_cmp(&a.effective_slope)
                    .then(a.head.cmp(&b.head))
            });
        }
        if plan.bias_multiplicity > 1 {
            notes.push(format!(
                "{} adds the bias of {} {} times (`snellen explain SN008`): the distances are those of the doubled slope",
                plan.key(),
                facts.family,
                plan.bias_multiplicity
            ));
        }
        // What depends on both sides has no key-position form, whatever the plan stores otherwise.
        let form = if plan.idealised {
            plan.bias.form
        } else {
            plan.bias_form(&facts.bias, facts.causal)
        };
        results.push(HorizonPlan {
            info: describe::plan(plan),
            convention: form_name(form).to_owned(),
            key_origin: describe::key_origin(form, plan.bias.origin).to_owned(),
            bias_dtype: plan.bias.storage.name().to_owned(),
            summary: HorizonSummary::of(&heads),
            heads,
        });
    }
    let Some(first) = results.first().cloned() else {
        return Err(Failure::error("--plan: no plan was named"));
    };
    let mut outcome = Outcome {
        notes,
        ..Outcome::default()
    };
    outcome.add_checks(&run_all(&AuditContext {
        target: subject.name.target(),
        facts: &facts,
        plans: &plans,
        length,
        text: None,
        certificates: None,
        evidence: None,
    }));
    outcome.drop_repeated_notes();
    let mut envelope = Envelope::new("horizon", super::VERSION);
    envelope.model = Some(subject.info);
    envelope.plan = Some(first.info.plan.clone());
    envelope.length = Some(length);
    Ok(HorizonReport {
        envelope,
        criterion: criterion_name(args.criterion).to_owned(),
        convention: first.convention,
        key_origin: first.key_origin,
        bias_dtype: first.bias_dtype,
        remedy: remedy.map(|remedy| remedy.to_string()),
        slopes: describe::schedule(&facts.slopes),
        bidirectional: !facts.causal,
        heads: first.heads,
        summary: first.summary,
        plans: results,
        outcome,
    })
}

fn parse_remedy(text: &str) -> Result<Remedy, Failure> {
    BiasFunction::parse_remedy(text).map_err(|error| Failure::error(format!("--remedy: {error}")))
}

/// The plan with `--bias-dtype` and `--convention` applied.
fn overridden(plan: PrecisionPlan, args: &HorizonArgs) -> Result<PrecisionPlan, Failure> {
    let plan = match &args.bias_dtype {
        None => plan,
        Some(name) => {
            let format = Format::parse(name).ok_or_else(|| {
                let names = Format::ALL.map(Format::name).join(", ");
                Failure::error(format!("--bias-dtype {name:?}: expected one of {names}"))
            })?;
            plan.with_bias_storage(format)
        }
    };
    Ok(match args.convention {
        None => plan,
        Some(Convention::Absolute) => plan.with_bias_form(BiasForm::KeyPosition),
        Some(Convention::Relative) => plan.with_bias_form(BiasForm::Relative),
    })
}

fn head_row(head: &numerics::HeadHorizon, bias: &BiasFunction) -> HorizonHead {
    let first_blind_distance = head.first_blind_distance.and_then(Distance::new);
    #[allow(clippy::cast_precision_loss)] // a share of counts
    let blind_share = match head.pairs - head.nan_pairs {
        0 => 0.0,
        pairs => head.blind_pairs as f64 / pairs as f64,
    };
    let reason = || match bias.clamp {
        Some(floor) => format!("the bias never falls below its clamp of {floor} nats"),
        None => "the bias never falls below the threshold".to_owned(),
    };
    HorizonHead {
        head: head.head as u64,
        slope: head.slope,
        effective_slope: head.effective_slope * bias.interpolation,
        first_blind_distance,
        first_blind_distance_reason: first_blind_distance.is_none().then(reason),
        last_visible_distance: head.last_visible_distance,
        nan_rows: head.nan_rows,
        nan_pairs: head.nan_pairs,
        pairs: head.pairs,
        blind_pairs: head.blind_pairs,
        blind_share,
        blind_last_row: head.blind_last_row,
        // the stored bias is +inf at some key: every row that sees it, the last one included, is NaN
        blind_share_last_row: (head.nan_rows == 0).then_some(head.blind_share_last_row),
        blind_share_last_row_reason: (head.nan_rows > 0)
            .then(|| "the last row is NaN: its stored bias overflowed to infinity".to_owned()),
        blind_share_last_row_continuous: finite(head.blind_share_last_row_continuous)
            .filter(|_| head.nan_rows == 0),
        distinct_bias_last_20: head.distinct_bias_last_20,
        distinct_bias_first_20: head.distinct_bias_first_20,
        distinct_bias_total: head.distinct_bias_total,
        longest_equal_run: head.longest_equal_run,
        overflow_distance: head.overflow_distance.and_then(Distance::new),
    }
}

fn criterion(arg: CriterionArg) -> Criterion {
    match arg {
        CriterionArg::Plan => Criterion::Plan,
        CriterionArg::Exp => Criterion::Exp,
        CriterionArg::Weight => Criterion::Weight,
    }
}

fn criterion_name(arg: CriterionArg) -> &'static str {
    match arg {
        CriterionArg::Plan => "plan",
        CriterionArg::Exp => "exp",
        CriterionArg::Weight => "weight",
    }
}

fn form_name(form: BiasForm) -> &'static str {
    match form {
        BiasForm::KeyPosition => "absolute",
        BiasForm::Relative => "relative",
    }
}
