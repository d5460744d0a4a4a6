//! `snellen horizon`: closed forms from slopes, a length and a plan.

use super::describe;
use crate::args::{GlobalArgs, PlanArgs};
use crate::failure::{Exit, Failure};
use crate::parse;
use crate::suggest::did_you_mean;
use clap::{Args, ValueEnum};
use numerics::{
    BiasForm, BiasFunction, Criterion, Family, Format, HorizonInput, PrecisionPlan, Remedy,
    ScaleOrder, SlopeSchedule,
};
use report::Distance;
use report::number::finite;
use report::schema::{
    Envelope, HorizonHead, HorizonPlan, HorizonReport, HorizonSummary, ModelInfo, Outcome,
};
use std::path::PathBuf;

/// Length where nothing says another.
const LENGTH_DEFAULT: u64 = 2048;

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
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// Width of one head; needed where the family scales the bias with the scores (falcon)
    #[arg(long, value_name = "N")]
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

/// What the closed form needs of a model.
struct Subject {
    info: Option<ModelInfo>,
    family: Family,
    n_heads: usize,
    schedule: SlopeSchedule,
    bias: BiasFunction,
    score_scale: Option<f64>,
    causal: bool,
    notes: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &HorizonArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let subject = subject(args)?;
    let length = args
        .length
        .or(subject.info.as_ref().and_then(|info| info.trained_length))
        .unwrap_or(LENGTH_DEFAULT);
    let report = build(args, subject, length)?;
    if args.print_slopes && global.format() == crate::args::Format::Text {
        crate::output::write(&report.render_slopes(), global)?;
        return crate::fail_on::judge(&report.outcome.findings, global);
    }
    crate::output::emit(&report, &report.outcome, global)
}

fn build(args: &HorizonArgs, subject: Subject, length: u64) -> Result<HorizonReport, Failure> {
    let plans = args.plans.resolve(subject.family)?;
    let plans = plans
        .into_iter()
        .map(|plan| overridden(plan, args))
        .collect::<Result<Vec<_>, _>>()?;
    let remedy = args.remedy.as_deref().map(parse_remedy).transpose()?;
    let mut notes = subject.notes;
    let (bias, schedule) = match &remedy {
        None => (subject.bias, subject.schedule),
        Some(remedy) => {
            // one model has one set of slopes: the first plan's threshold decides them
            let tau = plans
                .first()
                .map_or(0.0, |plan| -plan.numerator_zero_nats());
            if remedy.robust.is_some() {
                notes.push(format!("robust slopes for {length} tokens and the first plan's threshold of {tau:.2} nats"));
            }
            (
                remedy.bias.clone(),
                remedy.schedule(&subject.schedule, length, tau),
            )
        }
    };
    let slopes = schedule
        .slopes(subject.n_heads)
        .map_err(|error| Failure::error(error.to_string()))?;
    bias.validate(slopes.len())
        .map_err(|error| Failure::error(error.to_string()))?;
    let causal = subject.causal && !args.bidirectional;

    let mut results = Vec::new();
    for plan in &plans {
        let scale_before = match (plan.scale_order, subject.score_scale) {
            (ScaleOrder::BiasAfterScale, _) => 1.0,
            (ScaleOrder::BiasBeforeScale, Some(scale)) => scale,
            (ScaleOrder::BiasBeforeScale, None) => {
                return Err(Failure::error(format!(
                    "{} scales the bias by 1/sqrt(head width): add --head-width N",
                    subject.family
                )));
            }
        };
        let input = HorizonInput {
            slopes: &slopes,
            scale_before,
            bias: &bias,
            plan,
            criterion: criterion(args.criterion),
            length,
            causal,
        };
        let heads = numerics::horizon(&input)
            .map_err(|error| Failure::error(format!("plan {}: {error}", plan.key())))?;
        let mut heads: Vec<HorizonHead> = heads.iter().map(|head| head_row(head, &bias)).collect();
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
                subject.family,
                plan.bias_multiplicity
            ));
        }
        results.push(HorizonPlan {
            info: describe::plan(plan),
            convention: form_name(plan.bias.form).to_owned(),
            bias_dtype: plan.bias.storage.name().to_owned(),
            summary: HorizonSummary::of(&heads),
            heads,
        });
    }
    let Some(first) = results.first().cloned() else {
        return Err(Failure::error("--plan: no plan was named"));
    };
    let mut envelope = Envelope::new("horizon", super::VERSION);
    envelope.model = subject.info;
    envelope.plan = Some(first.info.plan.clone());
    envelope.length = Some(length);
    Ok(HorizonReport {
        envelope,
        criterion: criterion_name(args.criterion).to_owned(),
        convention: first.convention,
        bias_dtype: first.bias_dtype,
        remedy: remedy.map(|remedy| remedy.to_string()),
        slopes: describe::schedule(&schedule),
        bidirectional: !causal,
        heads: first.heads,
        summary: first.summary,
        plans: results,
        outcome: Outcome {
            notes,
            ..Outcome::default()
        },
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
    let blind_share = if head.pairs == 0 {
        0.0
    } else {
        head.blind_pairs as f64 / head.pairs as f64
    };
    let reason = || match bias.clamp {
        Some(floor) => format!("the bias never falls below its clamp of {floor} nats"),
        None => "the bias never falls below the threshold".to_owned(),
    };
    HorizonHead {
        head: head.head as u64,
        slope: head.slope,
        effective_slope: head.effective_slope,
        first_blind_distance,
        first_blind_distance_reason: first_blind_distance.is_none().then(reason),
        last_visible_distance: head.last_visible_distance,
        nan_rows: head.nan_rows,
        pairs: head.pairs,
        blind_pairs: head.blind_pairs,
        blind_share,
        blind_last_row: head.blind_last_row,
        // the stored bias is +inf at some key: every row that sees it, the last one included, is NaN
        blind_share_last_row: (head.nan_rows == 0).then_some(head.blind_share_last_row),
        blind_share_last_row_reason: (head.nan_rows > 0)
            .then(|| "the last row is NaN: its stored bias overflowed to infinity".to_owned()),
        blind_share_last_row_continuous: finite(head.blind_share_last_row_continuous),
        distinct_bias_last_20: head.distinct_bias_last_20,
        distinct_bias_first_20: head.distinct_bias_first_20,
        distinct_bias_total: head.distinct_bias_total,
        longest_equal_run: head.longest_equal_run,
        overflow_distance: head.overflow_distance.and_then(Distance::new),
    }
}

fn subject(args: &HorizonArgs) -> Result<Subject, Failure> {
    let mut subject = match (&args.path, &args.like, args.heads_total) {
        (Some(path), _, _) => from_path(path)?,
        (None, Some(name), _) => from_known(name)?,
        (None, None, Some(n_heads)) => from_heads(n_heads, args)?,
        (None, None, None) => match slope_list(args)? {
            Some(list) => from_heads(list.len(), args)?,
            None => {
                return Err(Failure::error(
                    "nothing to look at: give --heads N, --like NAME, --slopes LIST or a path; for example \
                     `snellen horizon --like bloom-560m`",
                ));
            }
        },
    };
    if let Some(width) = args.head_width {
        if width == 0 {
            return Err(Failure::error("--head-width 0: expected at least 1"));
        }
        #[allow(clippy::cast_precision_loss)] // head widths are small
        let scale = 1.0 / (width as f64).sqrt();
        subject.score_scale = Some(scale);
    }
    if let Some(schedule) = schedule(args)? {
        subject.schedule = schedule;
    }
    Ok(subject)
}

fn from_path(path: &std::path::Path) -> Result<Subject, Failure> {
    // the configuration alone: weights are not looked at, whatever their state
    let facts = checkpoint::open_config(path)?;
    Ok(Subject {
        info: Some(describe::model(&facts, path, None)),
        family: facts.family,
        n_heads: facts.n_heads,
        schedule: facts.slopes.clone(),
        bias: facts.bias.clone(),
        score_scale: Some(facts.score_scale),
        causal: facts.causal,
        notes: describe::notes(&facts),
    })
}

fn from_known(name: &str) -> Result<Subject, Failure> {
    let Some(known) = numerics::known_model(name) else {
        let names: Vec<&str> = numerics::known_models()
            .iter()
            .map(|model| model.name)
            .collect();
        let hint = did_you_mean(name, names.iter().copied());
        return Err(Failure::error(format!(
            "--like {name:?} is not known{hint}; known: {}",
            names.join(", ")
        )));
    };
    #[allow(clippy::cast_precision_loss)] // head widths are small
    let score_scale = 1.0 / (known.head_width as f64).sqrt();
    Ok(Subject {
        info: Some(ModelInfo {
            name: known.name.to_owned(),
            family: known.family.name().to_owned(),
            n_layers: known.n_layers.map(|n| n as u64),
            n_heads: Some(known.n_heads as u64),
            head_width: Some(known.head_width as u64),
            width: Some(known.width() as u64),
            trained_length: known.trained_length,
            causal: known.family.convention().causal,
            ..ModelInfo::default()
        }),
        family: known.family,
        n_heads: known.n_heads,
        schedule: known.slope_schedule(),
        bias: BiasFunction::linear(),
        score_scale: Some(score_scale),
        causal: known.family.convention().causal,
        notes: vec![format!(
            "{}: shape from a built-in list, no file was read ({})",
            known.name, known.source
        )],
    })
}

fn from_heads(n_heads: usize, args: &HorizonArgs) -> Result<Subject, Failure> {
    let mut notes = Vec::new();
    let family = match &args.family {
        None => {
            notes.push(
                "no family named: bias added after the scale; --family applies another convention"
                    .to_owned(),
            );
            Family::Custom
        }
        Some(name) => Family::parse(name).ok_or_else(|| {
            let names = Family::ALL.map(Family::name);
            let hint = did_you_mean(name, names.into_iter());
            Failure::error(format!(
                "--family {name:?} is not known{hint}; known: {}",
                names.join(", ")
            ))
        })?,
    };
    Ok(Subject {
        info: Some(ModelInfo {
            name: if n_heads == 1 {
                "1 head".to_owned()
            } else {
                format!("{n_heads} heads")
            },
            family: family.name().to_owned(),
            n_heads: Some(n_heads as u64),
            head_width: args.head_width.map(|width| width as u64),
            causal: family.convention().causal && !args.bidirectional,
            ..ModelInfo::default()
        }),
        family,
        n_heads,
        schedule: family
            .slope_schedule(args.bias_max)
            .unwrap_or(SlopeSchedule::Press),
        bias: BiasFunction::linear(),
        score_scale: None,
        causal: family.convention().causal,
        notes,
    })
}

/// The rule of `--slopes` and `--bias-max`, when either was given.
fn schedule(args: &HorizonArgs) -> Result<Option<SlopeSchedule>, Failure> {
    let bias_max = args.bias_max.unwrap_or(8.0);
    match args.slopes.as_deref().map(str::trim) {
        None if args.bias_max.is_some() => Ok(Some(SlopeSchedule::Mpt { bias_max })),
        None => Ok(None),
        Some("mpt") => Ok(Some(SlopeSchedule::Mpt { bias_max })),
        Some(rule) if args.bias_max.is_some() => Err(Failure::error(format!(
            "--bias-max belongs to --slopes mpt, not to --slopes {rule}"
        ))),
        Some("press") => Ok(Some(SlopeSchedule::Press)),
        Some("naive") => Ok(Some(SlopeSchedule::Naive)),
        Some(_) => Ok(slope_list(args)?.map(SlopeSchedule::List)),
    }
}

/// The slopes of `--slopes 0.5,0.25`; `None` when a rule or nothing was given.
fn slope_list(args: &HorizonArgs) -> Result<Option<Vec<f64>>, Failure> {
    let Some(text) = args.slopes.as_deref().map(str::trim) else {
        return Ok(None);
    };
    if ["press", "mpt", "naive"].contains(&text) {
        return Ok(None);
    }
    let slopes = text.split(',').map(|part| part.trim().parse::<f64>());
    slopes.collect::<Result<Vec<_>, _>>().map(Some).map_err(|_| {
        Failure::error(format!("--slopes {text:?}: expected press, mpt, naive or a list of numbers such as 0.5,0.25"))
    })
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
