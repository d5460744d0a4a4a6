//! `[grid]`: every list in it is a dimension, and variants are made of one value of each.

use crate::error::TrainError;

/// A dimension: the path of a key, and its values.
type Dimension = (Vec<String>, Vec<toml::Value>);

/// Most variants a grid may make.
const VARIANTS_MAX: usize = 1000;

/// Name and tables of every combination, the last key varying fastest. Names are the values joined by `_`.
///
/// # Errors
/// A key that is no list, an empty list, more variants than are believed.
pub(super) fn variants(grid: &toml::Table) -> Result<Vec<(String, toml::Table)>, TrainError> {
    let mut dimensions = Vec::new();
    collect(grid, &mut Vec::new(), &mut dimensions)?;
    let count = dimensions
        .iter()
        .try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
    if dimensions.is_empty() || count.is_none_or(|n| n > VARIANTS_MAX) {
        return Err(TrainError::config(format!(
            "[grid] makes {} variants; between 1 and {VARIANTS_MAX}",
            if dimensions.is_empty() {
                "no".to_owned()
            } else {
                count.map_or("too many".to_owned(), |n| n.to_string())
            }
        )));
    }
    let mut made = vec![(String::new(), toml::Table::new())];
    for (path, values) in &dimensions {
        made = made
            .iter()
            .flat_map(|(name, tables)| {
                values.iter().map(move |value| {
                    let mut tables = tables.clone();
                    set(&mut tables, path, value.clone());
                    let joint = if name.is_empty() { "" } else { "_" };
                    (format!("{name}{joint}{}", spelled(value)), tables)
                })
            })
            .collect();
    }
    Ok(made)
}

fn collect(
    table: &toml::Table,
    path: &mut Vec<String>,
    dimensions: &mut Vec<Dimension>,
) -> Result<(), TrainError> {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            toml::Value::Table(inner) => collect(inner, path, dimensions)?,
            toml::Value::Array(values) if !values.is_empty() => {
                dimensions.push((path.clone(), values.clone()));
            }
            _ => {
                return Err(TrainError::config(format!(
                    "grid.{}: expected a list of values with at least one, found {value}",
                    path.join(".")
                )));
            }
        }
        path.pop();
    }
    Ok(())
}

fn set(table: &mut toml::Table, path: &[String], value: toml::Value) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let inner = table
                .entry(key.clone())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// A value as a part of a name.
fn spelled(value: &toml::Value) -> String {
    let text = match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "=+-.".contains(c);
    text.chars()
        .map(|c| if allowed(c) { c } else { '-' })
        .collect::<String>()
        .trim_matches('-')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::variants;

    #[test]
    fn lists_are_multiplied_in_order() {
        let grid = "[position]\nremedy = [\"none\", \"log\"]\nslope-factor = [1, 8]\n";
        let made = variants(&grid.parse().unwrap()).unwrap();
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["none_1", "none_8", "log_1", "log_8"]);
        assert_eq!(made[3].1["position"]["remedy"].as_str(), Some("log"));
        assert_eq!(made[3].1["position"]["slope-factor"].as_integer(), Some(8));
        for bad in ["a = 1", "a = []", "", "[a]\nb = \"x\""] {
            assert!(variants(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
