//! The last messages of a simulation.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::network::Time;

/// The last messages of a simulation, which can be read after its end, even if it ends with an error
/// ([`Simulation::trace`](crate::sim::Simulation::trace)). Its text has a line per message, in the order of completion
/// at the receivers: the time of completion; sender and receiver; operation and bytes; the time at which it was posted;
/// and for how long it waited to enter the network (for the sender's interface, for a link that was down, for
/// retransmission, for the messages before it), was in transit, and waited for the receiver's interface.
///
/// ```
/// use farside_core::sim::{Simulation, Trace};
///
/// let trace = Trace::last(2);
/// Simulation::new(2).trace(&trace).run(|job| job.world()?.barrier())?;
/// assert_eq!(trace.to_string().lines().count(), 2);
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<Ring>>);

#[derive(Debug)]
struct Ring {
    room: usize,
    lines: VecDeque<Line>,
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) what: &'static str,
    pub(super) bytes: usize,
    /// The times at which the message was posted, entered the network, reached the receiver's interface, and was
    /// complete.
    pub(super) times: [Time; 4],
}

impl Trace {
    /// An empty trace that stores the last `messages` messages.
    #[must_use]
    pub fn last(messages: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring { room: messages, lines: VecDeque::new() })))
    }

    pub(super) fn landed(&self, line: Line) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.lines.len() == ring.room {
            ring.lines.pop_front();
        }
        if ring.room > 0 {
            ring.lines.push_back(line);
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |time: Time| time as f64 / 1e6;
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Line { from, to, what, bytes, times: [posted, entered, arrived, landed] } in &ring.lines {
            let waits = [posted, entered, arrived, landed];
            let [enter, way, port] = std::array::from_fn(|i| micro(waits[i + 1].saturating_sub(*waits[i])));
            let (at, posted) = (micro(*landed), micro(*posted));
            writeln!(
                f,
                "{at:12.3} us: {from} -> {to} {what}, {bytes} bytes, posted at {posted:.3} us; waited {enter:.3} us to \
                 enter, {way:.3} us on the way, {port:.3} us at the receiver"
            )?;
        }
        Ok(())
    }
}
