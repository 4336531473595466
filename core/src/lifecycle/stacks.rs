#![allow(unsafe_code)]
//! The stacks of simulated ranks. Each ends in a guard page, in which an overflow faults: a handler reports which
//! rank's stack has overflowed, and the signal ends the process.
//!
//! The handler runs on an alternate stack of the thread, since the stack that has overflowed has no space for it. The
//! guard pages of a simulation are listed at the lowest address of that stack, where the handler finds them: it has no
//! argument, and several threads may simulate. Other faults are passed to the former handler, which is the only state
//! outside a simulation.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write};
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::{io, mem};

use corosensei::stack::{DefaultStack, Stack};
use memmap2::MmapMut;

use crate::error::{Error, ErrorKind, Result};

/// Minimum length of a stack in bytes: a rank that starts, makes windows and ends needs less, even without
/// optimization.
const MIN_STACK_BYTES: usize = 64 << 10;

/// Length of the alternate stack: the former handler may print a backtrace.
const ALTERNATE: usize = 256 << 10;

/// Distinguishes a list of guard pages at an address from other bytes there.
const MARK: usize = 0x5349_4d53_5441_434b;

/// The former handler of faults.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// The stack of one rank of a simulation.
///
/// # Errors
/// `BadArgument` for too few bytes or too many, `Limit` if there is no memory.
pub(super) fn stack(rank: u32, bytes: usize) -> Result<DefaultStack> {
    let fail = |kind| Error::new(kind, "simulate").rank(rank);
    if bytes < MIN_STACK_BYTES || isize::try_from(bytes).is_err() {
        let e = fail(ErrorKind::BadArgument).cause(format!("a stack of {bytes} bytes is too small or too large"));
        return Err(e.remedy(format!("set at least {MIN_STACK_BYTES} bytes, by `stack=` or `Simulation::stack`")));
    }
    DefaultStack::new(bytes).map_err(|e| {
        let e = fail(ErrorKind::Limit).cause(format!("cannot allocate a stack: {e}"));
        e.remedy("raise vm.max_map_count, or simulate fewer ranks")
    })
}

/// The guard page of a stack.
pub(super) fn guard(stack: &DefaultStack) -> Range<usize> {
    let limit = stack.limit().get();
    limit..limit + rustix::param::page_size()
}

/// The stacks of a simulation, and its seed.
struct Stacks {
    seed: u64,
    bytes: usize,
    guards: Vec<Range<usize>>,
}

/// The start of an alternate stack.
#[repr(C)]
struct Head {
    /// [`MARK`] exclusive-or the address.
    mark: usize,
    stacks: *const Stacks,
}

/// Reports overflows on this thread, until this is dropped.
pub(super) struct Watched {
    /// The thread's former alternate stack.
    former: libc::stack_t,
    // Kept alive for the signal handler, which reads these two fields until this guard is dropped.
    _memory: MmapMut,
    _stacks: Box<Stacks>,
}

impl Watched {
    /// Watches stacks of `bytes` with these guard pages.
    ///
    /// # Errors
    /// Those of the system: no memory, or a filter that refuses the calls.
    pub(super) fn new(seed: u64, bytes: usize, guards: Vec<Range<usize>>) -> io::Result<Self> {
        let stacks = Box::new(Stacks { seed, bytes, guards });
        let mut memory = MmapMut::map_anon(ALTERNATE)?;
        let base = memory.as_mut_ptr();
        let head = Head { mark: MARK ^ base.addr(), stacks: &raw const *stacks };
        // SAFETY: the mapping is aligned to a page and longer than this.
        unsafe { base.cast::<Head>().write(head) };
        let (alternate, mut former) = (stack_of(base, ALTERNATE, 0), stack_of(null_mut(), 0, libc::SS_DISABLE));
        // SAFETY: the memory lives until the former stack is restored.
        if unsafe { libc::sigaltstack(&raw const alternate, &raw mut former) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let watched = Self { former, _memory: memory, _stacks: stacks };
        install()?;
        Ok(watched)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the stack that the thread had before. No handler runs on the alternate stack, since that handler
        // would be running this code.
        unsafe { libc::sigaltstack(&raw const self.former, null_mut()) };
    }
}

fn stack_of(base: *mut u8, len: usize, flags: c_int) -> libc::stack_t {
    libc::stack_t { ss_sp: base.cast(), ss_flags: flags, ss_size: len }
}

/// Installs the handler, once in a process.
fn install() -> io::Result<()> {
    let mut error = None;
    FORMER.get_or_init(|| {
        // SAFETY: plain data, of which all zeros is a value.
        let mut former: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: reads the present handler.
        if unsafe { libc::sigaction(libc::SIGSEGV, null(), &raw mut former) } != 0 {
            error = Some(io::Error::last_os_error());
        }
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let own = libc::sigaction { sa_sigaction: handler as usize, sa_flags: flags, ..former };
        // SAFETY: the handler makes only async-signal-safe calls.
        if error.is_none() && unsafe { libc::sigaction(libc::SIGSEGV, &raw const own, null_mut()) } != 0 {
            error = Some(io::Error::last_os_error());
        }
        former
    });
    error.map_or(Ok(()), Err)
}

/// A line that is composed without an allocation.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// The handler of faults.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives valid pointers, and the alternate stack on which this runs.
    let (at, alternate) = unsafe { ((*info).si_addr().addr(), (*context.cast::<libc::ucontext_t>()).uc_stack) };
    let found = stacks_at(alternate).and_then(|stacks| {
        let rank = stacks.guards.iter().position(|guard| guard.contains(&at))?;
        Some((stacks, rank))
    });
    let Some((Stacks { seed, bytes, guards }, rank)) = found else { return chain(signal, info, context) };
    let mut line = Line { bytes: [0; 256], len: 0 };
    let _ = writeln!(
        line,
        "farside: rank {rank} of {} in a simulation with seed {seed} has overflowed its stack of {bytes} bytes: raise it by \
         `stack=` in FARSIDE_SIM or `Simulation::stack`",
        guards.len()
    );
    // SAFETY: the bytes are initialized. An error of standard error cannot be reported anywhere.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
    end(signal);
}

/// The stacks of the simulation whose alternate stack this is.
fn stacks_at(alternate: libc::stack_t) -> Option<&'static Stacks> {
    let base = alternate.ss_sp;
    if base.is_null() || alternate.ss_size != ALTERNATE || !base.addr().is_multiple_of(align_of::<Head>()) {
        return None;
    }
    // SAFETY: the lowest bytes of the stack on which this thread handles signals are readable and aligned; the pointer after
    // the mark is valid as long as the stack is in use.
    unsafe {
        let head = &*base.cast::<Head>();
        (head.mark == MARK ^ base.addr()).then(|| &*head.stacks)
    }
}

/// Passes a fault that is not an overflow to the former handler.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(former) = FORMER.get() else { return end(signal) };
    match former.sa_sigaction {
        libc::SIG_DFL => end(signal),
        // SAFETY: as in `on_fault`.
        libc::SIG_IGN if unsafe { (*info).si_code } <= 0 => {}
        libc::SIG_IGN => end(signal),
        handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the handler was installed with this signature.
            let handler =
                unsafe { mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the handler was installed with this signature.
            let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

/// Ends the process by the signal as soon as the handler has returned.
fn end(signal: c_int) {
    // SAFETY: both functions are async-signal-safe.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
