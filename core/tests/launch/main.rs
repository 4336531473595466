//! Starting and ending programs: `farside run`, and other launchers that speak PMI-1.

#![cfg(feature = "cli")]

mod ends;
mod output;
mod peers;
mod protocol;
mod tools;
