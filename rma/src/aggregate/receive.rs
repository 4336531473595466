//! Messages that arrive, whose bytes are those of a peer.

use std::rc::Rc;

use farside_core::Result;
use farside_core::am::{Delivery, Message, OnComplete, Received, Sink};

use super::blocks::Block;
use super::grid::WINDOW;
use super::state::Aggregator;
use super::wire::{Header, Kind};

impl Aggregator {
    /// The header handler.
    pub(super) fn receive(self: &Rc<Self>, message: &Message<'_>) -> Delivery {
        let header = Header::read(message.header);
        let header = header.filter(|h| self.team.members().get(h.sender as usize) == Some(&message.source));
        let Some(header) = header.filter(|header| self.accept(header, message.len)) else {
            self.malformed(message.source, "malformed message of aggregated operations");
            return Delivery::Done;
        };
        let (shared, source) = (Rc::clone(self), message.source);
        let sink = match header.kind {
            Kind::Block => Sink::buffer(self.blocks.borrow_mut().take_spare()),
            _ => Sink::discard(),
        };
        let then = move |_: &_, received: Result<Received>| {
            match received.map(|received| shared.take(header, received.buffer)) {
                Ok(true) => {}
                Ok(false) => shared.malformed(source, "unexpected message of aggregated operations"),
                Err(e) => shared.fail(e),
            }
            shared.turn()
        };
        Delivery::Into(sink, OnComplete::deferred(then))
    }

    /// Whether a message of `len` bytes with this header may arrive; counts a block.
    fn accept(&self, header: &Header, len: usize) -> bool {
        if header.kind != Kind::Block {
            return len == 0;
        }
        let is_block = len > 0 && len <= self.lengths.block && len.is_multiple_of(self.lengths.record);
        if !is_block || usize::from(header.level) >= self.grid.hops() {
            return false;
        }
        let mut blocks = self.blocks.borrow_mut();
        let incoming = blocks.incoming.entry((header.sender, header.level)).or_default();
        incoming.open += 1;
        incoming.open <= WINDOW
    }

    /// Takes a message; `false` if it cannot be one.
    fn take(&self, header: Header, bytes: Vec<u8>) -> bool {
        self.has_received.set(true);
        let blocks = &mut *self.blocks.borrow_mut();
        let Header { level, phase, sender, words, .. } = header;
        match header.kind {
            Kind::Block => {
                let Some(incoming) = blocks.incoming.get_mut(&(sender, level)) else { return false };
                let is_current = phase == blocks.phase || phase == blocks.phase.wrapping_add(1);
                let block = Block { from: Some((sender, level)), phase, bytes, at: 0 };
                // A short message may be complete before a longer one that was sent earlier.
                if words[0] == incoming.next + 1 && incoming.early.is_none() {
                    incoming.early = Some(block);
                } else if words[0] == incoming.next {
                    blocks.arrived.push_back(block);
                    incoming.next += 1;
                    if let Some(early) = incoming.early.take() {
                        blocks.arrived.push_back(early);
                        incoming.next += 1;
                    }
                } else {
                    return false;
                }
                is_current
            }
            Kind::Consumed => {
                let number = (usize::from(level) < self.grid.hops())
                    .then(|| self.grid.channel_to(sender as usize, usize::from(level)))
                    .flatten();
                number.is_some_and(|number| blocks.was_consumed(number))
            }
            Kind::Report => blocks.tree.reported(sender as usize, words),
            Kind::Verdict => blocks.tree.decided(sender as usize, words[0] != 0),
            Kind::Flushed => {
                self.flushed.set(words[0]);
                true
            }
        }
    }
}
