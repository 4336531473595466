//! Tests: short runs of the benchmarks, the commands in the documents, and the packages of the workspace.

mod datatype;
mod documents;
mod packages;
mod papers;
mod pgas;
mod suites;
