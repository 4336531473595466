//! Short runs of the benchmarks, the commands of the documents, the packages.

mod datatype;
mod documents;
mod packages;
mod pgas;
mod suites;
