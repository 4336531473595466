//! Credits: how many packets this rank may send to a peer before the peer has taken earlier ones, so that packets never
//! meet a rank without a receive buffer, which would have the HCA send all that is under way again and again.
//!
//! The peer counts the packets that it has taken, for each source, in registered memory. It advertises the count with every
//! packet that it sends itself (immediate data), which costs no message. A sender that receives no count for half of its
//! window reads the counter: one read for every quarter of the window, and, where the window is used up, again and again
//! with longer and longer pauses. The peer takes no part in that.
//!
//! Three quarters of a rank's buffers are for packets, an equal part for each peer; the others are for signals and
//! notifications, of which synchronization keeps few under way.

use std::time::{Duration, Instant};

/// The bit of the immediate data of a packet; without it, the packet defines a slot for notifications.
const PACKET: u32 = 1 << 31;

const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MOST: Duration = Duration::from_millis(5);

/// The immediate data of a packet: advertises how many packets were taken from its receiver.
pub(crate) fn advertise(taken: u64) -> u32 {
    PACKET | (taken as u32 & (PACKET - 1))
}

/// The low bits of the count that a packet advertises; `None` for one that defines a slot.
pub(crate) fn advertised(immediate: u32) -> Option<u32> {
    (immediate & PACKET != 0).then_some(immediate & (PACKET - 1))
}

/// Packets that may be under way to each peer, or wait there.
pub(crate) fn window(buffers: usize, ranks: usize) -> u64 {
    (buffers * 3 / 4 / ranks.saturating_sub(1).max(1)).max(1) as u64
}

/// What a sender is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) send: bool,
    /// Read the peer's counter.
    pub(crate) ask: bool,
}

/// The packets to one peer.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    sent: u64,
    taken: u64,
    /// A read of the counter is under way.
    asking: bool,
    /// `sent` when it was asked last.
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

    /// The counter was read, or could not be (`None`).
    pub(crate) fn answered(&mut self, taken: Option<u64>) {
        self.asking = false;
        let news = taken.is_some_and(|t| t > self.taken);
        self.pause = if news { Duration::ZERO } else { (self.pause * 2).clamp(PAUSE, PAUSE_MOST) };
        self.due = Some(Instant::now() + self.pause);
        // A peer's count is not believed beyond what was sent.
        self.taken = self.taken.max(taken.unwrap_or(0)).min(self.sent);
    }

    /// A packet of the peer has advertised the low bits of its count.
    #[inline]
    pub(crate) fn received(&mut self, low: u32) {
        // Never more are under way than the bits distinguish.
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
