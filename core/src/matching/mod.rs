//! Matching of two-sided messages: which posted receive a message goes to, and which unexpected message a receive gets.
//!
//! A message has an [`Envelope`]; a receive or probe has a [`Pattern`], which may leave open source and tag. Of the receives
//! that fit a message the one posted first gets it; of the messages that fit a receive it gets the one that came first
//! (MPI-5.0 section 3.5). The time to match does not depend on how many receives or messages wait: posted receives stand in
//! one queue for each pattern, of which at most four can fit a message, and unexpected messages in up to four queues, one for each
//! kind of pattern, so that every receive and probe looks at one head.
//!
//! This is a data structure: it sends nothing and knows no memory. What comes from peers is only compared.

mod queues;

use queues::{Link, Queues};

/// What a message is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The context of the team.
    pub context: u32,
    /// The sender, as a rank of the job.
    pub source: u32,
    /// The tag.
    pub tag: i32,
}

/// What a receive asks for; `None` takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The context of the team.
    pub context: u32,
    /// The sender, as a rank of the job.
    pub source: Option<u32>,
    /// The tag.
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether a message fits.
    #[must_use]
    pub fn fits(&self, e: &Envelope) -> bool {
        self.context == e.context && self.source.is_none_or(|s| s == e.source) && self.tag.is_none_or(|t| t == e.tag)
    }

    #[inline(always)]
    fn kind(&self) -> usize {
        usize::from(self.source.is_none()) + 2 * usize::from(self.tag.is_none())
    }

    #[inline(always)]
    fn key(&self) -> Key {
        Key::new(self.kind(), self.context, self.source.unwrap_or(0), self.tag.unwrap_or(0))
    }
}

/// Kinds of patterns: exact, any source, any tag, both.
const KINDS: usize = 4;

/// A pattern in two words, in which what it leaves open is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// Context and tag.
    low: u64,
    /// Source and kind.
    high: u64,
}

impl Key {
    #[inline(always)]
    fn new(kind: usize, context: u32, source: u32, tag: i32) -> Self {
        Self { low: u64::from(context) | u64::from(tag as u32) << 32, high: u64::from(source) | (kind as u64) << 32 }
    }

    #[inline(always)]
    fn kind(&self) -> usize {
        (self.high >> 32) as usize
    }

    fn context(&self) -> u32 {
        self.low as u32
    }
}

impl Envelope {
    /// The pattern of a kind that this envelope fits.
    #[inline(always)]
    fn key(&self, kind: usize) -> Key {
        let source = if kind & 1 == 0 { self.source } else { 0 };
        Key::new(kind, self.context, source, if kind & 2 == 0 { self.tag } else { 0 })
    }
}

/// Names a posted receive, or an unexpected message, until it is matched or taken. Not used again soon: numbers have generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// No slot.
const END: u32 = u32::MAX;

/// What stands in up to `N` queues.
#[derive(Debug)]
struct Slot<T, const N: usize> {
    generation: u32,
    content: Option<T>,
    links: [Link; N],
    /// Of receives: the order of posting. Of messages: the order of coming. Of a slot that is free: the next such slot.
    number: u64,
}

/// Slots that are used again.
#[derive(Debug)]
struct Slab<T, const N: usize> {
    slots: Vec<Slot<T, N>>,
    /// The first slot that is free; `END` if there is none.
    free: u32,
    used: usize,
}

impl<T, const N: usize> Default for Slab<T, N> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: END, used: 0 }
    }
}

impl<T, const N: usize> Slab<T, N> {
    #[inline(always)]
    fn insert(&mut self, content: T, number: u64) -> Ticket {
        self.used += 1;
        let slot = self.free;
        let Some(at) = self.slots.get_mut(slot as usize) else { return self.add(content, number) };
        self.free = at.number as u32;
        (at.content, at.number) = (Some(content), number);
        Ticket { slot, generation: at.generation }
    }

    #[cold]
    fn add(&mut self, content: T, number: u64) -> Ticket {
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, content: Some(content), links: [Link::NONE; N], number });
        Ticket { slot, generation: 0 }
    }

    fn get(&self, ticket: Ticket) -> Option<&T> {
        self.slots.get(ticket.slot as usize).filter(|s| s.generation == ticket.generation)?.content.as_ref()
    }

    #[inline(always)]
    fn remove(&mut self, slot: u32) -> Option<T> {
        let at = &mut self.slots[slot as usize];
        let content = at.content.take()?;
        at.generation = at.generation.wrapping_add(1);
        at.number = self.free.into();
        self.free = slot;
        self.used -= 1;
        Some(content)
    }

    fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, generation: self.slots[slot as usize].generation }
    }
}

/// Posted receives with an `R` each, and unexpected messages with an `M` each.
#[derive(Debug)]
pub struct Matching<R, M> {
    posted: Slab<(Key, R), 1>,
    /// Each receive stands in the queue of its pattern.
    receives: Queues,
    /// Posted receives of each kind of pattern.
    waiting: [u32; KINDS],
    unexpected: Slab<(Envelope, M), KINDS>,
    /// Each unexpected message stands in a queue for each kind of pattern that is in use.
    messages: Queues,
    /// Kinds of patterns by which unexpected messages are found: those that were ever asked for.
    used: [bool; KINDS],
    number: u64,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self {
            posted: Slab::default(),
            receives: Queues::default(),
            waiting: [0; KINDS],
            unexpected: Slab::default(),
            messages: Queues::default(),
            used: [true, false, false, false],
            number: 0,
        }
    }
}

impl<R, M> Matching<R, M> {
    /// Nothing posted, nothing unexpected.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Posted receives.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted.used
    }

    /// Unexpected messages.
    #[must_use]
    #[inline]
    pub fn unexpected(&self) -> usize {
        self.unexpected.used
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Posts a receive, for which no unexpected message was there ([`take_unexpected`](Self::take_unexpected) first).
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Ticket {
        let (key, number) = (pattern.key(), self.next());
        let ticket = self.posted.insert((key, receive), number);
        self.receives.push(key, ticket.slot, 0, &mut self.posted.slots);
        self.waiting[key.kind()] += 1;
        ticket
    }

    /// The posted receive that gets a message, which is posted no more.
    #[inline]
    pub fn take_posted(&mut self, envelope: &Envelope) -> Option<R> {
        let exact = self.receives.head(&envelope.key(0));
        let first = if self.waiting[1..] == [0; KINDS - 1] { exact } else { self.first_posted(envelope, exact) };
        self.unpost(first?)
    }

    /// The receive posted first of `exact` and those that fit a message and leave something open.
    #[inline(never)]
    fn first_posted(&self, envelope: &Envelope, exact: Option<u32>) -> Option<u32> {
        let kinds = (1..KINDS).filter(|kind| self.waiting[*kind] > 0);
        let heads = kinds.filter_map(|kind| self.receives.head(&envelope.key(kind)));
        exact.into_iter().chain(heads).min_by_key(|slot| self.posted.slots[*slot as usize].number)
    }

    #[inline(always)]
    fn unpost(&mut self, slot: u32) -> Option<R> {
        self.receives.unlink(slot, 0, &mut self.posted.slots);
        let (key, receive) = self.posted.remove(slot)?;
        self.waiting[key.kind()] -= 1;
        Some(receive)
    }

    /// A posted receive that is to be no more; `None` if it has been matched.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        self.posted.get(ticket)?;
        self.unpost(ticket.slot)
    }

    /// Keeps a message for which no receive was posted ([`take_posted`](Self::take_posted) first).
    pub fn keep(&mut self, envelope: Envelope, message: M) -> Ticket {
        let number = self.next();
        let ticket = self.unexpected.insert((envelope, message), number);
        for kind in (0..KINDS).filter(|kind| self.used[*kind]) {
            self.messages.push(envelope.key(kind), ticket.slot, kind, &mut self.unexpected.slots);
        }
        ticket
    }

    /// The unexpected message that a pattern gets, and its name.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(Ticket, Envelope, &mut M)> {
        self.index(pattern.kind());
        let slot = self.messages.head(&pattern.key())?;
        let ticket = self.unexpected.ticket(slot);
        let (envelope, message) = self.unexpected.slots[slot as usize].content.as_mut()?;
        Some((ticket, *envelope, message))
    }

    /// The unexpected message that a pattern gets, which is kept no more.
    pub fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(Envelope, M)> {
        self.index(pattern.kind());
        let slot = self.messages.head(&pattern.key())?;
        self.take_slot(slot)
    }

    /// An unexpected message by its name, which is kept no more; `None` if it was taken.
    pub fn take(&mut self, ticket: Ticket) -> Option<(Envelope, M)> {
        self.unexpected.get(ticket)?;
        self.take_slot(ticket.slot)
    }

    fn take_slot(&mut self, slot: u32) -> Option<(Envelope, M)> {
        for kind in (0..KINDS).filter(|kind| self.used[*kind]) {
            self.messages.unlink(slot, kind, &mut self.unexpected.slots);
        }
        self.unexpected.remove(slot)
    }

    /// From now on unexpected messages are found by patterns of this kind: those that have come are put into its queues. A program
    /// that leaves nothing open does not pay for it.
    #[inline]
    fn index(&mut self, kind: usize) {
        if !self.used[kind] {
            self.index_first(kind);
        }
    }

    #[cold]
    fn index_first(&mut self, kind: usize) {
        self.used[kind] = true;
        let slots = self.unexpected.slots.iter().enumerate();
        let mut kept: Vec<(u64, u32, Envelope)> =
            slots.filter_map(|(i, s)| Some((s.number, i as u32, s.content.as_ref()?.0))).collect();
        kept.sort_unstable_by_key(|(number, ..)| *number);
        for (_, slot, envelope) in kept {
            self.messages.push(envelope.key(kind), slot, kind, &mut self.unexpected.slots);
        }
    }

    /// Takes all that belongs to a context: when its team ends.
    pub fn drain(&mut self, context: u32) -> (Vec<R>, Vec<(Envelope, M)>) {
        let of = |slots: usize| 0..slots as u32;
        let posted: Vec<u32> = of(self.posted.slots.len())
            .filter(|i| {
                self.posted.slots[*i as usize].content.as_ref().is_some_and(|(key, _)| key.context() == context)
            })
            .collect();
        let unexpected: Vec<u32> = of(self.unexpected.slots.len())
            .filter(|i| self.unexpected.slots[*i as usize].content.as_ref().is_some_and(|(e, _)| e.context == context))
            .collect();
        let receives = posted.into_iter().filter_map(|slot| self.unpost(slot)).collect();
        let messages = unexpected.into_iter().filter_map(|slot| self.take_slot(slot)).collect();
        (receives, messages)
    }
}

#[cfg(test)]
mod tests;
