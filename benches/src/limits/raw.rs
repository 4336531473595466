//! The measurements of the floors: with threads and processes on chosen cores, with shared memory, and with libc's
//! copy.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::ptr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};

use crate::cores::{Pinned, allowed, bind, bind_to_nth};
use crate::lines::{Pattern, Side};
use crate::pages::Pages;

/// The time limit for a reaction of the other thread.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The duration of a block of the other measurements.
const BLOCK: Duration = Duration::from_millis(1);

/// Microseconds of a pattern of lines between two threads on the first two allowed cores, block by block.
pub(super) fn between_cores(pattern: Pattern, times: u64, blocks: usize) -> Result<Vec<f64>> {
    const OP: &str = "pass a cache line between cores";
    let cores = allowed();
    if cores.len() < 2 {
        let error = Error::new(ErrorKind::Limit, OP).cause("two cores are needed, but this process may use only one");
        return Err(error.remedy("allow this process a second core"));
    }
    let page = Pages::shared(4096)?;
    let [first, second] = pattern.words().map(|at| page.word(at));
    let start = Instant::now();
    let check = || {
        let error = || Error::new(ErrorKind::Timeout, OP).cause("timed out waiting for the peer process");
        if start.elapsed() > TIMEOUT { Err(error()) } else { Ok(()) }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            bind_to_nth(1)?;
            let (ours, theirs, last) = (second, first, &Cell::new(0));
            let side = Side { ours, theirs, begins: false, last, work: 0, check: &check };
            side.pass(pattern, times * (blocks as u64 + 1))
        });
        let _pinned = Pinned::to(cores[0])?;
        let (ours, theirs, last) = (first, second, &Cell::new(0));
        let side = Side { ours, theirs, begins: true, last, work: 0, check: &check };
        let block = || -> Result<f64> {
            let start = Instant::now();
            side.pass(pattern, times)?;
            Ok(start.elapsed().as_secs_f64() * 1e6 / times as f64)
        };
        block()?; // the start of the other thread, and the warm-up
        let us = (0..blocks).map(|_| block()).collect();
        other.join().map_err(|_| Error::new(ErrorKind::Aborted, OP))??;
        us
    })
}

/// A process that only yields its core. Killed and reaped when dropped.
struct Yielding(libc::pid_t);

impl Yielding {
    fn start(core: usize) -> Result<Self> {
        // SAFETY: the new process makes system calls only, which is allowed after a fork of a process with several
        // threads, and never returns from here.
        match unsafe { (libc::getpid(), libc::fork()) } {
            // SAFETY: system calls without memory of this process; the kernel ends the new process with the thread that
            // started it, also if that thread ended before the request.
            (parent, 0) => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
                while libc::getppid() == parent && bind(core) {
                    (0..1000).for_each(|_| _ = libc::sched_yield());
                }
                libc::_exit(0)
            },
            (_, pid) if pid > 0 => Ok(Self(pid)),
            _ => Err(Error::last_os("start a process that shares a core")),
        }
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        let interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        // SAFETY: the process is a child that is not reaped yet, so its number cannot belong to another process.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, ptr::null_mut(), 0) < 0 && interrupted() {}
        }
    }
}

/// The time in microseconds that a process waits for its next turn if `processes` processes share a core and all yield
/// it, block by block.
pub(super) fn yield_turn(processes: usize, turns: u64, blocks: usize) -> Result<Vec<f64>> {
    let core = allowed().into_iter().next().ok_or_else(|| {
        Error::new(ErrorKind::Limit, "take turns on a core").cause("this process may not use any core")
    })?;
    let _pinned = Pinned::to(core)?;
    let _others = (1..processes).map(|_| Yielding::start(core)).collect::<Result<Vec<_>>>()?;
    let block = |_| {
        let start = Instant::now();
        (0..turns).for_each(|_| thread::yield_now());
        start.elapsed().as_secs_f64() * 1e6 / turns as f64
    };
    block(0); // until all have started
    Ok((0..blocks).map(block).collect())
}

/// Times blocks of calls of `run`, after finding the number of calls in a block. Returns the number of all calls and
/// the microseconds per call of each block.
fn blocks_of(blocks: usize, mut run: impl FnMut()) -> (u64, Vec<f64>) {
    let mut time = |calls: u64| {
        let start = Instant::now();
        for _ in 0..calls {
            run();
        }
        start.elapsed()
    };
    let mut calls = 1;
    while time(calls) < BLOCK && calls < 1 << 30 {
        calls *= 2;
    }
    let times = (0..blocks).map(|_| time(calls).as_secs_f64() * 1e6 / calls as f64).collect();
    (calls * blocks as u64, times)
}

/// An addition to a word in shared memory.
pub(super) fn atomic(blocks: usize) -> Result<(u64, Vec<f64>)> {
    let page = Pages::shared(4096)?;
    let word = page.word(0);
    Ok(blocks_of(blocks, || {
        // Relaxed: pairs with no access; no other thread or process has the word.
        black_box(word).fetch_add(1, Ordering::Relaxed);
    }))
}

/// A copy of `bytes` from private to shared memory.
pub(super) fn memcpy(bytes: usize, blocks: usize) -> Result<(u64, Vec<f64>)> {
    type Copy = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let (source, target) = (Pages::new(bytes)?, Pages::shared(bytes)?);
    // Called through a pointer, so that the compiler cannot replace it by a copy of known length.
    let copy: Copy = black_box(libc::memcpy);
    Ok(blocks_of(blocks, || {
        // SAFETY: both mappings are `bytes` long and do not overlap; there are no references to them.
        unsafe { copy(target.as_ptr().cast(), black_box(source.as_ptr()).cast(), bytes) };
    }))
}
