//! Starting and ending programs: `farside run`, and other launchers that speak PMI-1.

mod ends;
mod nodes;
mod odd;
mod options;
mod output;
mod peers;
mod routes;
mod tune;

/// The program that the tests start: every rank publishes a value and checks those of the others.
fn kvs() -> String {
    farside_harness::example("farside-launch", "kvs").to_str().unwrap().to_owned()
}
