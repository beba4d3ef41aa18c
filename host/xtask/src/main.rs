//! All automation of the workspace.
fn main() {}
