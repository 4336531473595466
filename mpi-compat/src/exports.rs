//! The symbols of the library, generated from `table/functions.txt`: `MPI_X` and `PMPI_X` are two strong symbols of one
//! body, so that a preloaded tool that defines `MPI_X` sees every call and finds `PMPI_X`.
#![allow(unsafe_code)]
#![allow(missing_docs, clippy::missing_safety_doc, clippy::redundant_closure, non_snake_case)] // as the standard has it

use std::ffi::{c_char, c_int, c_void};

#[allow(clippy::wildcard_imports)] // as many of them as the functions that are there need
use crate::arguments::*;
use crate::entry::{Usual, When, enter, enter_unless, not_yet, try_fast};
use crate::errors::On;
use crate::handle::{Comm, Errhandler, File, Group, Info, Message, Op, Request, Session, Type, Win};
#[allow(clippy::wildcard_imports)] // as above
use crate::operands::*;
use crate::status::Status;

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
