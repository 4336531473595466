//! Two-sided messages: a send at one rank meets a receive at another by context, source and tag (MPI-5.0 chapter 3), on
//! active messages whose header handler does the matching and names the receive's memory as the sink (Banikazemi et
//! al., "MPI-LAPI").
//!
//! | message | |
//! |---|---|
//! | short enough for the device's eager limit, and the target has room for unexpected messages of this rank | is sent at once (in one packet or several): into the posted receive, or a buffer of the target until one is posted |
//! | longer, or synchronous, or without room | waits at its sender until its receive is posted (rendezvous): bytes go straight from the source to the sink |
//!
//! Unexpected messages of one peer take at most [`UNEXPECTED`] bytes of a rank: the sender counts them, and the
//! receiver returns credits in messages of their own. No call of this module waits; callers wait with
//! [`Engine::wait`](crate::engine::Engine::wait) for an [outcome](Receive::outcome) or a [`Sending`].

mod credit;
mod mailbox;
mod offers;
mod partitioned;
mod receive;
mod send;
pub(crate) mod state;

use std::rc::Rc;

use smallvec::SmallVec;

use crate::am::{self, ActiveMessages, Counters, Delivery, HandlerId, Message, Sink, Source, Then, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Pattern};
use crate::tracked::Track;

pub use credit::UNEXPECTED;
pub use mailbox::Mailbox;
pub use offers::{MAX_PARTITIONS, PartitionedReceive};
pub use partitioned::PartitionedSend;
pub use send::{Mode, Sending};
pub use state::{Matched, Receive, Status, TwoSided};

use credit::Credits;
use state::{Coming, Unexpected};

const HANDLER: HandlerId = HandlerId(u16::MAX - 2);
const CREDIT: HandlerId = HandlerId(u16::MAX - 3);
const OFFER: HandlerId = HandlerId(u16::MAX - 4);

impl TwoSided {
    /// Registers the handlers of rank `rank` of `size`.
    pub(crate) fn register(am: &ActiveMessages, rank: u32, size: u32) -> Result<Rc<Self>> {
        let this = Rc::new(Self::new(Credits::new(rank, size)));
        let two_sided = Rc::clone(&this);
        am.register_any(HANDLER, move |m| two_sided.arrived(m))?;
        let two_sided = Rc::clone(&this);
        am.register_any(CREDIT, move |m| {
            if let (Ok(taken), None | Some([])) = (m.header.try_into().map(u64::from_le_bytes), m.data) {
                two_sided.credits.granted(m.source, taken);
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

    /// Header handler: hands the message to its posted receive, or keeps it as unexpected.
    #[inline]
    fn arrived(&self, m: Message<'_>) -> Delivery {
        let Some(envelope) = send::envelope(m.source, m.header) else {
            tracing::warn!("a malformed two-sided message from rank {} was dropped", m.source);
            return Delivery::Done;
        };
        let posted = self.matching.borrow_mut().take_posted(&envelope);
        let Some(receive) = posted else { return self.keep(envelope, m) };
        if !m.waits {
            self.credits.taken(m.source, m.len);
        }
        match m.data {
            Some(data) => {
                receive.take(envelope, data);
                Delivery::Done
            }
            None => {
                let sink = receive.matched(Some(m.token()));
                Delivery::Into(sink, Then::quick(move |received| receive.complete(envelope, received)))
            }
        }
    }

    /// Keeps a message for which no receive is posted.
    #[inline(never)]
    fn keep(&self, envelope: Envelope, m: Message<'_>) -> Delivery {
        let (unexpected, delivery) = match m.data {
            // Data that has arrived is copied, so that its sender can go on, unless the send is synchronous or too long
            // to copy.
            Some(data) if !m.waits || send::may_leave(m.header, data.len()) => {
                (Unexpected::Whole(SmallVec::from_slice(data), !m.waits), Delivery::Done)
            }
            _ if m.waits => (Unexpected::Held(m.token(), m.len), Delivery::Hold),
            _ => {
                let (unexpected, then) = coming(envelope, m.token(), m.len);
                (unexpected, Delivery::Into(Sink::buffer(Vec::new()), then))
            }
        };
        self.matching.borrow_mut().keep(envelope, unexpected);
        delivery
    }
}

impl Mailbox {
    /// Advertises credits to all peers to which they are due.
    #[inline]
    pub(crate) fn give_credit(&self) -> Result<()> {
        let credits = &self.two_sided().credits;
        while let Some((peer, taken)) = credits.owed() {
            tell(self, peer, taken)?;
        }
        Ok(())
    }
}

/// Checks that the job runs, and that the source of `pattern`, if given, is a rank of the job.
#[inline]
fn check(job: &Mailbox, operation: &'static str, pattern: &Pattern) -> Result<()> {
    match pattern.source() {
        Some(source) if source >= job.size() => {
            Err(Error::new(ErrorKind::NoSuchRank, operation).peer(source).rank(job.rank()))
        }
        _ => job.running(operation),
    }
}

/// An unexpected message whose bytes are arriving, and the completion for them.
fn coming(envelope: Envelope, token: Token, len: usize) -> (Unexpected, Then) {
    let coming = Rc::new(Coming::default());
    let filled = Rc::clone(&coming);
    let then = Then::quick(move |received| {
        let data = received.map(|r| r.buffer);
        // If a receive has taken the message meanwhile, it gets the data at once.
        match filled.receive.take() {
            Some((receive, sink)) => receive.complete_whole(envelope, sink, data),
            None => _ = filled.data.replace(Some(data)),
        }
    });
    (Unexpected::Coming(coming, token, len), then)
}

/// Advertises to a peer the number of bytes of its messages that have been received. Does not wait.
fn tell(job: &Mailbox, peer: u32, taken: u64) -> Result<()> {
    let track = Track::new();
    let source = Source::of(&[]);
    // SAFETY: the message has no data.
    #[allow(unsafe_code)]
    unsafe { am::start_send(job, peer, CREDIT, &taken.to_le_bytes(), source, Counters::default(), &track) }.map(|_| ())
}
