//! Two-sided messages: a send at one rank is matched with a receive at another by context, source and tag (MPI-5.0
//! chapter 3), on active messages whose header handler does the matching and names the receive's memory as the sink
//! (Banikazemi et al., "MPI-LAPI").
//!
//! | message | |
//! |---|---|
//! | short enough for the device's eager limit or its longest packet, and this rank has credits for unexpected messages at the target | is sent eagerly (in one packet or several): into the posted receive, or into a buffer of the target until one is posted |
//! | longer, or synchronous, or without credits | waits at its sender until its receive is posted (rendezvous): bytes go straight from the source to the sink |
//!
//! Unexpected messages of each peer may take [`UNEXPECTED`] bytes of a rank, and more while the ranks of its machine
//! store at most half of its available memory: the sender counts them, and the receiver returns credits in messages of
//! their own. No call of this module waits; callers wait with [`Engine::wait`](crate::engine::Engine::wait) for an
//! [outcome](Receive::outcome) or a [`Sending`].
//!
//! ```
//! use farside_core::Job;
//! use farside_core::am::{Sink, Source};
//! use farside_core::device::Block;
//! use farside_core::matching::Pattern;
//! use farside_core::two_sided::{Mode, Receive};
//!
//! Job::threads(2, |job| {
//!     let (data, mut into, peer) = ([job.rank() as u8; 3], [9; 4], 1 - job.rank_number());
//!     let receive = Receive::new();
//!     // SAFETY: both buffers are accessed again only when the receive and the send are done.
//!     let sending = unsafe {
//!         let sink = Sink::memory(into.as_mut_ptr(), into.len());
//!         job.start_receive(&receive, Pattern::new(0, Some(peer), None), sink)?;
//!         let source = Source::Bytes(Block { base: data.as_ptr().cast_mut(), len: data.len() });
//!         job.start_message(peer, 0, 7, source, Mode::Standard)?
//!     };
//!     let status = job.wait("a message", || receive.outcome())?;
//!     job.wait("its send", || sending.outcome())?;
//!     assert_eq!((into, status.tag, status.kept), ([peer as u8, peer as u8, peer as u8, 9], 7, 3));
//!     Ok(())
//! })?;
//! # Ok::<(), farside_core::Error>(())
//! ```

mod credit;
mod mailbox;
mod offers;
mod partitioned;
mod receive;
mod send;
pub(crate) mod state;

use std::rc::Rc;

use crate::am::{self, ActiveMessages, Delivery, HandlerId, Message, OnComplete};
use crate::bill::trace::Trace;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Pattern};

pub(crate) use credit::Room;
pub use credit::UNEXPECTED;
pub use mailbox::Mailbox;
pub use offers::{MAX_PARTITIONS, PartitionedReceive};
pub use partitioned::PartitionedSend;
pub(crate) use send::tag_at;
pub use send::{Mode, Sending};
pub use state::{EndedReceives, Matched, Receive, Status, TwoSided};

use credit::Credits;
use state::Unexpected;

const HANDLER: HandlerId = HandlerId(u16::MAX - 2);
const CREDIT: HandlerId = HandlerId(u16::MAX - 3);
const OFFER: HandlerId = HandlerId(u16::MAX - 4);

impl TwoSided {
    /// Registers the handlers of rank `rank` of `size`, whose unexpected messages may use a part of `room`. Arriving
    /// messages are also recorded in `trace`.
    pub(crate) fn register(
        am: &ActiveMessages,
        (rank, size): (u32, u32),
        room: Room,
        trace: Option<Rc<Trace>>,
    ) -> Result<Rc<Self>> {
        let this = Rc::new(Self::new(Credits::new(rank, size, room)));
        let two_sided = Rc::clone(&this);
        match trace {
            None => am.register_any(HANDLER, move |m| two_sided.arrived(m))?,
            Some(trace) => am.register_any(HANDLER, move |m| {
                if let Some(envelope) = send::envelope(m.source, m.header) {
                    trace.arrived(envelope.context, envelope.tag, m.source, m.len);
                }
                two_sided.arrived(m)
            })?,
        }
        let two_sided = Rc::clone(&this);
        am.register_any(CREDIT, move |m| {
            if let (Ok(total), None | Some([])) = (m.header.try_into().map(u64::from_le_bytes), m.data()) {
                two_sided.credits.granted(m.source, total);
            }
            Delivery::Done
        })?;
        let two_sided = Rc::clone(&this);
        am.register_any(OFFER, move |m| {
            two_sided.offered(m.source, m.header);
            Delivery::Done
        })?;
        Ok(this)
    }

    /// Header handler: passes the message to its posted receive, or stores it as unexpected.
    #[inline]
    fn arrived(&self, m: Message<'_>) -> Delivery {
        let Some(envelope) = send::envelope(m.source, m.header) else {
            tracing::warn!("a malformed two-sided message from rank {} was dropped", m.source);
            return Delivery::Done;
        };
        let posted = self.matching.borrow_mut().take_posted(&envelope);
        let Some(receive) = posted else { return self.keep(envelope, m) };
        if !m.waits {
            self.credits.count_received(m.source, m.len);
        }
        match m.payload {
            Some(data) => {
                receive.take(envelope, data);
                Delivery::Done
            }
            None => {
                let sink = receive.matched(Some(m.token()));
                Delivery::Into(sink, OnComplete::inline(move |received| receive.complete(envelope, received)))
            }
        }
    }

    /// Stores a message for which no receive is posted.
    #[inline(never)]
    fn keep(&self, envelope: Envelope, m: Message<'_>) -> Delivery {
        // A message of this rank to itself that is synchronous or too long to copy waits until its receive has begun.
        let copies = !m.waits || send::may_leave(m.header, m.len);
        if !m.waits {
            self.credits.stored(m.source, m.len);
        }
        let (body, delivery) = am::Unexpected::of(m, copies);
        self.matching.borrow_mut().keep(envelope, Unexpected { body, counted: !m.waits });
        delivery
    }
}

impl Mailbox {
    /// Advertises credits to all peers to which they are due.
    #[inline]
    pub(crate) fn give_credit(&self) -> Result<()> {
        let credits = &self.two_sided().credits;
        while let Some((peer, total)) = credits.owed() {
            am::notify(self, peer, CREDIT, &total.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Checks that the job runs, and that the source of `pattern`, if given, is a rank of the job.
#[inline]
fn check(job: &Mailbox, operation: &'static str, pattern: &Pattern) -> Result<()> {
    match pattern.source() {
        Some(source) if source >= job.size_number() => {
            Err(Error::new(ErrorKind::NoSuchRank, operation).peer(source).rank(job.rank()))
        }
        _ => job.running(operation),
    }
}
