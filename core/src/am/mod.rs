//! Active messages: a header handler at the target names the destination of the data, and a completion handler runs
//! when the data has arrived (LAPI; Banikazemi et al., "MPI-LAPI").
//!
//! Header handlers, and `Inline` completions, run in the dispatcher's own context, one at a time:
//! they must not wait and cannot send, for they are not given the job. `Deferred` completions
//! run after the dispatcher has returned, get the job, and may send and wait.
//!
//! | message | packets |
//! |---|---|
//! | header and data fit into one packet | 1 |
//! | longer, up to the device's [`eager_intra`](crate::device::MessageCutOffs::eager_intra) or `eager_inter` bytes | ⌈bytes / packet⌉ |
//! | longer, contiguous, and fits into a [packet](crate::device::Capabilities::max_lent_packet) that the device sends from the caller's memory | 1, and the acknowledgement of the device |
//! | longer still: rendezvous | a request to send (RTS) with the header; when the handler, or later [`deliver`], has named a sink, a clear to send (CTS); the data |
//! | longer still, where the target [reads](crate::device::MessageCutOffs) the sender's memory | RTS, and when the data has been read, the end (FIN) |
//! | the same from 128 KiB on, where both ranks have a processor and share memory, and the sender is awake | RTS; the target's sink (SINK), into which the sender writes segments while the target reads others; if it has written any, their number (WRITTEN); FIN |
//! | to the rank itself | none: one copy from the source to the sink |
//!
//! The handlers of messages to one target run in the order of sending, whenever the data arrives. [`try_send`] and
//! [`start_send`] never wait: [`start_send`] queues a message that the device cannot take yet, and any wait sends it.
//!
//! ```
//! use std::cell::Cell;
//! use std::rc::Rc;
//!
//! use farside_core::Job;
//! use farside_core::am::{self, Counters, Delivery, HandlerId, Sink, OnComplete};
//!
//! const SUM: HandlerId = HandlerId(1);
//!
//! Job::threads(3, |job| {
//!     let sum = Rc::new(Cell::new(0u64));
//!     let own = Rc::clone(&sum);
//!     job.active_messages().register(SUM, move |message| {
//!         let (own, by) = (Rc::clone(&own), u64::from(message.header[0]));
//!         let add = move |bytes: &[u8]| own.set(own.get() + by * bytes.len() as u64);
//!         match message.data() {
//!             // All of it arrived with the header.
//!             Some(data) => {
//!                 add(data);
//!                 Delivery::Done
//!             }
//!             None => Delivery::Into(
//!                 Sink::buffer(Vec::new()),
//!                 OnComplete::inline(move |received| add(&received.unwrap_or_default().buffer)),
//!             ),
//!         }
//!     })?;
//!     job.world()?.barrier()?;
//!     am::send(job, 0, SUM, &[2], &vec![1; 100_000], Counters::default())?;
//!     if job.rank() == 0 {
//!         job.wait("three messages", || Ok((sum.get() == 600_000).then_some(())))?;
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), farside_core::Error>(())
//! ```

mod arrivals;
mod claims;
mod counter;
mod data;
mod handler;
mod messenger;
mod offer;
mod outgoing;
mod own;
mod packet;
mod payload;
mod pieces;
mod queue;
mod read;
mod receive;
mod send;
mod sink;
pub(crate) mod state;
mod tasks;
mod to_self;
mod turn;
mod unexpected;
mod write;

pub use counter::{Counter, Counters};
pub use handler::{HandlerId, InlineFn, Listening, Message, Token};
pub use messenger::Messenger;
pub(crate) use packet::user_header;
pub(crate) use payload::Payload;
pub(crate) use read::is_read_if_mapped;
pub use receive::{abandon, deliver, is_held};
pub(crate) use send::{SHORT_DATA, eager, is_eager, notify, try_send_whole};
pub use send::{room, send, send_any, start_rendezvous, start_send, try_send};
pub use sink::{Layout, Received, Sink, Source};
pub(crate) use unexpected::Unexpected;

/// The active messages of a job.
pub(crate) type ActiveMessages = state::ActiveMessages<Messenger>;
/// The decision of a header handler.
pub type Delivery = handler::Delivery<Messenger>;
/// A completion: runs when the data of a message is complete, or has failed.
pub type OnComplete = handler::OnComplete<Messenger>;

/// Longest user header in bytes.
pub const MAX_HEADER: usize = 128;
/// Maximum length of a message in bytes, which bounds what a peer can make a rank allocate: senders refuse longer
/// messages, and receivers treat them as malformed.
pub(crate) const MAX_MESSAGE: u64 = 1 << 40;
