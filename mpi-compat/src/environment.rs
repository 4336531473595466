#![allow(unsafe_code)]
//! Start-up, end, thread levels, versions, clocks and memory (MPI-5.0 chapters 9 and 11).

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Instant;

use farside_core::job::WaitHook;
use farside_core::{Job, say};

use crate::arguments::{Out, TextOut};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Info};
use crate::lock::{LOCK, this_thread};
use crate::objects::{InfoObject, Predefined};
use crate::runtime::{Call, Phase, Runtime};

/// Thread levels, from the lowest.
const LEVELS: [c_int; 4] = [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE];

/// Whether calls of `MPI_` functions reach this library directly, although a tool's library may be loaded before it.
fn is_unchecked() -> bool {
    let library_of = |name: &std::ffi::CStr| {
        // SAFETY: the name is a string; `dladdr` writes nothing for an address that belongs to no library.
        unsafe {
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            libc::dladdr(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()), &raw mut info);
            info.dli_fbase
        }
    };
    library_of(c"MPI_Bcast") == library_of(c"PMPI_Bcast")
}

fn start(call: &Call<'_>, level: c_int) -> Result {
    match call.phase.get() {
        Phase::Before => {}
        Phase::Running => return Err(fail(MPI_ERR_OTHER, "MPI is already initialized")),
        Phase::Child => return Err(call.job().err().unwrap_or_else(|| unreachable!("a forked child has no job"))),
        Phase::After => return Err(fail(MPI_ERR_OTHER, "MPI has been finalized and cannot be initialized again")),
    }
    crate::comm::predefined(call, &start_job(call)?)?;
    call.level.set(level);
    if level == MPI_THREAD_MULTIPLE {
        LOCK.allow_threads();
    }
    call.main_thread.set(this_thread());
    call.phase.set(Phase::Running);
    call.set_active();
    Ok(())
}

/// The job. The first call of `MPI_Init` or `MPI_Session_init` starts it, together with all other processes.
pub fn start_job(call: &Call<'_>) -> Result<Job> {
    if call.job.borrow().is_some() {
        return call.job();
    }
    let job = Job::init()?;
    if job.rank() == 0 && job.settings().verify > 0 && is_unchecked() {
        say(format_args!(
            "FARSIDE_VERIFY is set, but libfarside_verify.so is not preloaded: start the program by mpiexec, or set \
             LD_PRELOAD"
        ));
    }
    let _ = call.predefined.set(Predefined::new(job.size_number(), job.settings().universe_size));
    LOCK.use_barrier();
    job.set_wait_hook(WaitHook { is_wanted: || LOCK.is_wanted(), pause: || LOCK.wake_waiter() });
    if let Ok(waker) = job.device().waker() {
        LOCK.set_waker(waker);
    }
    // SAFETY: the function may be called at any time, and the library stays loaded until the process ends.
    unsafe { libc::pthread_atfork(None, None, Some(Runtime::reset_in_child)) };
    *call.job.borrow_mut() = Some(job.clone());
    Ok(job)
}

pub fn init(call: &Call<'_>, _argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result {
    start(call, MPI_THREAD_SINGLE)
}

pub fn init_thread(
    call: &Call<'_>,
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: Out<c_int>,
) -> Result {
    let level = LEVELS.into_iter().find(|level| *level >= required).unwrap_or(MPI_THREAD_MULTIPLE);
    start(call, level)?;
    provided.set(level);
    Ok(())
}

pub fn finalize(call: &Call<'_>) -> Result {
    // Delete callbacks may still call MPI.
    call.comms.get(MPI_COMM_SELF)?.attributes.clear(MPI_COMM_SELF.0)?;
    let job = call.job()?;
    crate::buffer::drain(call)?;
    crate::request::drain(call, &job)?;
    job.retire(call.sessions_open.get() > 0)?;
    call.phase.set(Phase::After);
    call.set_active();
    for comm in [MPI_COMM_WORLD, MPI_COMM_SELF] {
        call.comms.set_predefined(comm, None);
    }
    Ok(())
}

pub fn initialized(call: &Call<'_>, flag: Out<c_int>) -> Result {
    flag.set((call.phase.get() != Phase::Before).into());
    Ok(())
}

pub fn finalized(call: &Call<'_>, flag: Out<c_int>) -> Result {
    // A child made by fork reports that MPI is finalized, so that exit handlers that end MPI do nothing in it.
    flag.set(matches!(call.phase.get(), Phase::After | Phase::Child).into());
    Ok(())
}

pub fn query_thread(call: &Call<'_>, provided: Out<c_int>) -> Result {
    provided.set(call.level.get());
    Ok(())
}

pub fn is_thread_main(call: &Call<'_>, flag: Out<c_int>) -> Result {
    flag.set((call.main_thread.get() == this_thread()).into());
    Ok(())
}

pub fn abort(call: &Call<'_>, _comm: Comm, errorcode: c_int) -> Result {
    call.job()?;
    crate::errors::end_process(call, errorcode, &format!("MPI_Abort({errorcode})"))
}

pub fn get_version(_: &Call<'_>, version: Out<c_int>, subversion: Out<c_int>) -> Result {
    version.set(MPI_VERSION as c_int);
    subversion.set(MPI_SUBVERSION as c_int);
    Ok(())
}

pub fn get_library_version(_: &Call<'_>, version: TextOut, resultlen: Out<c_int>) -> Result {
    let text = concat!("Farside ", env!("CARGO_PKG_VERSION"), " (MPI 5.0, standard ABI 1.0)");
    resultlen.set(version.write(text.as_bytes(), MPI_MAX_LIBRARY_VERSION_STRING)? as c_int);
    Ok(())
}

pub fn get_processor_name(_: &Call<'_>, name: TextOut, resultlen: Out<c_int>) -> Result {
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_else(|_| b"localhost".to_vec());
    resultlen.set(name.write(host.trim_ascii(), MPI_MAX_PROCESSOR_NAME)? as c_int);
    Ok(())
}

pub fn get_hw_resource_info(call: &Call<'_>, hw_info: Out<Info>) -> Result {
    // No hardware resources are named, so the info object is empty.
    hw_info.set(call.infos.insert(InfoObject::of(&[])));
    Ok(())
}

pub fn pcontrol(_: &Call<'_>, _level: c_int) -> Result {
    Ok(())
}

/// The time since the first call in this process, in seconds.
pub fn wtime() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Seconds from one tick of `MPI_Wtime` to the next.
pub fn wtick() -> f64 {
    1e-9
}

/// Alignment of memory from `MPI_Alloc_mem`, unless the program requests a larger one. Memory of at least one page is
/// aligned to pages, since ranks of the node map whole pages if the memory becomes a window.
const ALIGNMENT: usize = 64;
const PAGE: usize = 4096;

pub fn alloc_mem(call: &Call<'_>, size: i64, info: Info, baseptr: Out<usize>) -> Result {
    let bytes = usize::try_from(size).map_err(|_| fail(MPI_ERR_ARG, format!("is {size}")).named("size"))?;
    let mut alignment = if bytes < PAGE { ALIGNMENT } else { PAGE };
    if info != MPI_INFO_NULL {
        alignment = call.infos.get(info)?.alignment().map_or(alignment, |asked| asked.max(alignment));
    }
    let mut place = std::ptr::null_mut();
    // SAFETY: the alignment is a power of two and a multiple of a pointer's size.
    let failed = unsafe { libc::posix_memalign(&raw mut place, alignment, bytes.max(1)) };
    if failed != 0 {
        return Err(fail(MPI_ERR_NO_MEM, format!("cannot allocate {bytes} bytes")).named("size"));
    }
    baseptr.set(place.expose_provenance());
    Ok(())
}

pub fn free_mem(_: &Call<'_>, base: *mut c_void) -> Result {
    // SAFETY: the program passes the result of `alloc_mem`, or null.
    unsafe { libc::free(base) };
    Ok(())
}
