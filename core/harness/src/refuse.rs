#![allow(unsafe_code)]
//! System calls that are refused, as by the filters of containers.

/// Makes the system calls with these numbers fail with `errno`, in this thread and the processes that it starts, from
/// now on.
///
/// # Panics
/// If the kernel has no filters of system calls.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    let mut filter = vec![load(0)];
    for call in calls {
        filter.extend([unless_equal(*call as u32, 1), result(libc::SECCOMP_RET_ERRNO | errno as u32)]);
    }
    impose(filter);
}

/// Makes `openat` with just these flags fail with `errno`, in this thread and the processes that it starts, from now
/// on.
///
/// # Panics
/// If the kernel has no filters of system calls.
pub fn refuse_opens(flags: i32, errno: i32) {
    // The arguments are 64-bit words from byte 16 on.
    let third = load(16 + 2 * 8);
    let refused = result(libc::SECCOMP_RET_ERRNO | errno as u32);
    impose(vec![load(0), unless_equal(libc::SYS_openat as u32, 3), third, unless_equal(flags as u32, 1), refused]);
}

fn op(code: u32, skipped: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skipped, k }
}

/// Loads a word of the data that the filter sees, of which the first one is the number of the call.
fn load(at: u32) -> libc::sock_filter {
    op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at)
}

/// Skips instructions unless the loaded word is this one.
fn unless_equal(word: u32, skipped: u8) -> libc::sock_filter {
    op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skipped, word)
}

fn result(value: u32) -> libc::sock_filter {
    op(libc::BPF_RET | libc::BPF_K, 0, value)
}

/// Installs a filter that allows everything that it does not refuse.
fn impose(mut filter: Vec<libc::sock_filter>) {
    filter.push(result(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain flags; then a live program of that length, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
