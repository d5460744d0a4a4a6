//! What `horizon` is asked about: a configuration, a known model, or a number of heads.

use super::super::describe;
use super::HorizonArgs;
use crate::failure::Failure;
use crate::suggest::did_you_mean;
use ::audit::checks::{Target, shell_word};
use checkpoint::{DescribedModel, ModelFacts};
use numerics::{BiasForm, Family, SlopeSchedule};
use report::schema::ModelInfo;
use std::path::Path;

/// What the closed form needs of a model.
pub(super) struct Subject {
    /// The model in the words of the schema.
    pub(super) info: ModelInfo,
    /// Its facts; without a file, those of its family.
    pub(super) facts: ModelFacts,
    /// Whether the factor of `q.k` is known.
    pub(super) knows_scale: bool,
    /// How next commands name it.
    pub(super) name: Name,
    /// Remarks, traps first.
    pub(super) notes: Vec<String>,
}

/// How the model was named.
pub(super) enum Name {
    Path(String),
    Arguments(String),
}

impl Name {
    pub(super) fn target(&self) -> Target<'_> {
        match self {
            Self::Path(path) => Target::Path(path),
            Self::Arguments(arguments) => Target::Described(arguments),
        }
    }
}

impl Subject {
    /// The subject of these arguments.
    pub(super) fn new(args: &HorizonArgs) -> Result<Self, Failure> {
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
            subject.facts.score_scale = scale;
            subject.knows_scale = true;
        }
        if let Some(schedule) = schedule(args)? {
            subject.facts.slopes = schedule;
        }
        subject.info.causal &= !args.bidirectional;
        if args.bidirectional && subject.facts.causal {
            subject
                .notes
                .push("every query sees the keys after it too (--bidirectional)".to_owned());
        }
        if let Name::Arguments(name) = &mut subject.name {
            name.push_str(&repeated(args));
        }
        Ok(subject)
    }
}

/// The flags that describe the model beside its name, each behind a blank.
fn repeated(args: &HorizonArgs) -> String {
    let mut flags = String::new();
    let mut add = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            flags.push_str(&format!(" {flag} {}", shell_word(&value)));
        }
    };
    add("--family", args.family.clone());
    add("--slopes", args.slopes.clone());
    add("--bias-max", args.bias_max.map(|value| value.to_string()));
    add(
        "--head-width",
        args.head_width.map(|value| value.to_string()),
    );
    if args.bidirectional {
        flags.push_str(" --bidirectional");
    }
    flags
}

fn from_path(path: &Path) -> Result<Subject, Failure> {
    // the configuration alone: weights are not looked at, whatever their state
    let facts = checkpoint::open_config(path)?;
    Ok(Subject {
        info: describe::model(&facts, path),
        knows_scale: true,
        name: Name::Path(path.display().to_string()),
        notes: describe::notes(&facts),
        facts,
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
    let facts = ModelFacts::described(DescribedModel {
        name: known.name.to_owned(),
        family: known.family,
        n_heads: known.n_heads,
        head_width: Some(known.head_width),
        n_layers: known.n_layers,
        trained_length: known.trained_length,
        bias_max: Some(known.bias_max),
        evidence: known.source.to_owned(),
    });
    let mut notes = vec![format!(
        "{}: shape from a built-in list, no file was read ({})",
        known.name, known.source
    )];
    notes.extend(describe::notes(&facts));
    Ok(Subject {
        info: ModelInfo {
            name: known.name.to_owned(),
            family: known.family.name().to_owned(),
            n_layers: known.n_layers.map(|n| n as u64),
            n_heads: Some(known.n_heads as u64),
            head_width: Some(known.head_width as u64),
            width: Some(known.width() as u64),
            trained_length: known.trained_length,
            causal: facts.causal,
            ..ModelInfo::default()
        },
        facts,
        knows_scale: true,
        name: Name::Arguments(format!("--like {}", known.name)),
        notes,
    })
}

fn from_heads(n_heads: usize, args: &HorizonArgs) -> Result<Subject, Failure> {
    let family = match &args.family {
        None => None,
        Some(name) => Some(Family::parse(name).ok_or_else(|| {
            let names = Family::ALL.map(Family::name);
            let hint = did_you_mean(name, names.into_iter());
            Failure::error(format!(
                "--family {name:?} is not known{hint}; known: {}",
                names.join(", ")
            ))
        })?),
    };
    let name = if n_heads == 1 {
        "1 head".to_owned()
    } else {
        format!("{n_heads} heads")
    };
    let mut facts = ModelFacts::described(DescribedModel {
        name: name.clone(),
        family: family.unwrap_or(Family::Custom),
        n_heads,
        head_width: args.head_width,
        n_layers: None,
        trained_length: None,
        bias_max: args.bias_max,
        evidence: "the command line".to_owned(),
    });
    let mut notes = describe::notes(&facts);
    if family.is_none() {
        // the form of the published code and of most families
        facts.convention.form = BiasForm::KeyPosition;
        notes.push(
            "no family named: bias added after the scale and, for the idealised plans, stored as slope times key position; \
             --family or --convention applies another convention"
                .to_owned(),
        );
    }
    Ok(Subject {
        info: ModelInfo {
            name,
            family: facts.family.name().to_owned(),
            n_heads: Some(n_heads as u64),
            head_width: args.head_width.map(|width| width as u64),
            causal: facts.causal,
            ..ModelInfo::default()
        },
        knows_scale: args.head_width.is_some(),
        name: Name::Arguments(format!("--heads {n_heads}")),
        notes,
        facts,
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
