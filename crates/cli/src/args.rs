//! Arguments shared by the verbs. What they mean is decided in `commands`.

use crate::commands::{
    audit, completions, eval, explain, export, horizon, inspect, man, measure, probe, report,
    study, tokens, train,
};
use crate::parse;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// An eye chart for attention heads: how far every head of an ALiBi model can see, and why no further.
///
/// ALiBi adds -slope * distance to every attention score. Far enough back the weight is exactly zero in the number format that
/// the runtime uses: the head is blind there, and no ordinary benchmark says so.
#[derive(Debug, Parser)]
#[command(name = "snellen", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 no finding at or above --fail-on; 1 findings; 2 the job could not be done; \
                          3 not applicable (not an ALiBi model); 130 interrupted. Documents go to stdout, everything else to stderr.";

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// How far each head can see by its bias alone: heads, slopes, a length and a plan; no weights, no text
    Horizon(horizon::HorizonArgs),
    /// What a checkpoint's headers and configuration say: family, conventions, tensors, traps; no weight is read
    Inspect(inspect::InspectArgs),
    /// What the weights prove for any text: guaranteed-visible, expected and certified distances of every head
    Audit(audit::AuditArgs),
    /// What every head does on a text: blind pairs under many plans in one pass, reach, entropy, sinks, loss
    Measure(measure::MeasureArgs),
    /// How well a model predicts a text, by position and by document, or answers a task from JSON lines
    Eval(eval::EvalArgs),
    /// What a model finds in a long text, by length and depth: retrieval probes
    Probe(probe::ProbeArgs),
    /// Train a decoder from a run file, exactly repeatable and resumable
    Train(train::TrainArgs),
    /// Write a trained decoder in a layout that others read
    Export(export::ExportArgs),
    /// Train a tokenizer, or encode text for training
    Tokens(tokens::TokensArgs),
    /// Many training runs from one study file, measured alike, and what they come to over seeds
    Study(study::StudyArgs),
    /// A saved result in any format, or two results side by side
    Report(report::ReportArgs),
    /// What a check measures, why it matters and what to do
    Explain(explain::ExplainArgs),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man(man::ManArgs),
}

/// Flags of every verb.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Form of the document; never changes the exit code. The last of --format and --json counts
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT", overrides_with = "json")]
    format: Format,
    /// Short for --format json
    #[arg(long, global = true, overrides_with = "format")]
    json: bool,
    /// Write the document to FILE, whole or not at all; `-` is stdout
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Read defaults for flags from a TOML file; flags override it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Threads to compute with [default: all]; the result does not depend on it
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Refuse to start when the estimate exceeds SIZE, such as 4GiB (audit, measure, eval, probe, train and study run; a verb that makes no estimate refuses the flag)
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse::size)]
    pub(crate) max_memory: Option<u64>,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Exit with 1 on findings of this severity (note, warning, error) or code, with a limit on the value if wanted:
    /// SN001:0.5 [default: warning; error for horizon and inspect; nothing for the embedded model]
    #[arg(long, global = true, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<String>,
    /// Exit with 0 whatever is found
    #[arg(long, global = true)]
    pub(crate) exit_zero: bool,
    /// Colour of the text form
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN")]
    pub(crate) color: ColorWhen,
    /// Draw the charts of the text form with ASCII characters
    #[arg(long, global = true)]
    pub(crate) ascii: bool,
}

impl GlobalArgs {
    /// The same flags for verbs that describe a model rather than a run of it (`horizon`, `inspect`): a question about
    /// another length or format is no failure, so without `--fail-on` only errors are.
    pub(crate) fn judging_a_description(&self) -> Self {
        let mut flags = self.clone();
        if flags.fail_on.is_empty() {
            flags.fail_on.push("error".to_owned());
        }
        flags
    }

    /// Refuses flags of documents and findings for a verb that has neither: a flag that does nothing is a mistake.
    pub(crate) fn refuse_document_flags(
        &self,
        verb: &str,
        allowed: &[&str],
    ) -> Result<(), crate::Failure> {
        let given = [
            ("--format", self.format() != Format::Text),
            ("--out", self.out.is_some()),
            ("--fail-on", !self.fail_on.is_empty()),
            ("--exit-zero", self.exit_zero),
        ];
        for (flag, set) in given {
            if set && !allowed.contains(&flag) {
                let why = match flag {
                    "--format" | "--out" => "writes no document",
                    _ => "has no findings",
                };
                return Err(crate::Failure::error(format!(
                    "{flag}: `{verb}` {why}; leave the flag away"
                )));
            }
        }
        Ok(())
    }

    /// Refuses `--fail-on` for a result without findings: a pipeline that relies on it would never fail.
    pub(crate) fn refuse_judging(&self, verb: &str) -> Result<(), crate::Failure> {
        if self.fail_on.is_empty() {
            return Ok(());
        }
        Err(crate::Failure::error(format!(
            "--fail-on: `{verb}` has no findings, so nothing could ever fail; leave the flag away"
        )))
    }

    /// Refuses `--max-memory` for a verb that makes no estimate.
    pub(crate) fn refuse_estimating(&self, verb: &str) -> Result<(), crate::Failure> {
        if self.max_memory.is_none() {
            return Ok(());
        }
        Err(crate::Failure::error(format!(
            "--max-memory: `{verb}` makes no estimate that could be too large; leave the flag away"
        )))
    }

    /// The format asked for.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// The channel to the user.
    pub(crate) fn talk(&self) -> crate::progress::Talk {
        crate::progress::Talk { quiet: self.quiet }
    }
}

/// Form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: strict, versioned, byte-stable
    Json,
    /// A page that opens from disk: charts, heads, findings; no network
    Html,
    /// Markdown for pull requests and model cards
    #[value(alias = "markdown")]
    Md,
    /// SARIF 2.1.0: findings for code scanning
    Sarif,
    /// JUnit XML: a test case a check
    Junit,
    /// One line for each head under each plan, or for each record
    Csv,
    /// The evidence as NumPy arrays; binary: to a file or a pipe, not to a terminal
    Npz,
    /// The figures as one SVG picture
    Svg,
    /// The same picture in pixels, two to each of the SVG; binary, as npz
    Png,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Precision plans.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    /// Precision plans `NAME[:DTYPE]`, comma separated
    #[arg(long = "plan", value_name = "LIST", value_delimiter = ',', default_value = "ieee", long_help = PLAN_HELP)]
    pub(crate) plans: Vec<String>,
}

const PLAN_HELP: &str = "Precision plans NAME[:DTYPE], comma separated, repeatable; where no dtype is said f32, for llama-cpp-* f16.\n\n\
    f64, ieee, ftz are idealised; hf-eager, hf-sdpa, flash-attn2, vllm-paged, vllm-triton, llama-cpp-cpu, \
    llama-cpp-cuda-fa, foundry-torch, flex-attention and megatron-deepspeed follow a runtime step by step.\n\n\
    First blind distances as tables quote them: exp = 0 in f32 is `horizon --plan ieee --criterion exp` (`ftz` where \
    subnormals are flushed); softmax weight = 0 in f32 is `--plan ieee --criterion weight` (or `ftz`); an f32 weight cast to \
    bf16 or f16 is `--plan foundry-torch:bf16` or `foundry-torch:f16`, and `hf-eager:` for most families.";

impl PlanArgs {
    /// The plans for a model, each once, in the order given.
    pub(crate) fn resolve(
        &self,
        facts: &checkpoint::ModelFacts,
    ) -> Result<Vec<numerics::PrecisionPlan>, crate::Failure> {
        let mut plans: Vec<numerics::PrecisionPlan> = Vec::new();
        for spec in self.plans.iter().map(|spec| spec.trim()) {
            let plan = numerics::PrecisionPlan::parse(spec, facts.family).map_err(|error| {
                let name = spec.split(':').next().unwrap_or(spec);
                let names = numerics::plan_names();
                let hint = if names.contains(&name) {
                    String::new()
                } else {
                    crate::suggest::did_you_mean(name, names.iter().copied())
                };
                crate::Failure::error(format!("--plan {spec:?}: {error}{hint}"))
            })?;
            if !plans.iter().any(|earlier| earlier.key() == plan.key()) {
                plans.push(facts.as_run_by(plan));
            }
        }
        Ok(plans)
    }
}
