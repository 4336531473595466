#![allow(unsafe_code)]
//! The private duplicate of each communicator, over which the ranks exchange their records. It has no part in the messages and
//! collective calls of the program: records are point-to-point messages, whose tag is the number of the call.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::compare::Place;
use crate::level;
use crate::pmpi::{self, BYTE, COMM_NULL, Status};

/// A communicator or a window of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Comm(usize),
    Win(usize),
}

/// Calls in flight at a time on one communicator; tags below [`pmpi`]'s least upper bound of 32767.
const CALLS: c_int = 8192;
/// After an error each rank waits so long for the others to have told it.
const SETTLE: Duration = Duration::from_secs(2);

/// A communicator's duplicate.
#[derive(Debug)]
pub struct Shadow {
    /// `MPI_COMM_NULL` of one rank. Of an intercommunicator it has both groups.
    comm: usize,
    pub me: usize,
    pub places: Vec<Place>,
    pub inter: bool,
    next: AtomicI32,
    /// Records that may not have left.
    outbox: Mutex<Vec<(usize, Vec<u8>)>>,
    freed: AtomicBool,
    /// Of a window: size and displacement unit of each rank.
    pub exposed: OnceLock<Vec<(i64, i64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static ALL: Mutex<Option<HashMap<Object, Arc<Shadow>>>> = Mutex::new(None);

/// The duplicate of a communicator or window, if there is one.
pub fn known(object: Object) -> Option<Arc<Shadow>> {
    lock(&ALL).as_ref()?.get(&object).cloned()
}

/// That of a communicator, which is made if there is none.
pub fn of(object: Object, name: &str) -> Result<Option<Arc<Shadow>>, c_int> {
    match (known(object), object) {
        (Some(shadow), _) => Ok(Some(shadow)),
        (None, Object::Comm(comm)) => born(object, comm, None, name).map(Some),
        // A window that was made while nothing was checked.
        (None, Object::Win(_)) => Ok(None),
    }
}

/// Keeps the duplicate of a new communicator or window. That of `parent`, which has the same ranks, is duplicated if there is one:
/// the program's may have attributes, whose functions are then called once more.
pub fn born(object: Object, comm: usize, parent: Option<&Shadow>, name: &str) -> Result<Arc<Shadow>, c_int> {
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

/// A duplicate on the way.
pub type Duplicate = Box<(usize, usize)>;

fn start_duplicate(comm: usize) -> Result<Duplicate, c_int> {
    let mut pair = Box::new((COMM_NULL, pmpi::REQUEST_NULL));
    // SAFETY: both places live until the request has completed, in the box.
    ok(unsafe { pmpi::MPI_Comm_idup(comm, &raw mut pair.0, &raw mut pair.1) })?;
    Ok(pair)
}

fn wait_for(pair: &Duplicate, name: &str, rank: i64) -> Result<usize, c_int> {
    let at = std::ptr::from_ref(&**pair).cast_mut();
    let mut wait = Wait::new();
    loop {
        let mut flag = 0;
        // SAFETY: the request is in the box; nobody else has it.
        ok(unsafe { pmpi::MPI_Test(&raw mut (*at).1, &raw mut flag, std::ptr::null_mut()) })?;
        if flag != 0 {
            let comm = pair.0;
            // SAFETY: it is a communicator of ours. Its errors are returned, not those of the program's handler.
            ok(unsafe { pmpi::MPI_Comm_set_errhandler(comm, pmpi::ERRORS_RETURN) })?;
            return Ok(comm);
        }
        if wait.turn() {
            tell(
                name,
                rank,
                &format!(
                    "has waited {} for the first checked call of the other ranks on this communicator",
                    wait.time()
                ),
            );
        }
    }
}

pub fn keep(object: Object, shadow: Shadow) -> Arc<Shadow> {
    let shadow = Arc::new(shadow);
    lock(&ALL).get_or_insert_default().insert(object, Arc::clone(&shadow));
    shadow
}

/// Forgets it, when the communicator or window is freed by all its ranks.
pub fn free(object: Object) {
    let Some(shadow) = lock(&ALL).as_mut().and_then(|all| all.remove(&object)) else { return };
    shadow.drain();
    shadow.freed.store(true, Ordering::Relaxed);
}

impl Drop for Shadow {
    /// The duplicate is freed after the last check of a call that was under way when the program freed its communicator.
    fn drop(&mut self) {
        if *self.freed.get_mut() && self.comm != COMM_NULL {
            // SAFETY: it is ours, and has no message under way.
            unsafe { pmpi::MPI_Comm_free(&raw mut self.comm) };
        }
    }
}

/// The end: what has not left leaves.
pub fn finish() {
    let all: Vec<_> = lock(&ALL).iter().flat_map(|all| all.values().cloned()).collect();
    all.iter().for_each(|shadow| shadow.drain());
    free(Object::Comm(pmpi::COMM_WORLD));
}

pub fn ok(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// A line of standard error about a rank.
pub fn tell(name: &str, rank: i64, text: &str) {
    write(&format!("VERIFY {}({rank}): {text}", name.to_uppercase()));
}

/// Lines of standard error, in one write, so that those of several ranks do not mix.
pub fn write(lines: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{lines}\n").as_bytes());
}

/// Waiting for others: looks first, then yields, then sleeps.
struct Wait {
    since: Instant,
    turns: u32,
    told: bool,
}

impl Wait {
    fn new() -> Self {
        Self { since: Instant::now(), turns: 0, told: false }
    }

    /// Whether it is time to say what this rank waits for, which is so once.
    fn turn(&mut self) -> bool {
        self.turns += 1;
        match self.turns {
            0..20 => {}
            20..200 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        let late = !self.told && self.since.elapsed() >= level::patience();
        self.told |= late;
        late
    }

    fn time(&self) -> String {
        format!("{} s", self.since.elapsed().as_secs())
    }
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

    /// The duplicate of the shadow for a communicator that `MPI_Comm_idup` makes meanwhile.
    pub fn duplicate(&self) -> Result<Option<Duplicate>, c_int> {
        if self.comm == COMM_NULL { Ok(None) } else { start_duplicate(self.comm).map(Some) }
    }

    /// What `duplicate` has begun.
    pub fn completed(&self, pair: Option<Duplicate>, name: &str) -> Result<Self, c_int> {
        let mut copy = self.alone();
        if let Some(pair) = pair {
            copy.comm = wait_for(&pair, name, self.places[self.me].rank)?;
        }
        Ok(copy)
    }

    fn make(comm: usize, name: &str) -> Result<Self, c_int> {
        let (mut rank, mut size, mut inter) = (0, 0, 0);
        // SAFETY: each writes one number.
        unsafe {
            ok(pmpi::MPI_Comm_rank(comm, &raw mut rank))?;
            ok(pmpi::MPI_Comm_size(comm, &raw mut size))?;
            ok(pmpi::MPI_Comm_test_inter(comm, &raw mut inter))?;
        }
        let mut shadow = Self {
            comm: COMM_NULL,
            me: rank as usize,
            places: (0..i64::from(size)).map(|rank| Place { side: 0, rank }).collect(),
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

    /// Both groups of an intercommunicator in one communicator. Which one comes first is the library's choice, the same on all
    /// ranks.
    fn merge(&mut self, comm: usize) -> Result<(), c_int> {
        let (mut both, mut group, mut local, mut remote) = (COMM_NULL, 0usize, 0usize, 0usize);
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the duplicate is ours; what is made is written to places of this function, and freed here.
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
            Place { side: u8::from(is_here != first_is_here), rank: i64::from(if is_here { *here } else { *there }) }
        });
        self.places = places.collect();
        self.me = rank as usize;
        for mut group in [group, local, remote] {
            // SAFETY: they were made above.
            unsafe { pmpi::MPI_Group_free(&raw mut group) };
        }
        Ok(())
    }

    pub fn rank(&self) -> i64 {
        self.places[self.me].rank
    }

    /// Ranks that data goes to and comes from.
    pub fn peers(&self) -> usize {
        let side = self.places[self.me].side;
        self.places.iter().filter(|place| !self.inter || place.side != side).count()
    }

    /// Ranks of the own group.
    pub fn size(&self) -> usize {
        let side = self.places[self.me].side;
        self.places.iter().filter(|place| place.side == side).count()
    }

    /// Sends a record to all ranks, or to some, whose records are then awaited; `tag` is the number of the call otherwise.
    pub fn start(self: &Arc<Self>, bytes: Vec<u8>, with: Option<(Vec<usize>, c_int)>) -> Result<Pending, c_int> {
        let (ranks, tag) = match with {
            Some((ranks, tag)) => (ranks, 2 * CALLS + tag.rem_euclid(CALLS)),
            None => ((0..self.places.len()).collect(), self.next.fetch_add(1, Ordering::Relaxed).rem_euclid(CALLS)),
        };
        self.exchange(bytes, ranks, tag)
    }

    fn exchange(self: &Arc<Self>, bytes: Vec<u8>, ranks: Vec<usize>, tag: c_int) -> Result<Pending, c_int> {
        self.sweep();
        let mut outbox = lock(&self.outbox);
        for peer in ranks.iter().filter(|peer| **peer != self.me) {
            let mut request = pmpi::REQUEST_NULL;
            let copy = bytes.clone();
            // SAFETY: the bytes stay in the outbox until the request has completed.
            ok(unsafe {
                pmpi::MPI_Isend(
                    copy.as_ptr().cast(),
                    copy.len() as c_int,
                    BYTE,
                    *peer as c_int,
                    tag,
                    self.comm,
                    &raw mut request,
                )
            })?;
            outbox.push((request, copy));
        }
        drop(outbox);
        let mut got = vec![None; self.places.len()];
        got[self.me] = Some(bytes);
        Ok(Pending { shadow: Arc::clone(self), tag, ranks, got })
    }

    /// Forgets records that have left.
    fn sweep(&self) {
        lock(&self.outbox).retain_mut(|(request, _)| {
            let mut flag = 0;
            // SAFETY: the request is ours.
            unsafe { pmpi::MPI_Test(request, &raw mut flag, std::ptr::null_mut()) == 0 && flag == 0 }
        });
    }

    /// Waits until all records have left, which they do unless a rank has missed a call.
    fn drain(&self) {
        let mut wait = Wait::new();
        while !lock(&self.outbox).is_empty() && wait.since.elapsed() < SETTLE {
            self.sweep();
            wait.turn();
        }
        // What has not left never does; its bytes must stay.
        std::mem::forget(std::mem::take(&mut *lock(&self.outbox)));
    }
}

/// The exchange of records for one call.
#[derive(Debug)]
pub struct Pending {
    pub shadow: Arc<Shadow>,
    tag: c_int,
    ranks: Vec<usize>,
    /// By rank.
    pub got: Vec<Option<Vec<u8>>>,
}

impl Pending {
    /// The number of the call on its communicator, from 1; it begins again after many.
    pub fn number(&self) -> c_int {
        self.tag % CALLS + 1
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        self.ranks.iter().copied().filter(|rank| self.got[*rank].is_none())
    }

    /// Takes what has come; whether that is all.
    pub fn progress(&mut self) -> Result<bool, c_int> {
        while self.missing().next().is_some() {
            let (mut flag, mut message, mut status) = (0, pmpi::MESSAGE_NULL, Status::default());
            // SAFETY: each is written where it lies, and the bytes are as many as the message has.
            unsafe {
                let comm = self.shadow.comm;
                ok(pmpi::MPI_Improbe(
                    pmpi::ANY_SOURCE,
                    self.tag,
                    comm,
                    &raw mut flag,
                    &raw mut message,
                    &raw mut status,
                ))?;
                if flag == 0 {
                    return Ok(false);
                }
                let mut count = 0;
                ok(pmpi::MPI_Get_count(&raw const status, BYTE, &raw mut count))?;
                let mut bytes = vec![0u8; count.max(0) as usize];
                let source = status.source as usize;
                ok(pmpi::MPI_Mrecv(bytes.as_mut_ptr().cast(), count, BYTE, &raw mut message, &raw mut status))?;
                if let Some(place) = self.got.get_mut(source) {
                    *place = Some(bytes);
                }
            }
        }
        Ok(true)
    }

    /// Waits for all, and says once what it waits for if that takes long.
    pub fn finish(&mut self, name: &str) -> Result<(), c_int> {
        let mut wait = Wait::new();
        while !self.progress()? {
            if wait.turn() {
                let shadow = &self.shadow;
                let side = shadow.places[shadow.me].side;
                let ranks = self.missing().take(8).map(|at| {
                    let place = shadow.places[at];
                    format!("{}{}", place.rank, if place.side == side { "" } else { " of the other group" })
                });
                let ranks: Vec<_> = ranks.collect();
                let more = self.missing().count() - ranks.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                tell(
                    name,
                    shadow.rank(),
                    &format!("has waited {} for the call of {}{more}", wait.time(), ranks.join(", ")),
                );
            }
        }
        Ok(())
    }

    /// After an error: waits until the others know of it and have told it, or for a moment.
    pub fn settle(&self) {
        let Ok(mut others) = self.shadow.exchange(Vec::new(), self.ranks.clone(), self.tag + CALLS) else { return };
        let mut wait = Wait::new();
        while others.progress() == Ok(false) && wait.since.elapsed() < SETTLE {
            wait.turn();
        }
    }
}
