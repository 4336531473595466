//! The accumulate operations against a reference, by absolute values.
#![allow(unsafe_code)]

mod concurrent;
mod misuse;
mod reference;
mod values;
