//! Operations between datatypes: every synchronization and configuration, random datatypes compared with a byte-wise
//! model, counts, errors.

#[path = "../../../datatype/tests/common/mod.rs"]
mod common;
mod counts;
mod dynamic;
mod errors;
mod matrix;
mod random;
