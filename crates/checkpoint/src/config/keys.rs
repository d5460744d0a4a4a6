//! Typed access to the keys of a configuration, with errors that name file, key, what was expected and what was found.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{CheckpointError, quoted};

/// Largest width, head count, vocabulary and the like that is believed. A hostile number must not become an allocation.
const COUNT_MAX: u64 = 1 << 24;
/// Most layers that are believed.
const LAYERS_MAX: u64 = 10_000;

/// An object of a configuration file. A key whose value is `null` counts as absent, as the libraries that write these files do.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    path: &'a Path,
    /// Key of this object inside the file with a dot after it, or nothing for the file's own object.
    prefix: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self {
            path,
            prefix: "",
            map,
        }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The first of `names` that is present. Aliases that are both present must agree.
    fn raw(&self, names: &[&'a str]) -> Result<Option<(&'a str, &'a Value)>, CheckpointError> {
        let mut found: Option<(&str, &Value)> = None;
        for &name in names {
            let Some(value) = self.map.get(name).filter(|v| !v.is_null()) else {
                continue;
            };
            match found {
                None => found = Some((name, value)),
                Some((first, other)) if other != value => {
                    return Err(CheckpointError::malformed(format!(
                        "the keys {} and {} mean the same and differ: {} and {}; remove the wrong one",
                        self.shown(first),
                        self.shown(name),
                        describe(other),
                        describe(value)
                    ))
                    .in_file(self.path));
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    fn shown(&self, key: &str) -> String {
        format!("\"{}{key}\"", self.prefix)
    }

    /// An error about a key whose value something else has refused.
    pub(crate) fn refused(&self, key: &str, why: &dyn std::fmt::Display) -> CheckpointError {
        CheckpointError::malformed(format!("key {}: {why}", self.shown(key))).in_file(self.path)
    }

    /// An error about a key.
    pub(crate) fn wrong(&self, key: &str, expected: &str, found: &str) -> CheckpointError {
        self.refused(key, &format_args!("expected {expected}, found {found}"))
    }

    fn absent(&self, names: &[&str], expected: &str) -> CheckpointError {
        let names: Vec<_> = names.iter().map(|n| self.shown(n)).collect();
        CheckpointError::missing(format!(
            "key {} is missing; expected {expected}; add it, or use the config.json that was published with the model",
            either(&names)
        ))
        .in_file(self.path)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|v| !v.is_null())
    }

    pub(crate) fn opt_count(&self, names: &[&'a str]) -> Result<Option<usize>, CheckpointError> {
        self.opt_bounded(names, COUNT_MAX)
    }

    pub(crate) fn count(&self, names: &[&'a str]) -> Result<usize, CheckpointError> {
        self.opt_count(names)?
            .ok_or_else(|| self.absent(names, "a whole number of at least 1"))
    }

    pub(crate) fn layers(&self, names: &[&'a str]) -> Result<usize, CheckpointError> {
        self.opt_bounded(names, LAYERS_MAX)?
            .ok_or_else(|| self.absent(names, "the number of layers"))
    }

    fn opt_bounded(&self, names: &[&'a str], max: u64) -> Result<Option<usize>, CheckpointError> {
        let Some((name, value)) = self.raw(names)? else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(n) if (1..=max).contains(&n) => Ok(Some(n as usize)),
            _ => Err(self.wrong(
                name,
                &format!("a whole number from 1 to {max}"),
                &describe(value),
            )),
        }
    }

    pub(crate) fn opt_bool(&self, name: &'a str) -> Result<Option<bool>, CheckpointError> {
        let Some((name, value)) = self.raw(&[name])? else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(name, "true or false", &describe(value)))
    }

    pub(crate) fn opt_number(&self, names: &[&'a str]) -> Result<Option<f64>, CheckpointError> {
        let Some((name, value)) = self.raw(names)? else {
            return Ok(None);
        };
        let number = value.as_f64().filter(|n| n.is_finite());
        number
            .map(Some)
            .ok_or_else(|| self.wrong(name, "a number", &describe(value)))
    }

    /// A number above zero.
    pub(crate) fn opt_positive(&self, names: &[&'a str]) -> Result<Option<f64>, CheckpointError> {
        let Some(number) = self.opt_number(names)? else {
            return Ok(None);
        };
        if number > 0.0 {
            return Ok(Some(number));
        }
        let name = names.iter().find(|n| self.has(n)).unwrap_or(&names[0]);
        Err(self.wrong(name, "a number above 0", &number.to_string()))
    }

    pub(crate) fn opt_text(&self, name: &'a str) -> Result<Option<&'a str>, CheckpointError> {
        let Some((name, value)) = self.raw(&[name])? else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.wrong(name, "a text", &describe(value)))
    }

    pub(crate) fn opt_value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    /// A nested object; `prefix` is its key with a dot after it.
    pub(crate) fn opt_object(
        &self,
        name: &'a str,
        prefix: &'a str,
    ) -> Result<Option<Keys<'a>>, CheckpointError> {
        let Some((name, value)) = self.raw(&[name])? else {
            return Ok(None);
        };
        let map = value
            .as_object()
            .ok_or_else(|| self.wrong(name, "an object", &describe(value)))?;
        Ok(Some(Keys {
            path: self.path,
            prefix,
            map,
        }))
    }
}

/// A JSON value in words, short.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => format!("the text {}", quoted(s)),
        Value::Array(items) => format!("a list of {} items", items.len()),
        Value::Object(map) => format!("an object of {} keys", map.len()),
    }
}

/// The first of some names, and the others that would do.
pub(crate) fn either(names: &[String]) -> String {
    match names {
        [first, others @ ..] if !others.is_empty() => {
            format!("{first} (or {})", others.join(" or "))
        }
        _ => names.concat(),
    }
}
