//! The constants of the ABI, made from `table/constants.txt`.
#![allow(missing_docs, dead_code)] // they are those of the standard, whole

use std::ffi::c_int;

use crate::arguments::Opaque;
use crate::handle::{Comm, Errhandler, File, Group, Info, Message, Op, Request, Session, Type, Win};

include!(concat!(env!("OUT_DIR"), "/constants.rs"));
