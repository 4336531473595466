//! Operations between layouts: every synchronization and configuration, random layouts beside a walk byte by byte,
//! counts, errors.

#[path = "../windows/checks/mod.rs"]
mod checks;
#[path = "../../../datatype/tests/common/mod.rs"]
mod common;
mod counts;
mod dynamic;
mod errors;
mod matrix;
mod random;
