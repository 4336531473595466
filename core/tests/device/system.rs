#![allow(unsafe_code)]
//! Operations that the system forbids or lacks memory for. Each test runs in a child process, which imposes the limit
//! on itself.

use std::process::Output;

use farside_conformance::Setup;

use crate::regions::{exchange_regions, release};
use farside_core::device::Region;
use farside_core::{ErrorKind, Job, Result, coll};

use crate::harness::{USER_MEMORY, settings};
use crate::processes::itself;
use crate::world::{World, pattern};

const CHILD: &str = "FARSIDE_TEST_CHILD";

/// Returns `true` in the child; otherwise runs the test again in a child and expects it to succeed.
fn in_child(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let Output { status, stdout, stderr } = itself(test).env(CHILD, "1").output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{status}\n{}\n{}", text(&stdout), text(&stderr));
    print!("{}", text(&stdout));
    false
}

pub(crate) fn use_user_memory(job: &Job) -> Result<()> {
    let world = World::new(job, &Setup { user_memory: true, ..Setup::default() }, 100 << 10)?;
    let to = 1 - world.me();
    world.write(to, 3, &pattern(world.me(), 90 << 10))?;
    assert!(world.read(to, 3, 90 << 10)? == pattern(world.me(), 90 << 10));
    world.fetch_add(to, 0, 0)?;
    world.barrier()?;
    assert!(world.own_bytes()[3..][..90 << 10] == pattern(to, 90 << 10));
    world.barrier()
}

/// Makes `process_vm_readv` and `process_vm_writev` fail with EPERM in this process from now on.
fn forbid_process_vm() {
    farside_harness::refuse(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev], libc::EPERM);
    let mut byte = 0u8;
    let block = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: live blocks; the call is expected to be refused.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &raw const block, 1, &raw const block, 1, 0) };
    assert!(n == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM), "the filter does nothing");
}

#[test]
fn process_vm_forbidden_auto_falls_back_to_the_ring() {
    if !crate::harness::shm() {
        return println!("skipped: only shared memory uses process_vm");
    }
    if in_child(concat!(module_path!(), "::process_vm_forbidden_auto_falls_back_to_the_ring")) {
        forbid_process_vm();
        for mode in ["auto", "remap", "ring"] {
            Job::threads_with(2, &settings(&[(USER_MEMORY, mode)]), use_user_memory).unwrap();
        }
        Job::threads_with(2, &settings(&[]), collect_long_blocks).unwrap();
        // A shared mapping of the user, which cannot be moved onto shared pages.
        let before = Job::threads_with(2, &settings(&[]), use_shared_mapping).unwrap();
        assert_eq!(before, [true, true]);
    }
}

/// Collects long blocks, which ranks of a node read from each other's memory if the system permits.
pub(crate) fn collect_long_blocks(job: &Job) -> Result<()> {
    let blocks = coll::allgather(&job.world()?, &vec![job.rank_number() as u8; 100_000])?;
    assert!(blocks.iter().zip(0..).all(|(block, rank)| block.len() == 100_000 && block.iter().all(|b| *b == rank)));
    Ok(())
}

/// Writes to memory that `remap` leaves unchanged, with so many bytes that `process_vm_writev` is used if it is
/// allowed.
fn use_shared_mapping(job: &Job) -> Result<bool> {
    use farside_core::device::{Block, Operation, Place};
    const LEN: usize = 64 << 10;
    let map = memmap2::MmapOptions::new().len(LEN).map_anon().unwrap();
    let base = map.as_ptr().cast_mut();
    let team = job.world()?;
    // SAFETY: the mapping outlives the registration and is read only after the barrier.
    let own = unsafe { job.device().register(Region::of(base, LEN)) };
    let (own, remotes) = exchange_regions(&team, own, None)?;
    let to = 1 - team.rank();
    let bytes = pattern(team.rank(), LEN);
    let from = [Block::of(bytes.as_ptr(), LEN)];
    let operation = Operation::write(&from, Place { region: remotes[to].handle, offset: 0 });
    // SAFETY: `bytes` outlives the call.
    unsafe { job.complete("write", to as u32, operation) }?;
    team.barrier()?;
    release(job, own.handle)?;
    Ok(map[..] == pattern(to, LEN))
}

#[test]
fn process_vm_forbidden_in_mode_vm_is_an_error_with_a_remedy() {
    if !crate::harness::shm() {
        return println!("skipped: only shared memory uses process_vm");
    }
    if in_child(concat!(module_path!(), "::process_vm_forbidden_in_mode_vm_is_an_error_with_a_remedy")) {
        forbid_process_vm();
        Job::threads_with(2, &settings(&[(USER_MEMORY, "vm")]), |job| {
            let e = use_user_memory(job).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Forbidden | ErrorKind::Aborted), "{e}");
            let text = e.to_string();
            assert!(text.contains("FARSIDE_SHM_USER_MEMORY=ring") && text.contains("ptrace_scope"), "{text}");
            // The job remains usable.
            job.world()?.barrier()
        })
        .unwrap();
    }
}

/// Mounts a memory file system of `kib` KiB that only this process sees; `None` without the necessary rights.
fn small_file_system(kib: usize) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
    let size = std::ffi::CString::new(format!("size={kib}k")).unwrap();
    // SAFETY: live C strings, or null where the kernel allows it.
    let rc = unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            return None;
        }
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        );
        libc::mount(c"none".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast())
    };
    (rc == 0).then_some(dir)
}

#[test]
fn shared_memory_too_small_is_an_error_and_no_signal() {
    if !crate::harness::shm() {
        return println!("skipped: only shared memory is in a file system");
    }
    if in_child(concat!(module_path!(), "::shared_memory_too_small_is_an_error_and_no_signal")) {
        let Some(dir) = small_file_system(1024) else {
            println!("skipped: no right to mount a file system here");
            return;
        };
        let at = dir.path().to_str().unwrap();
        let small = [("FARSIDE_SHM_DIR", at), ("FARSIDE_SHM_RING", "8192"), ("FARSIDE_SHM_BOUNCE", "8192")];
        Job::threads_with(2, &settings(&small), |job| {
            let team = job.world()?;
            let allocate = |len| job.device().allocate(Region::allocated(len));
            if job.rank_number() == 0 {
                // Fills the file system, accesses every page, and releases all regions.
                let mut all = Vec::new();
                let e = loop {
                    match allocate(64 << 10) {
                        Ok(r) => all.push(r),
                        Err(e) => break e,
                    }
                };
                assert_eq!(e.kind(), ErrorKind::SharedMemoryFull, "{e}");
                assert!(e.to_string().contains("FARSIDE_SHM_DIR"), "{e}");
                assert!(all.len() > 2, "{}", all.len());
                for r in all {
                    // SAFETY: memory of that length, which no other rank uses.
                    unsafe { r.base.write_bytes(0xFF, r.len) };
                    release(job, r.handle)?;
                }
            }
            team.barrier()?;
            // Long memory and memory of the user are not in the limited file system.
            let long = allocate(2 << 20)?;
            // SAFETY: memory of that length, which no other rank uses.
            unsafe { long.base.write_bytes(0xFF, long.len) };
            release(job, long.handle)?;
            let world = World::new(job, &Setup { user_memory: true, ..Setup::default() }, 3 << 20)?;
            world.write(1 - world.me(), 0, &pattern(1, 3 << 20))?;
            world.barrier()?;
            assert!(world.own_bytes() == pattern(1, 3 << 20));
            world.barrier()
        })
        .unwrap();
        // The base segments alone exceed the file system.
        let big = [("FARSIDE_SHM_DIR", at), ("FARSIDE_SHM_RING", "16777216")];
        let e = Job::threads_with(2, &settings(&big), |_| Ok(())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::SharedMemoryFull, "{e}");
    }
}

/// If a rank of a team gets no shared memory for the signal array, all ranks of the team use messages instead, even if
/// the memory suffices for some of them.
#[test]
fn team_without_memory_for_signals_uses_messages() {
    if !crate::harness::shm() {
        return println!("skipped: only shared memory is in a file system");
    }
    if in_child(concat!(module_path!(), "::team_without_memory_for_signals_uses_messages")) {
        let Some(dir) = small_file_system(1024) else {
            println!("skipped: no right to mount a file system here");
            return;
        };
        let at = dir.path().to_str().unwrap();
        let small = [("FARSIDE_SHM_DIR", at), ("FARSIDE_SHM_RING", "8192"), ("FARSIDE_SHM_BOUNCE", "8192")];
        for pages in 0..4 {
            Job::threads_with(3, &settings(&small), |job| {
                let world = job.world()?;
                let teams: Vec<_> = (0..2).map(|_| world.split(Some(0), 0)).collect::<Result<_, _>>()?;
                if job.rank_number() == 0 {
                    leave_pages(dir.path(), pages);
                }
                world.barrier()?;
                let [sums, barriers] = [0, 1].map(|at| teams[at].as_ref().unwrap());
                for _ in 0..12 {
                    let all = farside_core::coll::allgather(sums, &[job.rank_number() as u8])?;
                    assert_eq!(all, [[0], [1], [2]]);
                    let sum = farside_core::coll::allreduce(sums, &[1], &mut |into, operand| into[0] += operand[0])?;
                    assert_eq!(sum, [3]);
                    barriers.barrier()?;
                }
                world.barrier()
            })
            .unwrap();
            std::fs::remove_file(dir.path().join("fill")).unwrap();
        }
    }
}

/// Fills a file system except for `pages` pages.
fn leave_pages(dir: &std::path::Path, pages: u64) {
    use std::io::Write;
    let mut file = std::fs::File::create(dir.join("fill")).unwrap();
    let mut written = 0;
    while file.write(&[0; 4096]).is_ok_and(|n| n == 4096) {
        written += 4096;
    }
    file.set_len(written - 4096 * pages).unwrap();
}
