//! The study file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::evaluate::EvaluateConfig;
use super::grid;
use super::trial::Trial;
use crate::config::{
    AttentionConfig, DataConfig, ModelConfig, RunConfig, ScheduleConfig, WatchConfig, from_toml,
};
use crate::data::recall::RecallConfig;
use crate::error::TrainError;
use crate::optimiser::AdamW;
use crate::shape::PositionConfig;

/// Longest name of a variant.
const NAME_MAX: usize = 64;

/// A study: runs that differ in what is studied, and what is measured of each.
#[derive(Clone, Debug)]
pub struct Study {
    /// What it is about, in the file's words.
    pub title: Option<String>,
    /// The variant that others are compared with.
    pub baseline: Option<String>,
    /// Variants in the order of the file, those of the grid last.
    pub variants: Vec<Variant>,
    /// What is measured of each.
    pub evaluate: EvaluateConfig,
    base: Base,
    folder: PathBuf,
}

/// A variant: what differs from the base.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name, also a part of a folder's.
    pub name: String,
    /// Its seeds.
    pub seeds: Vec<u64>,
    tables: toml::Table,
}

#[derive(Clone, Debug)]
enum Base {
    Inline(toml::Table),
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawStudy {
    snellen_study: u64,
    title: Option<String>,
    base: toml::Value,
    seeds: Vec<u64>,
    baseline: Option<String>,
    #[serde(default)]
    variant: Vec<toml::Table>,
    grid: Option<toml::Table>,
    #[serde(default)]
    evaluate: EvaluateConfig,
}

impl Study {
    /// Reads a study file. Paths in it are relative to the file.
    ///
    /// # Errors
    /// One line with the file, the key, and what was expected.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let text = checkpoint::files::read_to_string(path).map_err(|e| TrainError::io(path, &e))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|e| TrainError::file(path, e))
    }

    /// Reads the text of a study file whose paths are relative to `folder`. No other file is opened.
    ///
    /// # Errors
    /// As [`Study::read`], without the file.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, TrainError> {
        let raw: RawStudy = from_toml(text)?;
        if raw.snellen_study != 1 {
            return Err(TrainError::config(format!(
                "snellen-study: expected 1, the version of the format that this program knows, found {}",
                raw.snellen_study
            )));
        }
        let base = match raw.base {
            toml::Value::Table(table) => {
                no_seed(&table, "base")?;
                Base::Inline(table)
            }
            toml::Value::String(file) => Base::File(folder.join(file)),
            other => {
                return Err(TrainError::config(format!(
                    "base: expected a table of a run file's tables or the name of a run file, found {}",
                    other.type_str()
                )));
            }
        };
        let mut variants = Vec::new();
        for table in raw.variant {
            variants.push(variant(table, &raw.seeds)?);
        }
        if let Some(grid) = &raw.grid {
            for (name, tables) in grid::variants(grid)? {
                check_name(&name)?;
                variants.push(Variant {
                    name,
                    seeds: raw.seeds.clone(),
                    tables,
                });
            }
        }
        let study = Self {
            title: raw.title,
            baseline: raw.baseline,
            variants,
            evaluate: raw.evaluate,
            base,
            folder: folder.to_owned(),
        };
        study.check_names()?;
        Ok(study)
    }

    fn check_names(&self) -> Result<(), TrainError> {
        if self.variants.is_empty() {
            return Err(TrainError::config(
                "no variants: add [[variant]] with a name, or a [grid]".to_owned(),
            ));
        }
        for (at, variant) in self.variants.iter().enumerate() {
            if self.variants[..at].iter().any(|v| v.name == variant.name) {
                return Err(TrainError::config(format!(
                    "two variants are named {:?}",
                    variant.name
                )));
            }
        }
        match &self.baseline {
            Some(name) if self.variants.iter().all(|v| v.name != *name) => {
                let names: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
                Err(TrainError::config(format!(
                    "baseline = {name:?} is no variant; there are {}",
                    names.join(", ")
                )))
            }
            _ => Ok(()),
        }
    }

    /// Names of all trials with variant and seed, in the order they are run: the first seed of every variant, then the second, so
    /// that a study which is not finished is balanced.
    pub fn trial_names(&self) -> Vec<(String, String, u64)> {
        let most = self.variants.iter().map(|v| v.seeds.len()).max();
        (0..most.unwrap_or(0))
            .flat_map(|round| {
                self.variants.iter().filter_map(move |variant| {
                    let seed = *variant.seeds.get(round)?;
                    Some((trial_name(&variant.name, seed), variant.name.clone(), seed))
                })
            })
            .collect()
    }

    /// All trials in that order, with their runs. Reads the base's run file if there is one, no data.
    ///
    /// # Errors
    /// What is not a run, with its variant and key.
    pub fn trials(&self) -> Result<Vec<Trial>, TrainError> {
        let base = self.base()?;
        let mut runs = Vec::new();
        for variant in &self.variants {
            let run = self.run(&base, variant);
            runs.push(
                run.map_err(|e| TrainError::config(format!("variant {:?}: {e}", variant.name)))?,
            );
        }
        let trial = |(name, variant, seed): (String, String, u64)| {
            let at = self.variants.iter().position(|v| v.name == variant)?;
            let mut run = runs[at].clone();
            run.seed = seed;
            let longest = run.stages().ok()?.iter().map(|s| s.length).max()?;
            Some(Trial {
                name,
                variant,
                evaluate: self.evaluate.resolved(longest),
                run,
            })
        };
        Ok(self.trial_names().into_iter().filter_map(trial).collect())
    }

    /// The base's run file, where there is one and it is not where the study says: a copy of a study file beside its trials. Then
    /// [`Study::trials`] cannot say what the runs are.
    pub fn missing_base(&self) -> Option<&Path> {
        match &self.base {
            Base::File(path) if !path.exists() => Some(path),
            _ => None,
        }
    }

    fn base(&self) -> Result<toml::Table, TrainError> {
        match &self.base {
            Base::Inline(table) => {
                let mut table = table.clone();
                place(&mut table, &self.folder);
                table
                    .entry("snellen-run".to_owned())
                    .or_insert(toml::Value::Integer(1));
                Ok(table)
            }
            Base::File(path) => {
                let text = checkpoint::files::read_to_string(path)
                    .map_err(|e| TrainError::io(path, &e))?;
                let mut table: toml::Table = text
                    .parse()
                    .map_err(|e: toml::de::Error| TrainError::file(path, e.message()))?;
                place(&mut table, path.parent().unwrap_or(Path::new("")));
                Ok(table)
            }
        }
    }

    fn run(&self, base: &toml::Table, variant: &Variant) -> Result<RunConfig, TrainError> {
        let mut tables = variant.tables.clone();
        place(&mut tables, &self.folder);
        let mut merged = base.clone();
        merge(&mut merged, &tables);
        merged.remove("seed");
        let text = toml::to_string(&merged).unwrap_or_default();
        let config = RunConfig::parse(&text)
            .map_err(|error| wrong_table(&merged).map_or(error, TrainError::config))?;
        config.validate()?;
        Ok(config)
    }
}

/// `variant-sSEED`.
pub(super) fn trial_name(variant: &str, seed: u64) -> String {
    format!("{variant}-s{seed}")
}

fn variant(mut table: toml::Table, seeds: &[u64]) -> Result<Variant, TrainError> {
    let name = match table.remove("name") {
        Some(toml::Value::String(name)) => name,
        _ => {
            return Err(TrainError::config(
                "a [[variant]] has no name: add name = \"...\"".to_owned(),
            ));
        }
    };
    check_name(&name)?;
    no_seed(&table, &format!("variant {name:?}"))?;
    let seeds = match table.remove("seeds") {
        None => seeds.to_vec(),
        Some(own) => own.try_into().map_err(|_| {
            TrainError::config(format!(
                "variant {name:?}: seeds: expected a list of whole numbers"
            ))
        })?,
    };
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if seeds.is_empty() || sorted.len() < seeds.len() {
        return Err(TrainError::config(format!(
            "variant {name:?}: seeds: expected at least one, each once"
        )));
    }
    if table.contains_key("evaluate") {
        return Err(TrainError::config(format!(
            "variant {name:?}: evaluate: is said once for the whole study, so that variants can be compared"
        )));
    }
    Ok(Variant {
        name,
        seeds,
        tables: table,
    })
}

fn check_name(name: &str) -> Result<(), TrainError> {
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._=+-".contains(c));
    if first && rest && name.len() <= NAME_MAX {
        return Ok(());
    }
    Err(TrainError::config(format!(
        "variant {name:?}: a name begins with a letter or digit, has letters, digits and . _ = + - and at most {NAME_MAX} of them"
    )))
}

fn no_seed(table: &toml::Table, at: &str) -> Result<(), TrainError> {
    if table.contains_key("seed") {
        return Err(TrainError::config(format!(
            "{at}: seed: seeds = [...] says the seeds of a study"
        )));
    }
    Ok(())
}

/// Makes the paths of `[data]` relative to `folder`.
fn place(table: &mut toml::Table, folder: &Path) {
    let Some(toml::Value::Table(data)) = table.get_mut("data") else {
        return;
    };
    for key in ["train", "held", "tokenizer"] {
        if let Some(toml::Value::String(path)) = data.get_mut(key) {
            *path = folder.join(&*path).display().to_string();
        }
    }
}

/// Values of `over` in `table`, table by table; what is no table is replaced.
fn merge(table: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(over)) => merge(inner, over),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The first table of a run that does not read, with its name: the parser knows lines only, and these have none.
fn wrong_table(run: &toml::Table) -> Option<String> {
    run.iter().find_map(|(key, value)| {
        let value = value.clone();
        let error = match key.as_str() {
            "data" => value.try_into::<DataConfig>().err(),
            "model" => value.try_into::<ModelConfig>().err(),
            "position" => value.try_into::<PositionConfig>().err(),
            "attention" => value.try_into::<AttentionConfig>().err(),
            "recall" => value.try_into::<RecallConfig>().err(),
            "schedule" => value.try_into::<ScheduleConfig>().err(),
            "optimiser" => value.try_into::<AdamW>().err(),
            "watch" => value.try_into::<WatchConfig>().err(),
            _ => None,
        };
        let message = error?.message().lines().collect::<Vec<_>>().join("; ");
        Some(format!("{key}: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "snellen-study = 1\nseeds = [1, 2]\nbaseline = \"linear\"\n\
        [base.data]\ntrain = \"a.tok\"\nheld = \"b.tok\"\n\
        [base.schedule]\nstages = \"32:4, 64:2\"\ntokens-per-step = 128\nlr = 1e-3\n\
        [base.position]\nslope-factor = 8\n";

    fn study(more: &str) -> Result<Study, TrainError> {
        Study::parse(&format!("{BASE}{more}"), Path::new("there"))
    }

    #[test]
    fn variants_override_the_base_and_run_seed_by_seed() {
        let study = study(
            "[[variant]]\nname = \"linear\"\n[[variant]]\nname = \"log\"\nseeds = [1, 2, 3]\n\
             position.remedy = \"log\"\nschedule.lr = 0.5\n",
        )
        .unwrap();
        let trials = study.trials().unwrap();
        let names: Vec<&str> = trials.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(
            names,
            ["linear-s1", "log-s1", "linear-s2", "log-s2", "log-s3"]
        );
        let log = &trials[3].run;
        assert_eq!((log.seed, log.schedule.lr), (2, 0.5));
        assert_eq!(
            (log.position.remedy.as_str(), log.position.slope_factor),
            ("log", 8.0)
        );
        assert_eq!(log.data.held, Path::new("there").join("b.tok"));
        assert_eq!(trials[0].run.position.remedy, "none");
        assert_eq!(trials[0].evaluate.lengths, [64]);
    }

    #[test]
    fn mistakes_name_the_variant_and_the_key() {
        for (more, wanted) in [
            ("", "no variants"),
            ("[[variant]]\nname = \"a\"\n", "baseline"),
            (
                "[[variant]]\nname = \"linear\"\nmodel.layer = 3\n",
                "variant \"linear\": model: unknown field `layer`",
            ),
            (
                "[[variant]]\nname = \"linear\"\nmodell.layers = 3\n",
                "unknown field `modell`",
            ),
            (
                "[[variant]]\nname = \"linear\"\nschedule.lr = -1.0\n",
                "variant \"linear\": schedule.lr",
            ),
            ("[[variant]]\nname = \"linear\"\nseed = 3\n", "seed"),
            ("[[variant]]\nname = \"linear\"\nseeds = [1, 1]\n", "seeds"),
            ("[[variant]]\nname = \"../x\"\n", "name"),
            (
                "[[variant]]\nname = \"linear\"\n[[variant]]\nname = \"linear\"\n",
                "two variants",
            ),
            (
                "[evaluate]\nlenghts = [3]\n[[variant]]\nname = \"linear\"\n",
                "lenghts",
            ),
            (
                "[[variant]]\nname = \"linear\"\nattention = { plan = \"ftz\", zero-beyond = 3.0 }\n",
                "exclude",
            ),
        ] {
            let error = match study(more).and_then(|s| s.trials()) {
                Ok(_) => panic!("{more} is accepted"),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(wanted), "{more}: {error}");
            assert!(!error.contains('\n'), "one line: {error}");
        }
    }
}
