//! Checks of data: functions that compare the results of an operation with absolute values at every rank, and panic if
//! they differ. They run over every configuration, and over a device that damages an operation.

#![allow(dead_code)]

pub mod config;
pub mod operations;
pub mod ordering;
pub mod requests;
pub mod selections;
pub mod sync;
pub mod values;

use config::Config;
use farside_rma::{Result, Team};

/// A check of one operation under one synchronization, as one rank runs it.
pub type Check = fn(&Team, &Config) -> Result<()>;
