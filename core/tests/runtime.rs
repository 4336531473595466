//! Tests of jobs above the device: start, messages, collectives, lost ranks, simulations.

mod active_messages;
mod both_copy;
mod calibration;
mod collectives;
mod liveness;
mod many_teams;
mod messages;
mod pmi1;
mod pmi2;
mod sim;
mod two_sided;
