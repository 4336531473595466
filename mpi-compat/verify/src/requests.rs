#![allow(unsafe_code)]
//! Requests of collective calls: records are sent when the call starts, and received and compared when the program
//! waits or tests, so that starting a non-blocking call does not wait for other ranks. The build script makes the
//! exported functions that complete requests: those whose list has no checked request continue immediately, the others
//! call [`all`] or [`some`].

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::{compare_records, handler};
use crate::exchange::{Pending, Wait};
use crate::pmpi::{self, REQUEST_NULL, class};
use crate::say;
use crate::shadow::{self, Duplicate, Object};

/// The check of the collective call of a request.
#[derive(Debug)]
pub struct Check {
    pub name: String,
    pub object: Object,
    pub pending: Pending,
    /// If the call is `MPI_Comm_idup`: the address where its communicator is written, and the duplicate of the shadow.
    pub created_comm: Option<(usize, Option<Duplicate>)>,
    /// Whether the records have been compared.
    pub verified: bool,
}

impl Check {
    /// The call, its object, and this rank in it.
    fn of(&self) -> (String, Object, i64) {
        (self.name.clone(), self.object, self.pending.shadow.rank())
    }

    /// Compares the records, all of which have arrived.
    fn end(&mut self) -> Result<(), c_int> {
        self.verified = true;
        compare_records(&self.name, self.object, &self.pending).map(drop)
    }

    /// Stores the shadow of the communicator that a completed idup has created.
    fn keep(self) -> Result<(), c_int> {
        let Some((at, duplicate)) = self.created_comm else { return Ok(()) };
        let shadow = self.pending.shadow.completed(duplicate, &self.name)?;
        // SAFETY: the call has completed, and has written its communicator to the address that the program has passed.
        let comm = unsafe { *(at as *const usize) };
        shadow::keep(Object::Comm(comm), shadow);
        Ok(())
    }
}

type Checks = HashMap<usize, VecDeque<Check>>;
/// The checks of each request: calls that complete immediately may share one request.
static CHECKS: Mutex<Option<Checks>> = Mutex::new(None);

fn checks() -> MutexGuard<'static, Option<Checks>> {
    CHECKS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn add(request: usize, check: Check) {
    checks().get_or_insert_default().entry(request).or_default().push_back(check);
}

fn take(request: usize) -> Option<Check> {
    let mut all = checks();
    let all = all.as_mut()?;
    let queue = all.get_mut(&request)?;
    let check = queue.pop_front();
    if queue.is_empty() {
        all.remove(&request);
    }
    check
}

fn put_back(request: usize, check: Check) {
    checks().get_or_insert_default().entry(request).or_default().push_front(check);
}

/// Whether a request of a list has a check.
pub fn any(requests: &[usize]) -> bool {
    checks().as_ref().is_some_and(|all| !all.is_empty() && requests.iter().any(|request| all.contains_key(request)))
}

/// Whether the program may complete a request: all records have arrived and agree. An error is returned once.
fn ready(request: usize) -> Result<bool, c_int> {
    let Some(mut check) = take(request) else { return Ok(true) };
    if !check.verified {
        if !check.pending.progress()? {
            put_back(request, check);
            return Ok(false);
        }
        check.end()?;
    }
    if check.created_comm.is_some() {
        put_back(request, check);
    }
    Ok(true)
}

/// Reports the ranks for which the first unverified request of a list waits.
fn report(requests: &[usize], wait: &Wait) {
    let all = checks();
    let first = |request: &usize| all.as_ref()?.get(request)?.front().filter(|check| !check.verified);
    if let Some(check) = requests.iter().find_map(first) {
        check.pending.report(&check.name, wait);
    }
}

/// Ends the check of a request that has completed.
fn completed(request: usize) -> c_int {
    keep(take(request).into_iter().collect())
}

/// Waits for the records of the requests of a list, and compares them.
fn wait(requests: &[usize]) -> Result<Vec<Check>, c_int> {
    let mut kept = Vec::new();
    for request in requests {
        let Some(mut check) = take(*request) else { continue };
        if !check.verified {
            check.pending.finish(&check.name)?;
            check.end()?;
        }
        kept.push(check);
    }
    Ok(kept)
}

fn keep(kept: Vec<Check>) -> c_int {
    kept.into_iter().find_map(|check| check.keep().err()).unwrap_or(0)
}

fn first_error(a: c_int, b: impl FnOnce() -> c_int) -> c_int {
    if a == 0 { b() } else { a }
}

/// # Safety
/// `requests` is a list of `count`, or null.
pub unsafe fn list<'a>(count: c_int, requests: *mut usize) -> &'a mut [usize] {
    if requests.is_null() || count <= 0 {
        return &mut [];
    }
    // SAFETY: the contract of the caller.
    unsafe { std::slice::from_raw_parts_mut(requests, count as usize) }
}

/// Completes all requests of a list with `go`. If `flag` is null the program waits, and `go` is called when all records
/// have arrived; otherwise the program tests, and `go` is called unless records are missing.
///
/// # Safety
/// `flag` is null or can be written.
pub unsafe fn all(requests: &mut [usize], flag: *mut c_int, go: &mut dyn FnMut(*mut usize) -> c_int) -> c_int {
    let known = requests.to_vec();
    if flag.is_null() {
        return match wait(&known) {
            Ok(kept) => first_error(go(requests.as_mut_ptr()), || keep(kept)),
            Err(code) => code,
        };
    }
    // SAFETY: the contract of the caller, here and below.
    unsafe { *flag = 0 };
    for request in &known {
        match ready(*request) {
            Ok(true) => {}
            Ok(false) => return 0,
            Err(code) => return code,
        }
    }
    let code = go(requests.as_mut_ptr());
    // SAFETY: as above.
    let over = unsafe { *flag != 0 };
    first_error(code, || {
        known.iter().filter(|_| over).map(|request| completed(*request)).find(|code| *code != 0).unwrap_or(0)
    })
}

/// Completes requests of a list by `go`, a test of only those requests whose records have arrived, which writes to
/// `found` which or how many have completed. A waiting call returns when at least `least` requests have completed.
/// `none` is set to 0 if requests that `go` did not get may complete later.
///
/// # Safety
/// `found` and `none` can be read and written.
pub unsafe fn some(
    requests: &mut [usize],
    waits: bool,
    (found, least): (*mut c_int, c_int),
    none: *mut c_int,
    go: &mut dyn FnMut(*mut usize) -> c_int,
) -> c_int {
    let mut wait = Wait::new();
    loop {
        let mut shown = Vec::with_capacity(requests.len());
        for request in requests.iter() {
            match ready(*request) {
                Ok(ready) => shown.push(if ready { *request } else { REQUEST_NULL }),
                Err(code) => return code,
            }
        }
        let before = shown.clone();
        let mut code = go(shown.as_mut_ptr());
        for ((request, before), after) in requests.iter_mut().zip(&before).zip(&shown).filter(|((_, a), b)| a != b) {
            *request = *after;
            code = first_error(code, || completed(*before));
        }
        let active = requests.iter().any(|request| *request != REQUEST_NULL);
        // SAFETY: the contract of the caller.
        unsafe {
            if *found == pmpi::UNDEFINED && active {
                *none = 0;
            }
            if code != 0 || *found >= least || !waits || !active {
                return code;
            }
        }
        if wait.turn() {
            report(requests, &wait);
        }
    }
}

/// The request of a collective must be completed, and is not freed (MPI-5.0 section 6.12); libraries free it if its
/// operation has ended.
///
/// # Safety
/// The arguments are as the standard has them for `MPI_Request_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Request_free(request: *mut usize) -> c_int {
    // SAFETY: the contract of the caller, here and below.
    let handle = unsafe { request.as_ref() };
    let of = handle.and_then(|handle| checks().as_ref()?.get(handle)?.front().map(Check::of));
    let Some((name, object, rank)) = of else {
        // SAFETY: see above.
        return unsafe { pmpi::MPI_Request_free(request) };
    };
    say::report(
        "MPI_Request_free",
        rank,
        &format!("request is of {name}, a collective call, and must be completed, not freed"),
    );
    handler(Some(object), class::REQUEST)
}
