//! MPI over Farside: `libmpi_abi.so.1`, the C library of the MPI 5.0 standard ABI. For those who work on it:
//!
//! **One table.** `table/functions.txt` has all functions with their prototypes, the module of each, and whether it is
//! there; `table/constants.txt` the constants and predefined handles. `build/exports.rs` makes the exported functions of them
//! when the crate is built, `build/header.rs` `mpi.h` and the support table of the README, which `tests/table.rs` compares
//! (`FARSIDE_WRITE=1 cargo test -p farside-mpi --test table` writes them). To add a function, write it in its module in
//! lower case (`MPI_Type_vector` is `datatype::type_vector`) and change its mark to `+`, or `*` if it may be called at any
//! time: the compiler then says which arguments it gets.
//!
//! **Floors**, each of which imports only from those before it (`ci/circles mpi-compat/src`, which `ci/rules` runs):
//!
//! | | |
//! |---|---|
//! | what the ABI says | `constants` (and types of handles), `handle`, `fail`, `errhandler`, `arguments` |
//! | objects | `objects`: what stands behind handles, as data, and the predefined ones |
//! | state and calls | `lock`, `waiting`, `runtime`: the process's state, `Call`, waits, `Operation` |
//! | errors | `errors`, `entry` |
//! | messages | `datatype`, `op`, `message`: buffers checked, peers made ranks of the job |
//! | requests | `request` |
//! | communication | `buffer`, `p2p`, `collective`, `rma`, `partitioned` |
//! | what is agreed on | `comm`, `topology`, `session` |
//! | symbols | `exports` |
//!
//! **Arguments** (`arguments`). The int form and its `_c` twin call one function. `build/groups.rs` says which parameters reach
//! it as one argument: (address, count, type) as `Buffer`, blocks of several counts as `Blocks`, (rank, tag, communicator) as
//! `Peer`, (rank, displacement, count, type, window) as `Place`. They know the names of their parameters, and are checked when
//! they are used: `Address::check` refuses null, `MPI_IN_PLACE` and `MPI_BUFFER_AUTOMATIC`, `Buffer::elements` negative counts
//! and types that are not committed, `Data::new` has the memory of a message. Other counts come as `i64`, lists of them as
//! `Longs`, results as `LongOut`, both of either width; what is `int` in both forms as `c_int`. Pointers to one value are
//! `Out` or `In` and never null; lists (`List`, `ListOut`) are checked when they are read. `Call::large` says which form was
//! called, for the few that differ.
//!
//! **A call** (`entry::enter`) takes the lock, looks whether MPI runs, runs the function, and hands a `Fail` to the error
//! handler of its first communicator, window, file or session, else of `MPI_COMM_SELF`. `Fail::on` names another object,
//! as waits on requests do. `fail(class, text).named("argument")` or `.value(handle)` says what is to blame; text
//! continues the name: "is -2", "has 9, and the group 4 members". An error code is the class, and above it the number of
//! the message, so that `MPI_Error_string` has it.
//!
//! **State** (`runtime::Runtime`) is the process's. It is behind one lock (`lock`) that its owner takes again,
//! since error handlers, attribute callbacks and operators call MPI: so all of it is reached by shared references, and
//! **no cell stays borrowed while a function of the program runs**. Calls that wait let other threads in between two turns
//! (`waiting`); what they know about objects afterwards is what they hold by an `Rc`.
//!
//! **Objects** (`handle`). One `Objects<Handle, Object>` for each kind, in `Runtime`: `insert` gives a handle, `get` an `Rc` or
//! the error, `release` frees. `share` gives an object its old handle again, once more to be freed (error handlers,
//! contents of types).
//!
//! **Communicators** (`objects::CommObject`). One has its group, the remote group of an intercommunicator, two contexts (of the
//! program's messages and the collectives; of messages of this library) and a team, which of an intercommunicator has both
//! groups. `comm::split` makes one of another one, by one allgather (`ControlExchange::gather`).
//!
//! **Collectives** (`collective`). A function describes its call to `Caller` by a `Plan`: operation, buffers, and steps on this rank
//! before it starts and after it has ended. `exports.rs` calls the function of `MPI_X` for `MPI_IX` and `MPI_X_init` too, with
//! another `Form`. What fails before the call starts fails at the other ranks too (`Caller::checked`).
//!
//! **Requests.** `runtime::Operation` is what a request stands for; an object of it goes into `Runtime::requests`, and wait,
//! test, cancel and free work on it. Calls that wait use `Call::wait`, or `request::finish` for an operation without a request.
//!
//! **Files**, which do not exist yet, need an `Objects<File, ..>` in `Runtime` and their row in `conversion`.

#![allow(clippy::too_many_arguments)] // functions have the parameters of the standard's

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the ABI is that of 64-bit systems");

mod abi;
mod arguments;
mod attributes;
mod buffer;
mod collective;
mod comm;
mod constants;
mod conversion;
mod datatype;
mod entry;
mod environment;
mod errhandler;
mod errors;
mod exports;
mod fail;
mod group;
mod handle;
mod info;
mod lock;
mod message;
mod objects;
mod op;
mod operands;
mod p2p;
mod pack;
mod partitioned;
mod request;
mod rma;
mod runtime;
mod session;
mod status;
mod tool;
mod topology;
mod waiting;
