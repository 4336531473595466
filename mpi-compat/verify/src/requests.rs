#![allow(unsafe_code)]
//! Requests of collective calls, whose checks are compared when they complete: records are sent when the call starts, and taken
//! when the program waits or tests, so that a non-blocking call waits for nobody.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::verdict;
use crate::exchange::{Pending, Wait};
use crate::pmpi::{self, REQUEST_NULL, Status};
use crate::shadow::{self, Duplicate, Object};

/// The check of a request.
#[derive(Debug)]
pub struct Check {
    pub name: String,
    pub object: Object,
    pub pending: Pending,
    /// Of `MPI_Comm_idup`: where its communicator is written, and the duplicate of the shadow.
    pub newborn: Option<(usize, Option<Duplicate>)>,
    /// Whether the records have been compared.
    pub verified: bool,
}

impl Check {
    /// After all records have come. The communicator of an idup has its shadow when its call has completed, see `keep`.
    fn end(&mut self) -> Result<(), c_int> {
        self.verified = true;
        verdict(&self.name, self.object, &self.pending).map(drop)
    }

    fn keep(self) -> Result<(), c_int> {
        let Some((at, duplicate)) = self.newborn else { return Ok(()) };
        let shadow = self.pending.shadow.completed(duplicate, &self.name)?;
        // SAFETY: the call has completed, and has written its communicator where the program said.
        let comm = unsafe { *(at as *const usize) };
        shadow::keep(Object::Comm(comm), shadow);
        Ok(())
    }
}

type Checks = HashMap<usize, VecDeque<Check>>;
/// By request. A library may give calls that have completed at once one request.
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

fn any(requests: &[usize]) -> bool {
    checks().as_ref().is_some_and(|all| !all.is_empty() && requests.iter().any(|request| all.contains_key(request)))
}

/// Whether the program may complete a request: all records have come, and agree. An error is returned once.
fn ready(request: usize) -> Result<bool, c_int> {
    let Some(mut check) = take(request) else { return Ok(true) };
    if !check.verified {
        if !check.pending.progress()? {
            put_back(request, check);
            return Ok(false);
        }
        check.end()?;
    }
    if check.newborn.is_some() {
        put_back(request, check);
    }
    Ok(true)
}

/// Reports the ranks that the first of some requests waits for.
fn report(requests: &[usize], wait: &Wait) {
    let all = checks();
    let first = |request: &usize| all.as_ref()?.get(request)?.front().filter(|check| !check.verified);
    if let Some(check) = requests.iter().find_map(first) {
        check.pending.report(&check.name, wait);
    }
}

/// After a request has completed.
fn completed(request: usize) -> c_int {
    keep(take(request).into_iter().collect())
}

/// Waits for the checks of requests that are waited for.
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
/// The arguments are as the standard has them for `MPI_Wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Wait(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: the arguments are those of this call, here and below.
    unsafe {
        let go = || pmpi::MPI_Wait(request, status);
        if request.is_null() || !any(&[*request]) {
            return go();
        }
        match wait(&[*request]) {
            Ok(kept) => first_error(go(), || keep(kept)),
            Err(code) => code,
        }
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Waitall`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitall(count: c_int, requests: *mut usize, statuses: *mut Status) -> c_int {
    // SAFETY: as above.
    unsafe {
        let go = || pmpi::MPI_Waitall(count, requests, statuses);
        let list = list(count, requests);
        if !any(list) {
            return go();
        }
        match wait(list) {
            Ok(kept) => first_error(go(), || keep(kept)),
            Err(code) => code,
        }
    }
}

/// # Safety
/// `requests` is a list of `count`, or null.
unsafe fn list<'a>(count: c_int, requests: *const usize) -> &'a [usize] {
    if requests.is_null() || count <= 0 {
        return &[];
    }
    // SAFETY: the program gives so many.
    unsafe { std::slice::from_raw_parts(requests, count as usize) }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Test`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Test(request: *mut usize, flag: *mut c_int, status: *mut Status) -> c_int {
    // SAFETY: as above.
    unsafe {
        if request.is_null() || flag.is_null() || !any(&[*request]) {
            return pmpi::MPI_Test(request, flag, status);
        }
        let known = *request;
        *flag = 0;
        match ready(known) {
            Ok(false) => 0,
            Ok(true) => {
                first_error(pmpi::MPI_Test(request, flag, status), || if *flag != 0 { completed(known) } else { 0 })
            }
            Err(code) => code,
        }
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Testall`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Testall(
    count: c_int,
    requests: *mut usize,
    flag: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let list = list(count, requests);
        if !any(list) || flag.is_null() {
            return pmpi::MPI_Testall(count, requests, flag, statuses);
        }
        *flag = 0;
        let known = list.to_vec();
        for request in &known {
            match ready(*request) {
                Ok(true) => {}
                Ok(false) => return 0,
                Err(code) => return code,
            }
        }
        first_error(pmpi::MPI_Testall(count, requests, flag, statuses), || {
            if *flag == 0 {
                0
            } else {
                known.iter().map(|request| completed(*request)).find(|code| *code != 0).unwrap_or(0)
            }
        })
    }
}

/// Completes some of a list: `go` is shown only those whose records have come. `done` is whether it has found some; if the program
/// waits for one it is called until it has.
fn some(
    requests: &mut [usize],
    waits: bool,
    go: &mut dyn FnMut(&mut [usize]) -> c_int,
    done: &mut dyn FnMut() -> bool,
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
        let mut code = go(&mut shown);
        for ((request, before), after) in requests.iter_mut().zip(&before).zip(&shown).filter(|((_, a), b)| a != b) {
            *request = *after;
            code = first_error(code, || completed(*before));
        }
        let active = requests.iter().any(|request| *request != REQUEST_NULL);
        if code != 0 || done() || !waits || !active {
            return code;
        }
        if wait.turn() {
            report(requests, &wait);
        }
    }
}

/// # Safety
/// `requests` is a list of `count`, or null.
unsafe fn list_mut<'a>(count: c_int, requests: *mut usize) -> &'a mut [usize] {
    if requests.is_null() || count <= 0 {
        return &mut [];
    }
    // SAFETY: the program gives so many.
    unsafe { std::slice::from_raw_parts_mut(requests, count as usize) }
}

/// Whether no active request was among those shown, and others of the list may complete later.
fn may_come(found: c_int, requests: &[usize]) -> bool {
    found == pmpi::UNDEFINED && requests.iter().any(|request| *request != REQUEST_NULL)
}

unsafe fn testany(
    count: c_int,
    requests: *mut usize,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
    blocks: bool,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let code = some(
            list_mut(count, requests),
            blocks,
            &mut |shown| pmpi::MPI_Testany(count, shown.as_mut_ptr(), index, flag, status),
            &mut || *flag != 0 && *index != pmpi::UNDEFINED,
        );
        if may_come(*index, list(count, requests)) {
            *flag = 0;
        }
        code
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Testany`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Testany(
    count: c_int,
    requests: *mut usize,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !any(list(count, requests)) {
            return pmpi::MPI_Testany(count, requests, index, flag, status);
        }
        testany(count, requests, index, flag, status, false)
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Waitany`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitany(
    count: c_int,
    requests: *mut usize,
    index: *mut c_int,
    status: *mut Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !any(list(count, requests)) {
            return pmpi::MPI_Waitany(count, requests, index, status);
        }
        let mut flag = 0;
        testany(count, requests, index, &raw mut flag, status, true)
    }
}

unsafe fn testsome(
    count: c_int,
    requests: *mut usize,
    n: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
    blocks: bool,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let code = some(
            list_mut(count, requests),
            blocks,
            &mut |shown| pmpi::MPI_Testsome(count, shown.as_mut_ptr(), n, indices, statuses),
            &mut || *n > 0,
        );
        if may_come(*n, list(count, requests)) {
            *n = 0;
        }
        code
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Testsome`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Testsome(
    count: c_int,
    requests: *mut usize,
    n: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !any(list(count, requests)) {
            return pmpi::MPI_Testsome(count, requests, n, indices, statuses);
        }
        testsome(count, requests, n, indices, statuses, false)
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Waitsome`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitsome(
    count: c_int,
    requests: *mut usize,
    n: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !any(list(count, requests)) {
            return pmpi::MPI_Waitsome(count, requests, n, indices, statuses);
        }
        testsome(count, requests, n, indices, statuses, true)
    }
}
