//! The measuring itself: a forked process on another core, mapped memory, libc's copy.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};

use crate::cores::{Pinned, allowed, bind};

/// The value on which the other process of a ping-pong ends.
const STOP: u64 = u64::MAX;
/// How long the ping-pong waits for the other process before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a block of the other measurements should take.
const BLOCK: Duration = Duration::from_millis(1);

/// Anonymous pages, zeroed; shared with processes forked later, or private.
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize, sharing: libc::c_int) -> Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS, -1, 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(Error::last_os("map memory for the limits")),
        }
    }

    /// The word at byte `at` of the pages.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.bytes);
        // SAFETY: the mapping is page-aligned, at least as long, zeroed and lives as long as `self`; its words are
        // only ever used through this function, so all accesses to them, of any process, are atomic.
        unsafe { self.start.add(at).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; borrows of it end with `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The other process of a ping-pong: answers every odd value with the next even one. Ended and reaped when dropped.
struct Partner(libc::pid_t);

impl Partner {
    fn start([forth, back]: [&AtomicU64; 2], core: usize) -> Result<Self> {
        Self::fork(|parent| answer(forth, back, core, parent))
    }

    /// Starts a process that does `life`: system calls and atomic accesses only, after which it ends.
    fn fork(life: impl FnOnce(libc::pid_t)) -> Result<Self> {
        // SAFETY: no memory is touched.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the new process makes system calls and atomic accesses only (`life`), which is allowed after a fork
        // of a process with several threads, and never returns from here.
        match unsafe { libc::fork() } {
            0 => {
                life(parent);
                // SAFETY: ends the process without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
            pid if pid > 0 => Ok(Self(pid)),
            _ => Err(Error::last_os("start the second process of the ping-pong")),
        }
    }

    fn is_gone(&self) -> bool {
        // SAFETY: only asks whether the process could be waited for, and leaves it; the structure is plain data.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.0.unsigned_abs(), &mut info, flags) == 0 && info.si_signo != 0
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // SAFETY: the process is ours and not reaped yet, so its number cannot belong to another.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, ptr::null_mut(), 0) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Microseconds that a process waits for its next turn if it gives the core away while `processes` share it and all do
/// so, block by block.
pub(super) fn yield_turn(processes: usize, turns: u64, blocks: usize) -> Result<Vec<f64>> {
    let core = allowed().into_iter().next().ok_or_else(|| Error::new(ErrorKind::Limit, "turns of a core"))?;
    let _pinned = Pinned::to(core)?;
    let others: Result<Vec<Partner>> =
        (1..processes).map(|_| Partner::fork(|parent| give_away(core, parent))).collect();
    let _others = others?;
    let give = || {
        // SAFETY: no memory is touched.
        unsafe { libc::sched_yield() };
    };
    (0..turns).for_each(|_| give()); // until all have started
    Ok((0..blocks)
        .map(|_| {
            let start = Instant::now();
            (0..turns).for_each(|_| give());
            start.elapsed().as_secs_f64() * 1e6 / turns as f64
        })
        .collect())
}

/// The life of a process that only gives its core away.
fn give_away(core: usize, parent: libc::pid_t) {
    // SAFETY: system calls without memory of ours; the kernel ends this process with the thread that started it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
        if libc::getppid() == parent && bind(core) {
            loop {
                libc::sched_yield();
            }
        }
    }
}

/// The life of the other process.
fn answer(forth: &AtomicU64, back: &AtomicU64, core: usize, parent: libc::pid_t) {
    // SAFETY: system calls without memory of ours; the kernel ends this process with the thread that started it, also if
    // that has ended before it was asked to.
    let orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
        libc::getppid() != parent
    };
    if !orphan && bind(core) {
        let mut answered = 0;
        loop {
            // Acquire: pairs with the Release store in `round_trip`, as a library's flag would.
            let value = forth.load(Ordering::Acquire);
            if value == STOP {
                break;
            }
            if value % 2 == 1 && value != answered {
                // Release: pairs with the Acquire load in `round_trip`.
                back.store(value + 1, Ordering::Release);
                answered = value;
            }
        }
    }
}

/// Stores `odd` and waits for the next even number.
#[inline]
fn round_trip([forth, back]: [&AtomicU64; 2], odd: u64, partner: &Partner) -> Result<()> {
    // Release: pairs with the Acquire load in `answer`.
    forth.store(odd, Ordering::Release);
    let mut deadline = None;
    loop {
        for _ in 0..1 << 16 {
            // Acquire: pairs with the Release store in `answer`.
            if back.load(Ordering::Acquire) == odd + 1 {
                return Ok(());
            }
        }
        let now = Instant::now();
        if partner.is_gone() || now > *deadline.get_or_insert(now + PATIENCE) {
            return Err(Error::new(ErrorKind::Timeout, "cache-line ping-pong")
                .cause("the second process does not answer")
                .remedy("see whether this process may bind to two cores"));
        }
    }
}

/// Microseconds per round trip between two processes on the first two allowed cores, block by block: of one line, or
/// with a line for each way.
pub(super) fn ping_pong(two_lines: bool, round_trips: u64, blocks: usize) -> Result<Vec<f64>> {
    let mut cores = allowed().into_iter();
    let (Some(mine), Some(other)) = (cores.next(), cores.next()) else {
        return Err(Error::new(ErrorKind::Limit, "cache-line ping-pong")
            .cause("it needs two cores, and this process may use one")
            .remedy("allow this process a second core"));
    };
    let line = Pages::new(4096, libc::MAP_SHARED)?;
    let words = [line.word(0), line.word(if two_lines { 1024 } else { 0 })];
    let partner = Partner::start(words, other)?;
    let _pinned = Pinned::to(mine)?;
    let mut odd = 1;
    let mut block = || -> Result<f64> {
        let start = Instant::now();
        for _ in 0..round_trips {
            round_trip(words, odd, &partner)?;
            odd += 2;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / round_trips as f64)
    };
    block()?; // the start of the second process, and the warm-up
    let times = (0..blocks).map(|_| block()).collect();
    words[0].store(STOP, Ordering::SeqCst);
    times
}

/// Microseconds per meeting of two processes on the first two allowed cores, block by block: each stores a number in a word
/// of its own and waits until the other has done the same. Both words in one line.
pub(super) fn meeting(meetings: u64, blocks: usize) -> Result<Vec<f64>> {
    const OP: &str = "bare meeting";
    let mut cores = allowed().into_iter();
    let (Some(mine), Some(other)) = (cores.next(), cores.next()) else {
        return Err(Error::new(ErrorKind::Limit, OP).cause("it needs two cores, and this process may use one"));
    };
    let page = Pages::new(4096, libc::MAP_SHARED)?;
    let (ours, theirs) = (page.word(0), page.word(8));
    let partner = Partner::fork(|parent| {
        // SAFETY: system calls without memory of ours, as in `answer`.
        let orphan = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            libc::getppid() != parent
        };
        let mut number = 0;
        let mut last = if !orphan && bind(other) { 0 } else { STOP };
        while last != STOP {
            number += 1;
            // Release, and Acquire below: pair with those of the first process.
            theirs.store(number, Ordering::Release);
            while last < number {
                last = ours.load(Ordering::Acquire);
            }
        }
    })?;
    let _pinned = Pinned::to(mine)?;
    let mut number = 0;
    let mut block = || -> Result<f64> {
        let start = Instant::now();
        for _ in 0..meetings {
            number += 1;
            // Release, and Acquire below: pair with those of the second process.
            ours.store(number, Ordering::Release);
            let mut looks = 0u64;
            while theirs.load(Ordering::Acquire) < number {
                looks += 1;
                if looks.is_multiple_of(1 << 20) && (partner.is_gone() || start.elapsed() > PATIENCE) {
                    return Err(Error::new(ErrorKind::Timeout, OP).cause("the second process does not come"));
                }
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / meetings as f64)
    };
    block()?; // the start of the second process, and the warm-up
    let times = (0..blocks).map(|_| block()).collect();
    ours.store(STOP, Ordering::SeqCst);
    times
}

/// Times blocks of calls of `run`; how many calls make a block is found first. Returns all calls and the microseconds
/// per call of each block.
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
    let page = Pages::new(4096, libc::MAP_SHARED)?;
    let word = page.word(0);
    Ok(blocks_of(blocks, || {
        // Relaxed: pairs with nothing; no other thread or process knows the word.
        black_box(word).fetch_add(1, Ordering::Relaxed);
    }))
}

/// A copy of `bytes` from private to shared memory.
pub(super) fn memcpy(bytes: usize, blocks: usize) -> Result<(u64, Vec<f64>)> {
    type Copy = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let source = Pages::new(bytes, libc::MAP_PRIVATE)?;
    let target = Pages::new(bytes, libc::MAP_SHARED)?;
    // Pages of the source that were never written would all be the one page of zeros.
    // SAFETY: exactly the bytes of the mapping, which nothing borrows.
    unsafe { ptr::write_bytes(source.start.as_ptr(), 0x5a, bytes) };
    // Through a pointer, so that the compiler cannot put a copy of known length in its place.
    let copy: Copy = black_box(libc::memcpy);
    Ok(blocks_of(blocks, || {
        // SAFETY: both mappings are `bytes` long and apart; nothing borrows them.
        unsafe { copy(target.start.as_ptr().cast(), black_box(source.start.as_ptr()).cast(), bytes) };
    }))
}
