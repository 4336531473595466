#![allow(unsafe_code)]
//! The shadow of a communicator or window: a private duplicate, over which the ranks exchange their records. The
//! program's messages and collective calls do not use it: records are point-to-point messages, whose tag is the number
//! of the call.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::compare::GroupRank;
use crate::exchange::{SETTLE, Wait};
use crate::pmpi::{self, COMM_NULL};
use crate::say::report;

/// A communicator or a window of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Comm(usize),
    Win(usize),
}

/// The shadow of a communicator or window.
#[derive(Debug)]
pub struct Shadow {
    /// The duplicate: `MPI_COMM_NULL` if there is only one rank; it contains both groups if the program's communicator
    /// is an intercommunicator.
    pub comm: usize,
    pub me: usize,
    pub places: Vec<GroupRank>,
    pub inter: bool,
    pub next: AtomicI32,
    /// Records whose sends may not have completed.
    pub outbox: Mutex<Vec<(usize, Vec<u8>)>>,
    freed: AtomicBool,
    /// For a window: size and displacement unit of each rank.
    pub exposed: OnceLock<Vec<(i64, i64)>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static SHADOWS: Mutex<Option<HashMap<Object, Arc<Shadow>>>> = Mutex::new(None);

/// The shadow of a communicator or window, if it has one.
pub fn known(object: Object) -> Option<Arc<Shadow>> {
    lock(&SHADOWS).as_ref()?.get(&object).cloned()
}

/// The shadow of a window, or of a communicator, for which it is created if necessary.
pub fn of(object: Object, name: &str) -> Result<Option<Arc<Shadow>>, c_int> {
    match (known(object), object) {
        (Some(shadow), _) => Ok(Some(shadow)),
        (None, Object::Comm(comm)) => create(object, comm, None, name).map(Some),
        // The window was created while checks were disabled.
        (None, Object::Win(_)) => Ok(None),
    }
}

/// Creates the shadow of a new communicator or window. If there is a `parent` with the same ranks, its duplicate is
/// duplicated instead of the program's communicator, since duplicating the latter would run its attribute callbacks.
pub fn create(object: Object, comm: usize, parent: Option<&Shadow>, name: &str) -> Result<Arc<Shadow>, c_int> {
    let shadow = match parent {
        Some(parent) => {
            let mut copy = parent.alone();
            if parent.comm != COMM_NULL {
                copy.comm = wait_for(&start_duplicate(parent.comm)?, name, parent.places[parent.me].rank)?;
            }
            copy
        }
        None => Shadow::make(comm, name)?,
    };
    Ok(keep(object, shadow))
}

/// A duplicate in progress: its communicator and request.
pub type Duplicate = Box<(usize, usize)>;

fn start_duplicate(comm: usize) -> Result<Duplicate, c_int> {
    let mut pair = Box::new((COMM_NULL, pmpi::REQUEST_NULL));
    // SAFETY: both outputs are in the box, which lives until the request has completed.
    ok(unsafe { pmpi::MPI_Comm_idup(comm, &raw mut pair.0, &raw mut pair.1) })?;
    Ok(pair)
}

fn wait_for(pair: &Duplicate, name: &str, rank: i64) -> Result<usize, c_int> {
    let at = std::ptr::from_ref(&**pair).cast_mut();
    let mut wait = Wait::new();
    loop {
        let mut flag = 0;
        // SAFETY: the request is in the box, to which there is no other reference.
        ok(unsafe { pmpi::MPI_Test(&raw mut (*at).1, &raw mut flag, std::ptr::null_mut()) })?;
        if flag != 0 {
            let comm = pair.0;
            // SAFETY: the communicator belongs to the verifier. It returns errors instead of calling the program's
            // handler.
            ok(unsafe { pmpi::MPI_Comm_set_errhandler(comm, pmpi::ERRORS_RETURN) })?;
            return Ok(comm);
        }
        if wait.turn() {
            report(
                name,
                rank,
                &format!("waits for the first checked call of the other ranks on this communicator, {}", wait.time()),
            );
        }
    }
}

pub fn keep(object: Object, shadow: Shadow) -> Arc<Shadow> {
    let shadow = Arc::new(shadow);
    lock(&SHADOWS).get_or_insert_default().insert(object, Arc::clone(&shadow));
    shadow
}

/// Drops the shadow of a communicator or window that all its ranks free.
pub fn free(object: Object) {
    let Some(shadow) = lock(&SHADOWS).as_mut().and_then(|all| all.remove(&object)) else { return };
    shadow.drain();
    // Relaxed: read by `get_mut` in `drop`, which the reference count of the `Arc` orders after this store.
    shadow.freed.store(true, Ordering::Relaxed);
}

impl Drop for Shadow {
    /// The duplicate is freed after the last check of a call that was in progress when the program freed its
    /// communicator.
    fn drop(&mut self) {
        if *self.freed.get_mut() && self.comm != COMM_NULL {
            // SAFETY: the duplicate belongs to the verifier, and has no message in progress.
            unsafe { pmpi::MPI_Comm_free(&raw mut self.comm) };
        }
    }
}

/// Waits, before MPI ends, for the sends of all records.
pub fn finish() {
    let all: Vec<_> = lock(&SHADOWS).iter().flat_map(|all| all.values().cloned()).collect();
    all.iter().for_each(|shadow| shadow.drain());
    free(Object::Comm(pmpi::COMM_WORLD));
}

pub fn ok(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Shadow {
    fn alone(&self) -> Self {
        Self {
            comm: COMM_NULL,
            me: self.me,
            places: self.places.clone(),
            inter: self.inter,
            next: AtomicI32::new(0),
            outbox: Mutex::default(),
            freed: AtomicBool::new(false),
            exposed: OnceLock::new(),
        }
    }

    /// Starts the duplicate for a communicator that `MPI_Comm_idup` is creating.
    pub fn duplicate(&self) -> Result<Option<Duplicate>, c_int> {
        if self.comm == COMM_NULL { Ok(None) } else { start_duplicate(self.comm).map(Some) }
    }

    /// Waits for the duplicate that [`duplicate`](Self::duplicate) has started.
    pub fn completed(&self, pair: Option<Duplicate>, name: &str) -> Result<Self, c_int> {
        let mut copy = self.alone();
        if let Some(pair) = pair {
            copy.comm = wait_for(&pair, name, self.places[self.me].rank)?;
        }
        Ok(copy)
    }

    fn make(comm: usize, name: &str) -> Result<Self, c_int> {
        let (mut rank, mut size, mut inter) = (0, 0, 0);
        // SAFETY: each function writes one number.
        unsafe {
            ok(pmpi::MPI_Comm_rank(comm, &raw mut rank))?;
            ok(pmpi::MPI_Comm_size(comm, &raw mut size))?;
            ok(pmpi::MPI_Comm_test_inter(comm, &raw mut inter))?;
        }
        let mut shadow = Self {
            comm: COMM_NULL,
            me: rank as usize,
            places: (0..i64::from(size)).map(|rank| GroupRank { side: 0, rank }).collect(),
            inter: inter != 0,
            next: AtomicI32::new(0),
            outbox: Mutex::default(),
            freed: AtomicBool::new(false),
            exposed: OnceLock::new(),
        };
        if size > 1 || shadow.inter {
            shadow.comm = wait_for(&start_duplicate(comm)?, name, i64::from(rank))?;
        }
        if shadow.inter {
            shadow.merge(comm)?;
        }
        Ok(shadow)
    }

    /// Replaces the duplicate of an intercommunicator by a communicator of both groups. The library chooses which group
    /// comes first, the same on all ranks.
    fn merge(&mut self, comm: usize) -> Result<(), c_int> {
        let (mut both, mut group, mut local, mut remote) = (COMM_NULL, 0usize, 0usize, 0usize);
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the duplicate belongs to the verifier; the new handles are written to local variables and freed here.
        unsafe {
            ok(pmpi::MPI_Intercomm_merge(self.comm, 0, &raw mut both))?;
            ok(pmpi::MPI_Comm_free(&raw mut self.comm))?;
            ok(pmpi::MPI_Comm_set_errhandler(both, pmpi::ERRORS_RETURN))?;
            self.comm = both;
            ok(pmpi::MPI_Comm_rank(both, &raw mut rank))?;
            ok(pmpi::MPI_Comm_size(both, &raw mut size))?;
            ok(pmpi::MPI_Comm_group(both, &raw mut group))?;
            ok(pmpi::MPI_Comm_group(comm, &raw mut local))?;
            ok(pmpi::MPI_Comm_remote_group(comm, &raw mut remote))?;
        }
        let ranks: Vec<c_int> = (0..size).collect();
        let translated = |other: usize| -> Result<Vec<c_int>, c_int> {
            let mut out = vec![0; ranks.len()];
            // SAFETY: both lists have `size` numbers.
            ok(unsafe { pmpi::MPI_Group_translate_ranks(group, size, ranks.as_ptr(), other, out.as_mut_ptr()) })?;
            Ok(out)
        };
        let (here, there) = (translated(local)?, translated(remote)?);
        let first_is_here = here[0] != pmpi::UNDEFINED;
        let places = here.iter().zip(&there).map(|(here, there)| {
            let is_here = *here != pmpi::UNDEFINED;
            GroupRank {
                side: u8::from(is_here != first_is_here),
                rank: i64::from(if is_here { *here } else { *there }),
            }
        });
        self.places = places.collect();
        self.me = rank as usize;
        for mut group in [group, local, remote] {
            // SAFETY: the handles were created above.
            unsafe { pmpi::MPI_Group_free(&raw mut group) };
        }
        Ok(())
    }

    pub fn rank(&self) -> i64 {
        self.places[self.me].rank
    }

    /// The number of ranks with which this rank exchanges data.
    pub fn peers(&self) -> usize {
        let side = self.places[self.me].side;
        self.places.iter().filter(|place| !self.inter || place.side != side).count()
    }

    /// The number of ranks of this rank's group.
    pub fn size(&self) -> usize {
        let side = self.places[self.me].side;
        self.places.iter().filter(|place| place.side == side).count()
    }

    /// Drops records whose sends have completed.
    pub fn sweep(&self) {
        lock(&self.outbox).retain_mut(|(request, _)| {
            let mut flag = 0;
            // SAFETY: the request belongs to the verifier.
            unsafe { pmpi::MPI_Test(request, &raw mut flag, std::ptr::null_mut()) == 0 && flag == 0 }
        });
    }

    /// Waits for the sends of all records, which complete unless a rank has missed a call.
    fn drain(&self) {
        let mut wait = Wait::new();
        while !lock(&self.outbox).is_empty() && wait.since.elapsed() < SETTLE {
            self.sweep();
            wait.turn();
        }
        // The remaining sends never complete, so their bytes are leaked.
        std::mem::forget(std::mem::take(&mut *lock(&self.outbox)));
    }
}
