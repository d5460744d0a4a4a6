//! The versioned result schema and its renderers.
//!
//! One result model, one renderer per format: a verb of the command line fills one of the structs of [`schema`], and
//! one module a format turns it into a document: [`text`], [`html`] and [`markdown`] for people, [`json`], [`sarif`], [`junit`],
//! [`csv`] and [`npz`] for programs, [`figure`] for pictures. Rendering never changes a result, and nothing here computes a verdict: summaries are sums
//! over what the result already holds.
//!
//! Two rules shape the schema. It is *strict*: no NaN and no infinity is ever written, a number that does not exist is `null`
//! and a field beside it (`*_reason`) says why. And it is *byte-stable*: the same input gives the same bytes, so there is no time,
//! no host name and no duration in it.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod csv;
pub mod document;
pub mod figure;
pub mod heads;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod npz;
pub mod number;
pub mod records;
pub mod sarif;
pub mod schema;
pub mod study;
pub mod summary;
pub mod text;

mod compare;
mod convert;
mod convert_eval;
mod convert_probe;
mod convert_train;
mod findings;
mod paired;
mod sections;
mod whole;

pub use document::Document;
pub use number::Distance;
pub use schema::{
    AuditReport, EvalReport, HorizonReport, InspectReport, MeasureReport, PairReport, ProbeReport,
    SCHEMA_VERSION, TrainReport,
};
