//! Python programs that call the library with `ctypes`: the effects of interpreters on their processes.

use farside_harness::{Marked, mpi_folder, skip, works};

/// Workers of `multiprocessing`, which are made by `fork`, read memory of a window and store to it, while the ranks put
/// to each other.
const WORKERS: &str = r#"
import ctypes, multiprocessing
from ctypes import byref, c_int, c_size_t, c_void_p

LEN = 1 << 20
mpi = ctypes.CDLL("libmpi_abi.so.1")
WORLD, INFO_NULL, BYTE = c_void_p(0x101), c_void_p(0x130), c_void_p(0x247)

def ok(code):
    assert code == 0, code

def work(seed):
    before = bytes(memory)
    ctypes.memset(memory, seed, LEN)
    return before == expected and bytes(memory) == bytes([seed]) * LEN

ok(mpi.MPI_Init(None, None))
rank, win = c_int(), c_void_p()
ok(mpi.MPI_Comm_rank(WORLD, byref(rank)))
memory = ctypes.create_string_buffer(LEN)
data = ctypes.create_string_buffer(LEN)
ok(mpi.MPI_Win_create(memory, c_size_t(LEN), 1, INFO_NULL, WORLD, byref(win)))
for turn in range(3):
    ctypes.memset(data, 10 * turn + rank.value, LEN)
    ok(mpi.MPI_Win_fence(0, win))
    ok(mpi.MPI_Put(data, LEN, BYTE, 1 - rank.value, c_size_t(0), LEN, BYTE, win))
    ok(mpi.MPI_Win_fence(0, win))
    expected = bytes([10 * turn + 1 - rank.value]) * LEN
    assert bytes(memory) == expected
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        assert all(pool.map(work, range(100, 104), chunksize=1))
    assert bytes(memory) == expected
ok(mpi.MPI_Win_free(byref(win)))
ok(mpi.MPI_Finalize())
print("passed")
"#;

#[test]
fn workers_of_multiprocessing_have_their_own_copy_of_a_window() {
    const NAME: &str = "workers_of_multiprocessing_have_their_own_copy_of_a_window";
    if !works("python3", &["-c", "import ctypes, multiprocessing"]) {
        return skip(NAME, "there is no python3");
    }
    let mut run = Marked::run(2, &["python3", "-c", WORKERS]);
    run.command.env("LD_LIBRARY_PATH", mpi_folder());
    let run = run.finish();
    assert!(run.code == Some(0) && run.out.matches("passed").count() == 2, "{run:?}");
}
