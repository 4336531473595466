//! Credits: the number of packets that this rank may send to a peer before the peer has received earlier ones. They
//! prevent packets from arriving at a rank without a receive buffer, which would make the HCA retransmit all
//! outstanding packets repeatedly.
//!
//! The peer counts the packets that it has received, per source, in registered memory. It advertises the count in the
//! immediate data of every packet that it sends itself, which costs no message. A sender that has received no count for
//! half of its window reads the counter: one read for every quarter of the window and, once the window is used up,
//! repeated reads with growing pauses. The peer's processor is not involved in the reads.
//!
//! Three quarters of a rank's buffers are for packets, in equal parts for each peer, and at least one for each; the
//! others are for signals and notifications. These have no credits, which would take a message for each of them if
//! there are many peers: synchronization has at most one or two per peer outstanding, and there are at least two
//! buffers per peer. If more are outstanding, the HCA retransmits without a limit, and the message arrives up to 0.64
//! ms after its receiver polls.

use std::time::{Duration, Instant};

/// Set in the immediate data of a packet; if clear, the message defines a slot for notifications.
const PACKET: u32 = 1 << 31;

const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MOST: Duration = Duration::from_millis(5);

/// The immediate data of a packet: advertises the number of packets that the sender has received from the receiver.
pub(crate) fn advertise(taken: u64) -> u32 {
    PACKET | (taken as u32 & (PACKET - 1))
}

/// The low bits of the advertised count; `None` for a message that defines a slot.
pub(crate) fn advertised(immediate: u32) -> Option<u32> {
    (immediate & PACKET != 0).then_some(immediate & (PACKET - 1))
}

/// Maximum number of receive buffers that a rank allocates because of the number of ranks.
const MAX_BUFFERS_FOR_RANKS: usize = 16_384;

/// Number of receive buffers of a rank: the larger of the setting and three for each rank of the job (at most
/// [`MAX_BUFFERS_FOR_RANKS`]), because a rank that computes in an epoch with all others gets a post and a notification
/// from each while it has not reposted the receives of the last notifications.
pub(crate) fn buffers(setting: usize, ranks: usize) -> usize {
    setting.max((3 * ranks).min(MAX_BUFFERS_FOR_RANKS))
}

/// Maximum number of packets to one peer that it has not received yet.
pub(crate) fn window(buffers: usize, ranks: usize) -> u64 {
    (buffers * 3 / 4 / ranks.saturating_sub(1).max(1)).max(1) as u64
}

/// The next action that the sender may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) send: bool,
    /// Whether to read the peer's counter.
    pub(crate) ask: bool,
}

/// Credits for the packets to one peer.
#[derive(Default)]
pub(crate) struct Credit {
    sent: u64,
    taken: u64,
    /// Whether a read of the counter is outstanding.
    asking: bool,
    /// `sent` at the time of the last read.
    asked_at: u64,
    due: Option<Instant>,
    pause: Duration,
}

impl Credit {
    #[inline]
    pub(crate) fn advise(&self, window: u64) -> Advice {
        let out = self.sent - self.taken;
        if out < window.div_ceil(2) {
            return Advice { send: true, ask: false };
        }
        let full = out >= window;
        let ask = !self.asking
            && (self.sent - self.asked_at >= window.div_ceil(4)
                || (full && self.due.is_none_or(|due| Instant::now() >= due)));
        Advice { send: !full, ask }
    }

    #[inline]
    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    pub(crate) fn asked(&mut self) {
        self.asking = true;
        self.asked_at = self.sent;
    }

    /// Records the result of reading the counter; `None` if the read failed.
    pub(crate) fn answered(&mut self, taken: Option<u64>) {
        self.asking = false;
        let news = taken.is_some_and(|t| t > self.taken);
        self.pause = if news { Duration::ZERO } else { (self.pause * 2).clamp(PAUSE, PAUSE_MOST) };
        self.due = Some(Instant::now() + self.pause);
        // The count is clamped: a peer cannot have received more packets than were sent.
        self.taken = self.taken.max(taken.unwrap_or(0)).min(self.sent);
    }

    /// Records the low bits of a count that a packet of the peer has advertised.
    #[inline]
    pub(crate) fn received(&mut self, low: u32) {
        // Fewer packets are outstanding than the bits can distinguish.
        let ahead = low.wrapping_sub(self.taken as u32) & (PACKET - 1);
        let taken = self.taken + u64::from(ahead);
        if taken <= self.sent {
            self.taken = taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_divides_three_quarters_of_the_buffers() {
        assert_eq!([1, 2, 4, 1000].map(|ranks| window(512, ranks)), [384, 384, 128, 1]);
    }

    #[test]
    fn every_peer_has_a_buffer_for_a_packet_and_one_for_a_notification() {
        for ranks in [2, 256, 385, 1000, 8000] {
            let buffers = buffers(512, ranks);
            assert!(window(buffers, ranks) as usize * (ranks - 1) + ranks - 1 <= buffers, "{ranks} ranks");
        }
        assert_eq!([4, 256, 1000, 100_000].map(|ranks| buffers(512, ranks)), [512, 768, 3000, MAX_BUFFERS_FOR_RANKS]);
    }

    #[test]
    fn sender_asks_at_half_of_the_window_and_stops_at_its_end() {
        let mut c = Credit::default();
        let (mut sends, mut asks) = (0, 0);
        while c.advise(16).send {
            if c.advise(16).ask {
                c.asked();
                c.answered(Some(0));
                asks += 1;
            }
            c.sent();
            sends += 1;
        }
        assert_eq!((sends, asks), (16, 2), "at 8 and at 12");
        c.answered(Some(5));
        assert!(c.advise(16).send);
        c.answered(Some(99));
        assert_eq!(c.taken, 16, "more than was sent");
    }

    #[test]
    fn packets_advertise_the_count_also_where_its_bits_wrap() {
        let mut c = Credit { sent: (1 << 31) + 10, taken: (1 << 31) - 3, ..Credit::default() };
        assert_eq!(advertised(0), None, "a packet that defines a slot");
        c.received(advertised(advertise((1 << 31) + 4)).unwrap());
        assert_eq!(c.taken, (1 << 31) + 4);
        c.received(advertised(advertise((1 << 31) + 2)).unwrap());
        assert_eq!(c.taken, (1 << 31) + 4, "an older count");
    }
}
