//! The table of live keys, in the base segment of the owner: the program memory that peers may access directly.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{ShmDevice, layout};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::Mapping;
use crate::processes;

/// Interval between two checks of a transfer whose process may be stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The unused entries of this rank's table.
pub(super) struct LiveKeys {
    windows: RefCell<Vec<u32>>,
    lent: RefCell<Vec<u32>>,
}

impl Default for LiveKeys {
    fn default() -> Self {
        let [windows, lent] = layout::LIVE_KEYS_OF.map(|range| RefCell::new(range.rev().collect()));
        Self { windows, lent }
    }
}

impl LiveKeys {
    fn of(&self, brief: bool) -> &RefCell<Vec<u32>> {
        if brief { &self.lent } else { &self.windows }
    }

    /// Enters a key of memory that is exported for one transfer (`brief`) or of a window; returns its entry, or `None`
    /// if all entries for such memory are used.
    pub(super) fn enter(&self, own: &Mapping, key: u64, brief: bool) -> Option<u32> {
        let entry = self.of(brief).borrow_mut().pop()?;
        own.word(layout::live_key(entry)).store(key, Ordering::SeqCst);
        Some(entry)
    }

    /// Withdraws a key: a peer that has not announced a transfer by now will not make one.
    pub(super) fn end(&self, own: &Mapping, entry: u32) {
        own.word(layout::live_key(entry)).store(0, Ordering::SeqCst);
        self.of(layout::LIVE_KEYS_OF[1].contains(&entry)).borrow_mut().push(entry);
    }
}

/// Waits for the direct transfers of peers, or of the peer `user` alone, that had begun before the live key `key` was
/// cleared.
///
/// # Errors
/// `System` if a transfer does not end within `FARSIDE_TIMEOUT_S`, because its process is stopped. With `however_long`
/// this is only logged and the wait continues: the caller uses the memory as soon as it is released, and the stopped
/// process may continue.
pub(super) fn await_transfers(device: &ShmDevice, key: u64, user: Option<u32>, however_long: bool) -> Result<()> {
    let all = 0..device.shared.peers.len();
    let numbers =
        user.and_then(|user| device.number(user, "release memory").ok()).map_or(all, |number| number..number + 1);
    let transfer = layout::vm_transfer(device.shared.me, key);
    let (mut start, mut is_late) = (None, false);
    for number in numbers {
        let peer = &device.shared.peers[number];
        let mut turns = 0u32;
        // SeqCst: after the store to the live key; see `ShmDevice::vm`. It includes the Acquire.
        while peer.word(layout::VM_TRANSFER).load(Ordering::SeqCst) == transfer {
            turns = turns.wrapping_add(1);
            // A process that has ended makes no more accesses and leaves its word as it is.
            if (is_late || turns.is_multiple_of(1024)) && processes::ended(&device.processes).contains(&number) {
                break;
            }
            if is_late {
                std::thread::sleep(POLL_INTERVAL);
            } else if start.get_or_insert_with(Instant::now).elapsed() > device.timeout {
                let cause = "the peer is still reading or writing the memory; its process may be stopped";
                let error = Error::new(ErrorKind::System, "release memory").peer(device.shared.ranks[number]);
                let error = error.device("shm").cause(format!("{cause}; waited for {:?}", device.timeout));
                if !however_long {
                    return Err(error);
                }
                tracing::warn!("waiting until the peer continues or ends: {error}");
                is_late = true;
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}
