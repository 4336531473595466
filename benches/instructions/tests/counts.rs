//! Upper bounds on the instructions of operations.

mod instructions;
mod mpi;
