//! A guide for users of other libraries: pieces of their programs, each with its equivalent in Farside.
//!
//! The Farside programs run as shown, with ranks as threads. `Job::init()` instead of `Job::threads(..)`, and `farside
//! run -n 4 ./program`, run the ranks as processes.
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
//! | `shmem_put_signal`, `shmem_signal_wait_until` | [`put_notify`](crate::Symmetric::put_notify), [`put_notify_add`](crate::Symmetric::put_notify_add), [`wait_until`](crate::Flags::wait_until) |
//! | `shmem_wait_until_any`, `_some`, `_all` | [`wait_any`](crate::Flags::wait_any), [`wait_some`](crate::Flags::wait_some), [`wait_all`](crate::Flags::wait_all) |
//! | `shmem_quiet`, `shmem_fence`, `shmem_barrier` | `quiet`, `fence`, `barrier` |
//! | `shmem_ctx_create` | [`symmetric::Context`](crate::symmetric::Context) |
//! | `shmem_team_split_strided`, `shmem_team_split_2d` | [`subteam`](crate::Team::subteam), [`split`](crate::Team::split) |
//! | `SHMEM_TEAM_WORLD`, `SHMEM_TEAM_SHARED` | `job.world()?`, [`split_by_node`](crate::Team::split_by_node) |
//! | `shmem_team_my_pe`, `shmem_team_n_pes`, `shmem_team_translate_pe` | `rank`, `size`, [`job_rank`](crate::Team::job_rank) |
//! | `shmem_team_sync`, `shmem_team_destroy` | [`barrier`](crate::Team::barrier); a team is dropped |
//! | `shmem_set_lock`, `shmem_clear_lock` | [`LockWindow::lock`](crate::LockWindow::lock): the epoch is a closure, and the lock guards the memory of one rank |
//! | `shmem_test_lock` | `x.atomic(rank, 0)?.compare_exchange(0, 1)?.is_ok()` |
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
//! Symmetric memory and collectives belong to a team, and a lock to a window:
//!
//! ```c
//! shmem_team_t even;
//! shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, 2, NULL, 0, &even);
//! if (even != SHMEM_TEAM_INVALID) shmem_long_sum_reduce(even, sum, mine, 1);
//! shmem_set_lock(lock);
//! long before = shmem_long_g(counter, 0);
//! shmem_long_p(counter, before + 1, 0);
//! shmem_quiet();
//! shmem_clear_lock(lock);
//! ```
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(4, |job| {
//!     let world = job.world()?;
//!     if let Some(even) = world.subteam(&[0, 2])? {
//!         let mut sum = [world.rank() as i64];
//!         even.allreduce(&mut sum, Op::Sum)?;
//!         assert_eq!(sum, [2]);
//!     }
//!     let counter = LockWindow::<i64>::from_vec(&world, vec![0])?;
//!     counter.lock(LockKind::Exclusive, 0, Assert::empty(), |epoch| {
//!         let before = epoch.get_blocking(0, 0)?;
//!         epoch.put_value(before + 1, 0, 0)
//!     })?;
//!     world.barrier()?;
//!     assert_eq!(counter.into_vec()?, [if world.rank() == 0 { 4 } else { 0 }]);
//!     Ok(())
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
//! | a map of `dist_object<std::unordered_map>` | [`dist::Map`](crate::dist::Map) |
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
//! | `AtomicArray`, `batch_add`, `batch_load` | [`GlobalArray`](crate::GlobalArray): `accumulate_at`, `gather`, `scatter`; in blocks `aggregated`, `gather_aggregated` |
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
//! # From Chapel
//!
//! | Chapel | Farside |
//! |---|---|
//! | `numLocales`, `here.id` | `team.size()`, `team.rank()` |
//! | `blockDist`, `cyclicDist`, `blockCycDist` | [`GlobalArray::distributed`](crate::GlobalArray::distributed), [`global_array::Format`](crate::global_array::Format) |
//! | `A[i]`, `A[3..5, ..]` | [`get_element`](crate::GlobalArray::get_element); [`get`](crate::GlobalArray::get), [`put`](crate::GlobalArray::put) of a section |
//! | `forall a in A` | [`for_each`](crate::GlobalArray::for_each), [`map`](crate::GlobalArray::map): each rank takes its own elements |
//! | `+ reduce A` | [`reduce`](crate::GlobalArray::reduce) |
//! | `DistributedBag`, `DistributedMap` | [`dist::Queue`](crate::dist::Queue), [`dist::Map`](crate::dist::Map) |
//! | `+ scan A`, `sort(A)`, `shuffle(A)` | [`prefix`](crate::GlobalArray::prefix), [`sort`](crate::dist::Reorder::sort), [`shuffle`](crate::dist::Reorder::shuffle) |
//! | `A.localSubdomain()`, `A[i].locale` | [`owned`](crate::GlobalArray::owned), [`locate`](crate::GlobalArray::locate) |
//! | `A[i].fetchAdd(1)` of an array of atomics | [`fetch_and_op`](crate::GlobalArray::fetch_and_op) |
//! | `SrcAggregator`, `DstAggregator` | [`gather_aggregated`](crate::GlobalArray::gather_aggregated), [`aggregated`](crate::GlobalArray::aggregated) |
//! | `on Locales[r] do f(x)` | [`call`](crate::calls::Calls::call), and `wait` |
//! | `sync { begin on Locales[r] do f(x); }` | [`cast`](crate::calls::Calls::cast), [`quiesce`](crate::calls::Calls::quiesce) |
//!
//! ```text
//! use BlockDist;
//! const D = blockDist.createDomain({0..<8, 0..<6});
//! var A: [D] real;
//! forall (i, j) in D do A[i, j] = 10 * i + j;
//! const row = A[3, ..];
//! const total = + reduce A;
//! ```
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! Job::threads(4, |job| {
//!     let team = job.world()?;
//!     let array = GlobalArray::<f64, 2>::new(&team, [8, 6])?;
//!     array.for_each(|[i, j], element| *element = (10 * i + j) as f64)?;
//!     array.sync()?;
//!     let mut row = [0.0; 6];
//!     array.get((3..4, 0..6), &mut row)?;
//!     assert_eq!(row, [30.0, 31.0, 32.0, 33.0, 34.0, 35.0]);
//!     assert_eq!(array.reduce(Op::Sum)?, Some(1800.0));
//!     array.free()
//! })?;
//! # Ok::<(), farside_rma::Error>(())
//! ```
//!
//! # From bale
//!
//! | bale | Farside |
//! |---|---|
//! | `MYTHREAD`, `THREADS` | `team.rank()`, `team.size()` |
//! | `lgp_all_alloc`, `lgp_all_free` | [`GlobalArray::distributed`](crate::GlobalArray::distributed) with `Format::Cyclic(1)`, [`free`](crate::GlobalArray::free) |
//! | `lgp_local_part` | [`with_local`](crate::GlobalArray::with_local) |
//! | `lgp_get_int64`, `lgp_put_int64` | [`get_element`](crate::GlobalArray::get_element); [`gather`](crate::GlobalArray::gather), [`scatter`](crate::GlobalArray::scatter) for many |
//! | `lgp_atomic_add` | [`accumulate_at`](crate::GlobalArray::accumulate_at); [`aggregated`](crate::GlobalArray::aggregated) for many |
//! | `lgp_fetch_and_inc` | [`fetch_and_op`](crate::GlobalArray::fetch_and_op) |
//! | `lgp_barrier`, `lgp_reduce_add_l` | [`sync`](crate::GlobalArray::sync); `team.allreduce(&mut data, Op::Sum)?` |
//! | `convey_new`, `convey_free` | [`Conveyor::new`](crate::aggregate::Conveyor::new), [`free`](crate::aggregate::Conveyor::free) |
//! | `convey_push`, `convey_pull`, `convey_unpull`, `convey_advance` | [`push`](crate::aggregate::Conveyor::push), [`pull`](crate::aggregate::Conveyor::pull), [`unpull`](crate::aggregate::Conveyor::unpull), [`advance`](crate::aggregate::Conveyor::advance) |
//! | index-gather over two conveyors | [`gather_aggregated`](crate::GlobalArray::gather_aggregated) |
//!
//! ```c
//! convey_begin(conveyor, sizeof(int64_t), 0);
//! while (convey_advance(conveyor, i == n)) {
//!     for (; i < n; i++) {
//!         int64_t at = index[i] / THREADS;
//!         if (convey_push(conveyor, &at, index[i] % THREADS) != convey_OK) break;
//!     }
//!     while (convey_pull(conveyor, &item, NULL) == convey_OK) counts[item]++;
//! }
//! ```
//!
//! ```
//! use farside_rma::aggregate::Conveyor;
//! use farside_rma::prelude::*;
//!
//! Job::threads(3, |job| {
//!     let team = job.world()?;
//!     let mut conveyor = Conveyor::<usize>::new(&team)?;
//!     let (mut index, mut counts) = ((0..12).peekable(), [0u64; 4]);
//!     while conveyor.advance(index.peek().is_none())? {
//!         while let Some(&i) = index.peek()
//!             && conveyor.push(i % team.size(), i / team.size())?
//!         {
//!             index.next();
//!         }
//!         while let Some((_from, item)) = conveyor.pull()? {
//!             counts[item] += 1;
//!         }
//!     }
//!     assert_eq!(counts, [3; 4]);
//!     conveyor.free()
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
