//! The repository's tasks.
fn main() {}
