//! Two-sided messages: a send at one rank meets a receive at another by context, source and tag (MPI-5.0 chapter 3), on
//! active messages whose header handler does the matching and names the receive's memory as the sink (Banikazemi et al.,
//! "MPI-LAPI").
//!
//! | message | |
//! |---|---|
//! | short enough for the device's eager limit, and the target has room for early messages of this rank | goes at once (one packet, or some): into the posted receive, or a buffer of the target until one is posted |
//! | longer, or synchronous, or without room | waits at its sender until its receive is there (rendezvous): bytes go straight from the source to the sink |
//!
//! Early messages of one peer take at most [`EARLY`] bytes of a rank, since their sender counts them; the receiver says now
//! and then how much it has taken, in a message of its own. Nothing here waits: a wait is the caller's, by
//! [`Job::wait`] for an [outcome](Receive::outcome) or a [`Sending`].

mod credit;
mod receive;
mod send;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::am::{ActiveMessages, Delivery, HandlerId, Message, Sink, Then};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::matching::{Envelope, Matching, Pattern, Ticket};

pub use credit::EARLY;
pub use receive::{Matched, Receive, Status};
pub use send::{Mode, Sending};

use credit::Credits;
use receive::Early;

const HANDLER: HandlerId = HandlerId(u16::MAX - 2);
const CREDIT: HandlerId = HandlerId(u16::MAX - 3);

/// The two-sided messages of a rank.
pub struct TwoSided {
    matching: RefCell<Matching<Rc<Receive>, Early>>,
    credits: Credits,
}

impl fmt::Debug for TwoSided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matching = self.matching.borrow();
        f.debug_struct("TwoSided").field("posted", &matching.posted()).field("early", &matching.early()).finish()
    }
}

impl TwoSided {
    /// Registers the handlers of rank `rank` of `size`.
    pub(crate) fn register(am: &ActiveMessages, rank: u32, size: u32) -> Result<Rc<Self>> {
        let this = Rc::new(Self { matching: RefCell::default(), credits: Credits::new(rank, size) });
        let two_sided = Rc::clone(&this);
        am.register(HANDLER, move |m| two_sided.arrived(m))?;
        let two_sided = Rc::clone(&this);
        am.register(CREDIT, move |m| {
            if let (Ok(taken), None | Some([])) = (m.header.try_into().map(u64::from_le_bytes), m.data) {
                two_sided.credits.granted(m.source, taken);
            }
            Delivery::Done
        })?;
        Ok(this)
    }

    /// Receives that are posted, and early messages.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let matching = self.matching.borrow();
        (matching.posted(), matching.early())
    }

    /// Whether credits are to be advertised to a peer.
    #[inline]
    pub(crate) fn owes_credit(&self) -> bool {
        self.credits.owes()
    }

    /// The handler's part: the message goes to its receive, or is kept.
    #[inline]
    fn arrived(&self, m: Message<'_>) -> Delivery {
        let Some(envelope) = send::envelope(m.source, m.header) else {
            tracing::warn!("a malformed two-sided message from rank {} was dropped", m.source);
            return Delivery::Done;
        };
        let posted = self.matching.borrow_mut().take_posted(&envelope);
        let Some((_, receive)) = posted else { return self.keep(envelope, m) };
        if !m.waits {
            self.credits.taken(m.source, m.len);
        }
        let sink = receive.matched(m.data.is_none().then(|| m.token()));
        match m.data {
            Some(data) => {
                receive.complete(envelope, sink.take_whole(data));
                Delivery::Done
            }
            None => Delivery::Into(sink, Then::quick(move |received| receive.complete(envelope, received))),
        }
    }

    /// No receive is posted for a message.
    fn keep(&self, envelope: Envelope, m: Message<'_>) -> Delivery {
        let (early, delivery) = match m.data {
            // What is here is taken, so that its sender can go on, unless it wants to wait.
            Some(data) if !m.waits || send::may_leave(m.header, data.len()) => {
                (Early::Whole(data.into(), !m.waits), Delivery::Done)
            }
            _ if m.waits => (Early::Held(m.token(), m.len), Delivery::Hold),
            _ => {
                let (early, then) = Early::coming(envelope, m.len);
                (early, Delivery::Into(Sink::buffer(Vec::new()), then))
            }
        };
        self.matching.borrow_mut().keep(envelope, early);
        delivery
    }
}

impl Job {
    /// Says what receives have taken, where that is due. Called in every turn of progress after something has come.
    pub(crate) fn give_credit(&self) -> Result<()> {
        let credits = &self.two_sided().credits;
        while let Some((peer, taken)) = credits.owed() {
            credit::tell(self, peer, taken)?;
        }
        Ok(())
    }
}

fn wrong(operation: &'static str, cause: String) -> Error {
    Error::new(ErrorKind::BadArgument, operation).cause(cause)
}

/// Whether a receive of `pattern` names a rank that there is.
fn check(job: &Job, operation: &'static str, pattern: &Pattern) -> Result<()> {
    match pattern.source {
        Some(source) if source >= job.size() => {
            Err(Error::new(ErrorKind::NoSuchRank, operation).peer(source).rank(job.rank()))
        }
        _ => job.running(operation),
    }
}

/// What a posted receive is found by.
type Posted = Option<Ticket>;
