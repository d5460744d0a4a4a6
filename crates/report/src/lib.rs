//! The versioned result schema and its renderers.
//!
//! One result model, one renderer per format: a verb of the command line fills one of the structs of [`schema`], and
//! [`json::render`] or [`text`] turn it into a document. Rendering never changes a result, and nothing here computes a verdict:
//! summaries are sums over what the result already holds.
//!
//! Two rules shape the schema. It is *strict*: no NaN and no infinity is ever written, a number that does not exist is `null`
//! and a field beside it (`*_reason`) says why. And it is *byte-stable*: the same input gives the same bytes, so there is no time,
//! no host name and no duration in it.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod json;
pub mod number;
pub mod schema;
pub mod text;

mod convert;
mod convert_eval;
mod convert_probe;

pub use number::Distance;
pub use schema::{AuditReport, HorizonReport, InspectReport, MeasureReport, SCHEMA_VERSION};
