#![allow(unsafe_code)]
//! Bootstrap by a launcher that speaks PMIx: `prterun`, `mpirun` of Open MPI, `srun --mpi=pmix`.
//!
//! `libpmix.so.2` is loaded at run time, so nothing links to it; functions and layouts are those of the PMIx standard,
//! versions 4 and 5. Its calls may block forever, so a separate thread makes them all, and the rank abandons a call
//! after the job's timeout; every later call then fails with the same cause.
//!
//! PMIx looks a value up by the rank that has put it, which the caller of [`Bootstrap::get`] does not name. So each
//! rank publishes everything that it has put since the last fence as one value, and `get` reads the values of the
//! ranks, that of the most likely rank first.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use libloading::Library;

use super::connection::end_without_launcher;
use super::mark::{ancestors, mark};
use super::{Bootstrap, check_key, check_value, no_such_key, report_abort};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

/// The file name of the library, with the version of its binary interface.
const LIBRARY: &str = "libpmix.so.2";
/// Maximum wait for the launcher to end the job.
const ABORT: Duration = Duration::from_secs(5);

/// Constants of the PMIx standard: statuses, types of values, a scope, the rank that stands for the whole job, and
/// keys.
const SUCCESS: c_int = 0;
const TIMEOUT: c_int = -24;
const PARTIAL_SUCCESS: c_int = -52;
const LOST_CONNECTION: c_int = -61;
const BOOL: u16 = 1;
const UINT32: u16 = 14;
const BYTE_OBJECT: u16 = 27;
const GLOBAL: u8 = 3;
const WILDCARD: u32 = u32::MAX - 1;
const JOB_SIZE: &CStr = c"pmix.job.size";
const COLLECT_DATA: &[u8] = b"pmix.collect";

/// `pmix_proc_t`: the namespace, which is the job, and a rank in it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    namespace: [u8; 256],
    rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ByteObject {
    bytes: *mut u8,
    size: usize,
}

/// The union in `pmix_value_t`: the members that are used here, and its size.
#[repr(C)]
union Data {
    flag: bool,
    uint32: u32,
    bytes: ByteObject,
    _size: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [u8; 512],
    flags: u32,
    value: Value,
}

/// The result of a call of the library; a failure has a kind and a text.
type Called<R> = std::result::Result<R, (ErrorKind, String)>;

/// `pmix_notification_fn_t`: a registration, the event and its source, two lists of details, and a function to call at the
/// end with its argument.
type Handler =
    extern "C" fn(usize, c_int, *const Process, *const Info, usize, *const Info, usize, *const c_void, *mut c_void);

/// The functions of the library.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(*mut Process, *const Info, usize) -> c_int,
    register:
        unsafe extern "C" fn(*const c_int, usize, *const Info, usize, Handler, *const c_void, *mut c_void) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int,
    get: unsafe extern "C" fn(*const Process, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *const Process, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    /// Loads the library that the launcher has loaded, which matches its server, or otherwise the library that the
    /// system finds.
    fn load() -> std::result::Result<Self, libloading::Error> {
        // SAFETY: the library's initializers have no requirements.
        let open = |path: PathBuf| unsafe { Library::new(path) };
        let launchers = launchers_library().and_then(|path| open(path).ok());
        let library = launchers.map_or_else(|| open(LIBRARY.into()), Ok)?;
        // The library stays loaded, because its own threads run until it is finalized, and the functions are used until
        // then.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the names and types are those of the PMIx standard, as the name of the library promises.
        unsafe {
            Ok(Self {
                init: *library.get(b"PMIx_Init\0")?,
                register: *library.get(b"PMIx_Register_event_handler\0")?,
                put: *library.get(b"PMIx_Put\0")?,
                commit: *library.get(b"PMIx_Commit\0")?,
                fence: *library.get(b"PMIx_Fence\0")?,
                get: *library.get(b"PMIx_Get\0")?,
                abort: *library.get(b"PMIx_Abort\0")?,
                finalize: *library.get(b"PMIx_Finalize\0")?,
                error_string: *library.get(b"PMIx_Error_string\0")?,
            })
        }
    }

    /// Whether a call has succeeded.
    fn check(&self, call: &str, status: c_int) -> Called<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes any status and returns a string that is never freed, or null.
        let text = unsafe {
            let text = (self.error_string)(status);
            if text.is_null() { c"unknown" } else { CStr::from_ptr(text) }
        };
        let text = format!("{call} failed: {} ({status})", text.to_string_lossy());
        Err(match status {
            PARTIAL_SUCCESS => (ErrorKind::PeerLost, format!("a rank ended before this call: {text}")),
            TIMEOUT => (ErrorKind::Timeout, text),
            _ => (ErrorKind::Launcher, text),
        })
    }
}

/// Handles the event that the connection to the launcher is lost.
extern "C" fn lost_launcher(
    _registration: usize,
    _event: c_int,
    _source: *const Process,
    _info: *const Info,
    _infos: usize,
    _results: *const Info,
    _count: usize,
    _done: *const c_void,
    _argument: *mut c_void,
) {
    end_without_launcher(std::env::var("PMIX_RANK").unwrap_or_default(), "PMIx")
}

/// The library that an ancestor of this process has loaded, if the system lets this process see that.
fn launchers_library() -> Option<PathBuf> {
    // Shells may be between the launcher and this process, so several ancestors are examined.
    ancestors().take(4).find_map(|pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut mapped = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
        let is_library =
            |path: &&Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(LIBRARY.as_bytes()));
        mapped.find(is_library).map(Path::to_owned)
    })
}

/// The library, connected to the launcher's server. Used by one thread.
struct Client {
    functions: Functions,
    own: Process,
}

impl Client {
    fn connect(functions: Functions) -> Called<Self> {
        let mut own = Process { namespace: [0; 256], rank: 0 };
        // SAFETY: `own` may be written, and there are no directives.
        functions.check("PMIx_Init", unsafe { (functions.init)(&mut own, std::ptr::null(), 0) })?;
        own.namespace[255] = 0;
        // SAFETY: the code is valid for the call, which blocks because it has no callback. Its result is the number of
        // the registration, or the status of a failure.
        let registered = unsafe {
            let (none, argument) = (std::ptr::null(), std::ptr::null_mut());
            (functions.register)(&LOST_CONNECTION, 1, std::ptr::null(), 0, lost_launcher, none, argument)
        };
        functions.check("PMIx_Register_event_handler", registered.min(SUCCESS))?;
        Ok(Self { functions, own })
    }

    fn namespace(&self) -> String {
        let bytes = self.own.namespace.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Publishes a value to all ranks, and waits for theirs.
    fn fence(&self, key: &CStr, mut value: Vec<u8>) -> Called<()> {
        let f = &self.functions;
        let bytes = ByteObject { bytes: value.as_mut_ptr(), size: value.len() };
        let mut value = Value { kind: BYTE_OBJECT, data: Data { bytes } };
        // SAFETY: key and value are valid for the call, which copies them.
        f.check("PMIx_Put", unsafe { (f.put)(GLOBAL, key.as_ptr(), &mut value) })?;
        // SAFETY: the library is initialized.
        f.check("PMIx_Commit", unsafe { (f.commit)() })?;
        let mut collect = Info { key: [0; 512], flags: 0, value: Value { kind: BOOL, data: Data { _size: [0; 3] } } };
        collect.key[..COLLECT_DATA.len()].copy_from_slice(COLLECT_DATA);
        collect.value.data.flag = true;
        // SAFETY: a null list of processes stands for the whole namespace; the directive is valid for the call.
        f.check("PMIx_Fence", unsafe { (f.fence)(std::ptr::null(), 0, &collect, 1) })
    }

    /// The value of a key that `rank` has put, through `read`.
    fn get<R>(&self, rank: u32, key: &CStr, read: impl FnOnce(&Value) -> Option<R>) -> Called<R> {
        let (f, of) = (&self.functions, Process { rank, ..self.own });
        let mut found: *mut Value = std::ptr::null_mut();
        // SAFETY: process and key are valid for the call, which writes a pointer to a value.
        f.check("PMIx_Get", unsafe { (f.get)(&of, key.as_ptr(), std::ptr::null(), 0, &mut found) })?;
        // SAFETY: a call that succeeded has written null or a pointer to a value, which this caller owns.
        let Some(value) = (unsafe { found.as_ref() }) else {
            return Err((ErrorKind::Launcher, "PMIx_Get returned no value".into()));
        };
        let kind = value.kind;
        let result = read(value);
        // SAFETY: by the standard the caller releases the value and its bytes by `free`; `value` is not used
        // afterwards.
        unsafe {
            if kind == BYTE_OBJECT {
                libc::free((*found).data.bytes.bytes.cast());
            }
            libc::free(found.cast());
        }
        let cause = || format!("PMIx_Get returned a value of unexpected type {kind} for {}", key.to_string_lossy());
        result.ok_or_else(|| (ErrorKind::Launcher, cause()))
    }

    fn size(&self) -> Called<u32> {
        self.get(WILDCARD, JOB_SIZE, |value| match value.kind {
            // SAFETY: the type says which member of the union was written.
            UINT32 => Some(unsafe { value.data.uint32 }),
            _ => None,
        })
    }

    fn bytes(&self, rank: u32, key: &CStr) -> Called<Vec<u8>> {
        self.get(rank, key, |value| {
            if value.kind != BYTE_OBJECT {
                return None;
            }
            // SAFETY: the type says which member of the union was written.
            let bytes = unsafe { value.data.bytes };
            if bytes.bytes.is_null() || bytes.size == 0 {
                return Some(Vec::new());
            }
            // SAFETY: `size` bytes are valid until they are freed.
            Some(unsafe { std::slice::from_raw_parts(bytes.bytes, bytes.size) }.to_vec())
        })
    }

    fn abort(&self, code: i32, reason: &CStr) -> Called<()> {
        // SAFETY: the text is valid for the call, and a null list of processes stands for the whole namespace.
        let status = unsafe { (self.functions.abort)(code, reason.as_ptr(), std::ptr::null(), 0) };
        self.functions.check("PMIx_Abort", status)
    }

    fn finalize(&self) -> Called<()> {
        // SAFETY: the library is initialized, there are no directives, and no call follows.
        let status = unsafe { (self.functions.finalize)(std::ptr::null(), 0) };
        self.functions.check("PMIx_Finalize", status)
    }
}

/// A call of the library.
type Call = Box<dyn FnOnce(&Client) + Send>;

/// The connection of a rank to a PMIx launcher.
pub(crate) struct Pmix {
    calls: mpsc::Sender<Call>,
    rank: u32,
    size: u32,
    job_id: String,
    timeout: Duration,
    /// The current call, for errors.
    operation: &'static str,
    /// Set once every further call must fail: the cause of their errors.
    broken: Option<String>,
    /// Keys and values since the last fence.
    own: Vec<(String, Vec<u8>)>,
    /// The number of fences.
    fences: u32,
    /// Number of fences whose values are known, by rank.
    read: Vec<u32>,
    known: HashMap<String, Vec<u8>>,
    _mark: Option<OwnedFd>,
}

impl Pmix {
    /// Joins the namespace as `rank` (`PMIX_NAMESPACE`, `PMIX_RANK`).
    ///
    /// # Errors
    /// `Launcher` if the library cannot be loaded or the launcher does not answer as it should; `Timeout`.
    pub(crate) fn join(namespace: &str, rank: u32, timeout: Duration) -> Result<Self> {
        const OP: &str = "connect to the launcher";
        let mark = mark(&format!("{namespace}.{rank}"))?;
        let functions = Functions::load().map_err(|e| {
            let e = Error::new(ErrorKind::Launcher, OP).rank(rank).cause(format!("the launcher speaks PMIx: {e}"));
            e.remedy(format!(
                "install the library (Debian: libpmix2), or add the directory of the launcher's \
                 {LIBRARY} to LD_LIBRARY_PATH"
            ))
        })?;
        let (calls, to_make) = mpsc::channel::<Call>();
        let (made, connected) = mpsc::sync_channel(1);
        let body = move || {
            let client = match Client::connect(functions) {
                Ok(client) => client,
                Err(cause) => return drop(made.send(Err(cause))),
            };
            let _ = made.send(client.size().map(|size| (client.namespace(), client.own.rank, size)));
            to_make.iter().for_each(|call| call(&client));
        };
        let started = std::thread::Builder::new().name("farside-pmix".into()).spawn(body);
        started.map_err(|e| Error::system("start the PMIx thread", e).rank(rank))?;
        let mut me = Self {
            calls,
            rank,
            size: 0,
            job_id: namespace.to_owned(),
            timeout,
            operation: OP,
            broken: None,
            own: Vec::new(),
            fences: 0,
            read: Vec::new(),
            known: HashMap::new(),
            _mark: mark,
        };
        let (given, number, size) = me.wait(&connected, timeout)?;
        if given != namespace || number != rank || rank >= size {
            let cause = format!(
                "PMIx_Init returned rank {number} of {size} in namespace {given}, but the environment says rank {rank} in {namespace}"
            );
            return Err(me.error(ErrorKind::Launcher, cause));
        }
        (me.size, me.read) = (size, vec![0; size as usize]);
        Ok(me)
    }

    fn error(&self, kind: ErrorKind, cause: String) -> Error {
        Error::new(kind, self.operation).rank(self.rank).cause(cause)
    }

    /// Waits for the result of a call of the library.
    fn wait<R>(&mut self, result: &mpsc::Receiver<Called<R>>, limit: Duration) -> Result<R> {
        let (kind, cause) = match result.recv_timeout(limit) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(failure)) => failure,
            Err(RecvTimeoutError::Timeout) => (ErrorKind::Timeout, format!("PMIx did not answer within {limit:?}")),
            Err(RecvTimeoutError::Disconnected) => (ErrorKind::Launcher, "the PMIx thread has ended".into()),
        };
        self.broken = Some(cause.clone());
        Err(self.error(kind, cause))
    }

    /// Runs a call on the PMIx thread, and waits for its result.
    fn call<R: Send + 'static>(
        &mut self,
        limit: Duration,
        call: impl FnOnce(&Client) -> Called<R> + Send + 'static,
    ) -> Result<R> {
        if let Some(cause) = &self.broken {
            return Err(self.error(ErrorKind::Launcher, cause.clone()));
        }
        let (done, result) = mpsc::sync_channel(1);
        // If the thread has ended, the sender is dropped and `result` reports it.
        let _ = self.calls.send(Box::new(move |client| drop(done.send(call(client)))));
        self.wait(&result, limit)
    }

    /// Reads the values that a rank has put.
    fn read(&mut self, rank: u32) -> Result<()> {
        for fence in self.read[rank as usize]..self.fences {
            let key = blob_key(fence);
            let bytes = self.call(self.timeout, move |client| client.bytes(rank, &key))?;
            let values = parse(&bytes).ok_or_else(|| {
                let cause = format!("the values of fence {fence} are malformed");
                self.error(ErrorKind::Protocol, cause).peer(rank)
            });
            self.known.extend(values?);
            self.read[rank as usize] = fence + 1;
        }
        Ok(())
    }
}

/// The key of the values that a rank puts before a fence.
fn blob_key(fence: u32) -> CString {
    CString::new(format!("farside.{fence}")).unwrap_or_default()
}

fn parse(bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut reader = Reader::new(bytes);
    let mut values = Vec::new();
    while !reader.is_empty() {
        let key = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        values.push((key, reader.bytes()?.to_vec()));
    }
    Some(values)
}

/// The rank at the end of a key, which has most likely put the key.
fn rank_of(key: &str) -> Option<u32> {
    key.rsplit('.').next()?.parse().ok()
}

impl Bootstrap for Pmix {
    fn kind(&self) -> &'static str {
        "pmix"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.operation = "bootstrap put";
        check_key(self.operation, key)?;
        check_value(self.operation, key, value)?;
        self.own.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.operation = "pass a fence of the bootstrap";
        let own = std::mem::take(&mut self.own);
        let bytes = own.iter().fold(Writer::new(), |w, (key, value)| w.bytes(key.as_bytes()).bytes(value)).done();
        let key = blob_key(self.fences);
        self.call(self.timeout, move |client| client.fence(&key, bytes))?;
        self.fences += 1;
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        self.operation = "bootstrap get";
        check_key(self.operation, key)?;
        let likely = rank_of(key).filter(|rank| *rank < self.size);
        for rank in likely.into_iter().chain(0..self.size) {
            self.read(rank)?;
            if let Some(value) = self.known.get(key) {
                return Ok(value.clone());
            }
        }
        Err(no_such_key(self.operation, key).rank(self.rank))
    }

    fn finalize(&mut self) -> Result<()> {
        self.operation = "bootstrap finalize";
        self.call(self.timeout, Client::finalize)?;
        self.broken = Some("the rank has already finalized the bootstrap".into());
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        self.operation = "bootstrap abort";
        report_abort(self.rank, reason);
        let text = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        // A failure is ignored: the caller exits in any case, and the launcher notices that too.
        let _ = self.call(self.timeout.min(ABORT), move |client| client.abort(code, &text));
        self.broken = Some("the rank has already aborted the job".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_standard() {
        assert_eq!((size_of::<Process>(), std::mem::offset_of!(Process, rank)), (260, 256));
        assert_eq!((size_of::<Value>(), std::mem::offset_of!(Value, data)), (32, 8));
        assert_eq!((size_of::<Info>(), std::mem::offset_of!(Info, value)), (552, 520));
    }

    #[test]
    fn values_of_a_fence_round_trip_or_are_refused() {
        let bytes = Writer::new().bytes(b"node.1").bytes(b"abc").bytes(b"empty").bytes(b"").done();
        let values = vec![("node.1".to_owned(), b"abc".to_vec()), ("empty".to_owned(), Vec::new())];
        assert_eq!(parse(&bytes), Some(values));
        assert_eq!(parse(&[]), Some(Vec::new()));
        // The end of a key-value pair is not an error.
        let whole = [0, 17, bytes.len()];
        assert!((0..=bytes.len()).all(|end| whole.contains(&end) == parse(&bytes[..end]).is_some()));
    }

    #[test]
    fn rank_at_the_end_of_a_key_is_the_likely_one() {
        assert_eq!(["node.12", "ports", "a.b", "7"].map(rank_of), [Some(12), None, None, Some(7)]);
    }
}
