//! The JSON renderer: strict, indented by two spaces, one trailing newline.

use serde::Serialize;

/// Renders a report as a JSON document.
///
/// Every field of the schema that may lack a value is an `Option`, so nothing non-finite reaches the serialiser; should a new
/// field break that rule, it is written as `null`, never as `NaN`.
///
/// # Errors
/// When a value cannot be represented in JSON, which no type of [`crate::schema`] can cause.
pub fn render<T: Serialize>(report: &T) -> Result<String, serde_json::Error> {
    let mut out = serde_json::to_string_pretty(report)?;
    out.push('\n');
    Ok(out)
}
