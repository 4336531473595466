//! A guide for those who come from another library: a piece of their program, and ours.
//!
//! All of ours run as they stand here, with ranks as threads. `Job::init()` instead of `Job::threads(..)`, and
//! `farside run -n 4 ./program`, make the ranks processes.
//!
//! # From OpenSHMEM
//!
//! | OpenSHMEM | Farside |
//! |---|---|
//! | `shmem_malloc`, symmetric | [`Symmetric::allocate`](crate::Symmetric::allocate) |
//! | `shmem_put`, `shmem_get` | [`put`](crate::Symmetric::put), [`get`](crate::Symmetric::get); `put` is complete at the target on return |
//! | `shmem_put_nbi` | [`put_nbi`](crate::Symmetric::put_nbi): the buffer goes in and comes back |
//! | `shmem_iput` | [`put_strided`](crate::Symmetric::put_strided), [`put_indexed`](crate::Symmetric::put_indexed) |
//! | `shmem_atomic_fetch_add(&x, 1, pe)` | `x.atomic(rank, 0)?.fetch_add(1)?` |
//! | `shmem_put_signal`, `shmem_signal_wait_until` | [`put_notify`](crate::Symmetric::put_notify), [`wait_until`](crate::Flags::wait_until) |
//! | `shmem_quiet`, `shmem_fence`, `shmem_barrier` | `quiet`, `fence`, `barrier` |
//! | `shmem_ctx_create` | [`symmetric::Context`](crate::symmetric::Context) |
//!
//! ```c
//! long *x = shmem_calloc(8, sizeof(long));
//! uint64_t *flag = shmem_calloc(1, sizeof(uint64_t));
//! shmem_long_put_signal(x, mine, 8, flag, 1, SHMEM_SIGNAL_SET, right);
//! shmem_signal_wait_until(flag, SHMEM_CMP_GE, 1);
//! ```
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(4, |job| {
//!     let team = job.world()?;
//!     let (mine, right) = ([team.rank() as i64; 8], (team.rank() + 1) % team.size());
//!     let (x, flag) = (Symmetric::<i64>::allocate(&team, 8)?, Flags::allocate(&team, 1)?);
//!     x.put_notify(&mine, right, 0, &flag, 0, 1)?;
//!     flag.wait_until(0, ge(1))?;
//!     assert_eq!(x.local().load(7)?, (team.rank() as i64 + 3) % 4);
//!     flag.free()?;
//!     x.free()
//! })?;
//! # Ok::<(), farside_rma::Error>(())
//! ```
//!
//! # From MPI
//!
//! | MPI | Farside |
//! |---|---|
//! | `MPI_Win_allocate`, `MPI_Win_fence` | [`Window`](crate::Window), [`fence`](crate::Window::fence): the epoch is a closure |
//! | `MPI_Win_post`, `start`, `complete`, `wait` | [`expose`](crate::Window::expose), [`start`](crate::Window::start) |
//! | `MPI_Win_lock_all`, `MPI_Win_flush` | [`LockWindow::lock_all`](crate::LockWindow::lock_all), `epoch.flush(rank)` |
//! | `MPI_Rget`, `MPI_Wait` | `epoch.rget(buffer, rank, at)?.wait()?`, which returns the buffer |
//! | `MPI_Type_vector` | [`Selection::vector`](crate::Selection::vector), any [`datatype`](crate::datatype) |
//! | `MPI_Isend`, `MPI_Irecv` | [`overlap`](crate::Collectives::overlap); or [`send_nbi`](crate::Messages::send_nbi), [`recv_nbi`](crate::Messages::recv_nbi) with buffers of their own |
//! | `MPI_Allreduce` | `team.allreduce(&mut data, Op::Sum)?` |
//!
//! ```c
//! MPI_Win_lock_all(0, win);
//! MPI_Rget(buffer, 4, MPI_DOUBLE, peer, 0, 4, MPI_DOUBLE, win, &request);
//! MPI_Wait(&request, MPI_STATUS_IGNORE);
//! for (int i = 0; i < 4; i++) buffer[i] *= 2;
//! MPI_Put(buffer, 4, MPI_DOUBLE, peer, 4, 4, MPI_DOUBLE, win);
//! MPI_Win_unlock_all(win);
//! ```
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(2, |job| {
//!     let team = job.world()?;
//!     let (window, peer) = (LockWindow::<f64>::from_vec(&team, vec![1.5; 8])?, 1 - team.rank());
//!     let mut buffer = [0.0; 4];
//!     window.lock_all(Assert::default(), |epoch| {
//!         let buffer = epoch.rget(&mut buffer, peer, 0)?.wait()?;
//!         buffer.iter_mut().for_each(|x| *x *= 2.0);
//!         epoch.put(buffer, peer, 4)
//!     })?;
//!     team.barrier()?;
//!     assert_eq!(window.into_vec()?[4..], [3.0; 4]);
//!     Ok(())
//! })?;
//! # Ok::<(), farside_rma::Error>(())
//! ```
//!
//! # From UPC++
//!
//! | UPC++ | Farside |
//! |---|---|
//! | `rpc(rank, f, argument).wait()` | `calls.call(rank, f, argument).wait()?`, or `.await?` |
//! | `rpc_ff` | [`cast`](crate::calls::Calls::cast) |
//! | `view<T>` as an argument | [`call_with`](crate::calls::Calls::call_with) |
//! | `dist_object<T>`, `fetch` | [`calls::Dist`](crate::calls::Dist) |
//! | `rput`, `rget`, futures | [`put_nbi`](crate::Symmetric::put_nbi), [`get_nbi`](crate::Symmetric::get_nbi) |
//! | `atomic_domain` | [`atomic`](crate::Symmetric::atomic) |
//!
//! ```cpp
//! upcxx::dist_object<std::unordered_map<std::string, int>> map({});
//! auto insert = [](auto &map, std::string key, int value) { (*map)[key] = value; };
//! upcxx::rpc(owner, insert, map, "pi", 3).wait();
//! ```
//!
//! ```
//! use std::cell::RefCell;
//! use std::collections::HashMap;
//! use std::rc::Rc;
//!
//! use farside_rma::calls::Calls;
//! use farside_rma::prelude::*;
//!
//! Job::threads(3, |job| {
//!     let team = job.world()?;
//!     let calls = Calls::new(&team)?;
//!     let map = Rc::new(RefCell::new(HashMap::new()));
//!     let own = Rc::clone(&map);
//!     let insert = calls.register(move |_, (key, value): (String, i32)| own.borrow_mut().insert(key, value))?;
//!     if team.rank() == 0 {
//!         assert_eq!(calls.call(2, insert, ("pi".to_owned(), 3)).wait()?, None);
//!     }
//!     calls.quiesce()?;
//!     assert_eq!(map.borrow().len(), usize::from(team.rank() == 2));
//!     calls.free()
//! })?;
//! # Ok::<(), farside_rma::Error>(())
//! ```
//!
//! # From Lamellar
//!
//! | Lamellar | Farside |
//! |---|---|
//! | `LamellarWorldBuilder`, `world.team()` | [`Job`](crate::Job), [`Team`](crate::Team) |
//! | an active message, `exec_am_pe(pe, am)` | a function, `calls.call(rank, function, argument)` |
//! | `exec_am_all`, `wait_all` | [`call_all`](crate::calls::Calls::call_all), [`quiesce`](crate::calls::Calls::quiesce) |
//! | `AtomicArray`, `batch_add`, `batch_load` | [`GlobalArray`](crate::GlobalArray): `accumulate_at`, `gather`, `scatter` |
//! | `Distribution::Block`, `Cyclic` | [`global_array::Format`](crate::global_array::Format) |
//! | `SharedMemoryRegion`, unsafe put and get | [`Symmetric`](crate::Symmetric), safe |
//!
//! ```text
//! let array = AtomicArray::<usize>::new(&world, 1000, Distribution::Block).block();
//! array.batch_add(indices, 1).block();
//! array.barrier();
//! let counts = array.batch_load(indices).block();
//! ```
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(4, |job| {
//!     let team = job.world()?;
//!     let array = GlobalArray::<usize, 1>::new(&team, [1000])?;
//!     let indices: Vec<[usize; 1]> = (0..1000).step_by(7).map(|i| [i]).collect();
//!     array.accumulate_at(Op::Sum, &indices, &vec![1; indices.len()])?;
//!     array.sync()?;
//!     assert!(array.gather(&indices)?.into_iter().all(|count| count == 4));
//!     array.free()
//! })?;
//! # Ok::<(), farside_rma::Error>(())
//! ```
//!
//! # What a call costs
//!
//! The tables at the head of [`symmetric`](crate::symmetric), [`calls`](crate::calls), [`messages`](crate::messages),
//! [`global_array`](crate::global_array) and of [`raw::fence`](crate::raw::fence), [`raw::pscw`](crate::raw::pscw) and
//! [`raw::lock`](crate::raw::lock) give the messages of each call, where memory is mapped and where it is not. Tests assert
//! them.
