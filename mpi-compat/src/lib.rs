//! MPI over Farside: `libmpi_abi.so.1`, the C library of the MPI 5.0 standard ABI. Notes for its developers:
//!
//! **One table.** `table/functions.txt` has all functions with their prototypes, the module of each, and whether it is
//! implemented; `table/constants.txt` has the constants and predefined handles. When the crate is built,
//! `build/exports.rs` generates the exported functions, and `build/header.rs` generates `mpi.h` in
//! target/PROFILE/include. The support table of the README follows: `FARSIDE_WRITE=1 cargo test -p farside-mpi --test
//! table` writes it. To add a function, write it in its module in lower case (`MPI_Type_vector` is
//! `datatype::type_vector`) and change its mark to `+`, or to `*` if it may be called at any time: the compiler then
//! reports the arguments that it gets.
//!
//! **Floors**, each of which imports only from those before it (`ci/circles mpi-compat/src`, which `ci/rules` runs):
//!
//! | | |
//! |---|---|
//! | definitions of the ABI | `constants` (and types of handles), `handle`, `fail`, `errhandler`, `arguments` |
//! | objects | `objects`: the data that handles refer to, and the predefined objects |
//! | state and calls | `lock`, `waiting`, `runtime`: the process's state, `Call`, waits, `Operation` |
//! | errors | `errors`, `entry` |
//! | messages | `datatype`, `op`, `message`: buffers are checked, and peers become ranks of the job |
//! | requests | `request` |
//! | communication | `buffer`, `p2p`, `collective`, `rma`, `partitioned` |
//! | communicators and topologies | `comm`, `topology`, `session` |
//! | symbols | `exports` |
//!
//! **Arguments** (`arguments`). The int form and its `_c` twin call one function. `build/groups.rs` lists the
//! parameters that reach it as one argument: (address, count, type) as `Buffer`, blocks with several counts as
//! `Blocks`, (rank, tag, communicator) as `Peer`, (rank, displacement, count, type, window) as `Place`. These know the
//! names of their parameters, and are checked when they are used: `Address::check` refuses null, `MPI_IN_PLACE` and
//! `MPI_BUFFER_AUTOMATIC`, `Buffer::elements` refuses negative counts and types that are not committed, `Data::new` has
//! the memory of a message. Other counts are passed as `i64`, lists of them as `Longs`, and results as `LongOut`, both
//! of either width; a parameter that is `int` in both forms is a `c_int`. Pointers to one value are `Out` or `In` and
//! never null; lists (`List`, `ListOut`) are checked when they are read. `Call::large` says which form was called, for
//! the few functions that differ.
//!
//! **A call** (`entry::enter`) takes the lock, checks that MPI is running, runs the function, and passes a `Fail` to
//! the error handler of its first communicator, window, file or session, or that of `MPI_COMM_SELF` if it has none.
//! `Fail::on` names another object, as waits on requests do. `fail(class, text).named("argument")` or `.value(handle)`
//! names the argument at fault, and the text continues that name: "is -2", "contains 9, but the group has 4 members".
//! An error code is the class, and in its upper half the number of the message, which `MPI_Error_string` returns.
//!
//! **The usual case**. A function that `build/exports.rs` lists in `FAST_PATH` has two parts, and takes an
//! `entry::Usual`. The first part borrows its objects (`Objects::borrow_object`) and uses the `try_` methods of core
//! and windows, which do the usual case or nothing: valid arguments, predefined types, mapped memory, nothing to wait
//! for. The rest (`Usual::slow_path`) holds its objects, since it may wait, and has every check and every error. In the
//! thread to which the lock is biased, the first part runs by itself, before the call proper (`entry::try_fast`).
//!
//! **State** (`runtime::Runtime`) is one per process, behind one recursive lock (`lock`): error handlers, attribute
//! callbacks and operators call MPI. So all of the state is reached by shared references, and **no cell stays borrowed
//! while a function of the program runs**. Calls that wait let other threads in between two rounds of progress
//! (`waiting`); afterwards they may rely only on objects that they hold by an `Rc`.
//!
//! **Objects** (`handle`). `Runtime` has one `Objects<Handle, Object>` for each kind: `insert` returns a handle, `get`
//! an `Rc` or the error, and `release` frees the object. `share` returns the existing handle of an object, which must
//! then be freed once more (error handlers, contents of types).
//!
//! **Communicators** (`objects::CommObject`). A communicator has its group, the remote group of an intercommunicator,
//! two contexts (one for the program's messages and collectives, one for this library's messages) and a team, which for
//! an intercommunicator has both groups. `comm::split` makes a communicator from another one by one allgather
//! (`ControlExchange::gather`).
//!
//! **Collectives** (`collective`). A function prepares its call by `Caller` as a `Plan`: a `Prepared` call of the core,
//! and local work before its start and after its end. The team keeps a call without such work by its `Key`.
//! `exports.rs` calls the function of `MPI_X` for `MPI_IX` and `MPI_X_init` too, with another `Form`. A call that is
//! refused for its arguments has not been made, so that the program may make it again; one for which this rank has no
//! memory fails at the other ranks too (`Caller::prepared`).
//!
//! **Requests.** A request refers to an object of trait `runtime::Operation` in `Runtime::requests`, which wait, test,
//! cancel and free work on. A receive that is not persistent is in a table of its own (`objects::Receives`), from which
//! it is completed; it becomes an `Operation` if the program cancels it, frees it or reads its status. Calls that wait
//! use `Call::wait`, or `request::finish` for an operation without a request.
//!
//! **Files** are not implemented. They need an `Objects<File, ..>` in `Runtime` and a row in `conversion`.

#![allow(clippy::too_many_arguments)] // functions have the parameters of the standard's
#![allow(unreachable_pub)] // exports and constants are generated as public items

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the ABI is that of 64-bit systems");

mod abi;
mod arguments;
mod attributes;
mod buffer;
mod collective;
mod comm;
mod concurrent;
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
