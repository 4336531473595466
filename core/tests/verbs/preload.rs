//! The strict provider ([`strict`]) as a library to be preloaded under test programs.
#![allow(dead_code)]

mod strict;
