//! The `snellen` command.
fn main() {}
