//! Studies end to end, through the binary: run, killed, continued, refused, summed up.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod files;
mod interrupted;
mod needles;
mod records;
mod reported;
mod set;

#[path = "../support/mod.rs"]
mod support;
