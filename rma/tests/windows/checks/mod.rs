//! Checks of data: functions that compare the results of an operation with absolute values at every rank, and panic if
//! they differ. They run over every configuration, and over a device that damages an operation.

#![allow(dead_code)]

pub(crate) mod config;
pub(crate) mod operations;
pub(crate) mod ordering;
pub(crate) mod random;
pub(crate) mod requests;
pub(crate) mod selections;
pub(crate) mod sync;
pub(crate) mod values;

use config::Config;
use farside_rma::{Result, Team};

/// A check of one operation under one synchronization, which every rank runs.
pub(crate) type Check = fn(&Team, &Config) -> Result<()>;
