//! Tests of the interfaces that are built on windows and messages: symmetric memory, remote calls, global arrays,
//! tagged messages, futures.

mod aggregate;
mod asynchronous;
mod calls;
#[path = "windows/checks/mod.rs"]
mod checks;
mod compile;
mod dist;
mod global_array;
mod symmetric;
mod tagged_messages;
