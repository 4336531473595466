//! Matching of two-sided messages: the posted receive that gets a message, and the unexpected message that a receive
//! gets.
//!
//! A message has an envelope; a receive or probe has a [`Pattern`], in which source and tag may be wildcards. A message
//! matches the first posted of the receives with matching patterns; a receive matches the first arrived of the messages
//! with matching envelopes (MPI-5.0 section 3.5). The time to match does not depend on the number of posted receives
//! and unexpected messages: posted receives are in one queue for each pattern, of which at most four match a message,
//! and unexpected messages are in up to four queues, one for each kind of pattern, so that every receive and probe
//! reads one head.
//!
//! This is a data structure only: it sends nothing and accesses no message memory. Values from peers are only compared.

mod queues;

use std::fmt;

use queues::{Link, Queues};

/// The fields of a message that are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Envelope {
    /// The context of the team.
    pub(crate) context: u32,
    /// The sender, as a rank of the job.
    pub(crate) source: u32,
    /// The tag.
    pub(crate) tag: i32,
}

/// The fields that a receive requires, packed in two words; wildcard fields are 0.
///
/// ```
/// use farside_core::matching::Pattern;
///
/// let any_source = Pattern::new(3, None, Some(7));
/// assert_eq!((any_source.context(), any_source.source()), (3, None));
/// assert_eq!(Pattern::exact(3, 1, 7), Pattern::new(3, Some(1), Some(7)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Context and tag.
    low: u64,
    /// Source and kind.
    high: u64,
}

/// Kinds of patterns: exact, any source, any tag, any source and tag.
const KINDS: usize = 4;

impl Pattern {
    /// A pattern for messages of a context; `None` matches any source or tag.
    #[must_use]
    #[inline(always)]
    pub const fn new(context: u32, source: Option<u32>, tag: Option<i32>) -> Self {
        let (source, any_source) = match source {
            Some(source) => (source, 0),
            None => (0, 1),
        };
        let (tag, any_tag) = match tag {
            Some(tag) => (tag, 0),
            None => (0, 2),
        };
        Self { low: context as u64 | (tag as u32 as u64) << 32, high: source as u64 | (any_source + any_tag) << 32 }
    }

    /// A pattern without wildcards.
    #[must_use]
    #[inline(always)]
    pub const fn exact(context: u32, source: u32, tag: i32) -> Self {
        Self { low: context as u64 | (tag as u32 as u64) << 32, high: source as u64 }
    }

    /// The context of the team.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.low as u32
    }

    /// The sender, as a rank of the job; `None` for any.
    #[must_use]
    #[inline(always)]
    pub fn source(&self) -> Option<u32> {
        (self.kind() & 1 == 0).then_some(self.high as u32)
    }

    /// The tag; `None` for any.
    pub(crate) fn tag(&self) -> Option<i32> {
        (self.kind() & 2 == 0).then_some((self.low >> 32) as i32)
    }

    #[inline(always)]
    fn kind(&self) -> usize {
        (self.high >> 32) as usize % KINDS
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (context, source, tag) = (self.context(), self.source(), self.tag());
        f.debug_struct("Pattern").field("context", &context).field("source", &source).field("tag", &tag).finish()
    }
}

impl Envelope {
    /// The pattern of a kind that this envelope matches.
    #[inline(always)]
    fn pattern(&self, kind: usize) -> Pattern {
        let source = (kind & 1 == 0).then_some(self.source);
        Pattern::new(self.context, source, (kind & 2 == 0).then_some(self.tag))
    }
}

/// Identifies a posted receive, or an unexpected message, until it is matched or taken. Generation counts keep tickets
/// of a reused slot distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    slot: u32,
    generation: u32,
}

/// The index that stands for no slot.
const END: u32 = u32::MAX;

/// An element of up to `N` queues.
struct Slot<T, const N: usize> {
    generation: u32,
    content: Option<T>,
    links: [Link; N],
    /// Order of posting (receives) or of arrival (messages); in a free slot, the next free slot.
    number: u64,
}

/// An allocator of reusable slots.
struct Slab<T, const N: usize> {
    slots: Vec<Slot<T, N>>,
    /// The first free slot, or `END`.
    free: u32,
}

impl<T, const N: usize> Default for Slab<T, N> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: END }
    }
}

impl<T, const N: usize> Slab<T, N> {
    #[inline(always)]
    fn insert(&mut self, content: T, number: u64) -> Ticket {
        let slot = self.free;
        let Some(at) = self.slots.get_mut(slot as usize) else { return self.add(content, number) };
        self.free = at.number as u32;
        at.number = number;
        // A free slot has no content to drop.
        std::mem::forget(at.content.replace(content));
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
    fn remove(&mut self, slot: u32) -> Option<(T, [Link; N])> {
        let at = self.slots.get_mut(slot as usize)?;
        let content = at.content.take()?;
        at.generation = at.generation.wrapping_add(1);
        at.number = self.free.into();
        self.free = slot;
        Some((content, at.links))
    }
}

/// Posted receives, each with an `R`, and unexpected messages, each with an `M`.
pub(crate) struct Matching<R, M> {
    posted: Slab<(Pattern, R), 1>,
    /// Posted receives, each in the queue of its pattern.
    receives: Queues,
    /// Number of posted receives of each kind of pattern.
    waiting: [u32; KINDS],
    unexpected: Slab<(Envelope, M), KINDS>,
    /// Number of unexpected messages.
    kept: usize,
    /// Unexpected messages, each in one queue for each kind of pattern in use.
    messages: Queues,
    /// Kinds of patterns that have ever been used, by which unexpected messages are indexed.
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
            kept: 0,
            messages: Queues::default(),
            used: [true, false, false, false],
            number: 0,
        }
    }
}

impl<R, M> Matching<R, M> {
    /// Number of posted receives.
    pub(crate) fn posted(&self) -> usize {
        self.waiting.iter().map(|waiting| *waiting as usize).sum()
    }

    /// Number of unexpected messages.
    #[inline]
    pub(crate) fn unexpected(&self) -> usize {
        self.kept
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Posts a receive; the caller has found no unexpected message for it ([`take_unexpected`](Self::take_unexpected)).
    #[inline(always)]
    pub(crate) fn post(&mut self, pattern: Pattern, receive: R) -> Ticket {
        let number = self.next();
        let ticket = self.posted.insert((pattern, receive), number);
        self.receives.push(pattern, ticket.slot, 0, &mut self.posted.slots);
        self.waiting[pattern.kind()] += 1;
        ticket
    }

    /// Removes and returns the posted receive that matches a message.
    #[inline(always)]
    pub(crate) fn take_posted(&mut self, envelope: &Envelope) -> Option<R> {
        let Envelope { context, source, tag } = *envelope;
        let exact = self.receives.head(&Pattern::exact(context, source, tag));
        let first = if self.waiting[1..] == [0; KINDS - 1] {
            exact
        } else {
            self.first_posted(Envelope { context, source, tag }, exact)
        };
        self.unpost(first)
    }

    /// The receive posted first, of `exact` and the matching receives with wildcards.
    #[inline(never)]
    fn first_posted(&self, envelope: Envelope, exact: u32) -> u32 {
        let kinds = (1..KINDS).filter(|kind| self.waiting[*kind] > 0);
        let heads = kinds.map(|kind| self.receives.head(&envelope.pattern(kind)));
        let number = |slot: &u32| self.posted.slots.get(*slot as usize).map_or(u64::MAX, |at| at.number);
        heads.fold(exact, |first, other| if number(&other) < number(&first) { other } else { first })
    }

    #[inline(always)]
    fn unpost(&mut self, slot: u32) -> Option<R> {
        let ((pattern, receive), [link]) = self.posted.remove(slot)?;
        self.receives.unlink(link, 0, &mut self.posted.slots);
        self.waiting[pattern.kind()] -= 1;
        Some(receive)
    }

    /// Removes a posted receive; `None` if it has been matched.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        self.posted.get(ticket)?;
        self.unpost(ticket.slot)
    }

    /// Stores an unexpected message; the caller has found no posted receive for it
    /// ([`take_posted`](Self::take_posted)).
    pub(crate) fn keep(&mut self, envelope: Envelope, message: M) -> Ticket {
        let number = self.next();
        let ticket = self.unexpected.insert((envelope, message), number);
        self.kept += 1;
        for kind in (0..KINDS).filter(|kind| self.used[*kind]) {
            self.messages.push(envelope.pattern(kind), ticket.slot, kind, &mut self.unexpected.slots);
        }
        ticket
    }

    /// The unexpected message that a receive of `pattern` gets, and its ticket.
    pub(crate) fn probe(&mut self, pattern: &Pattern) -> Option<(Ticket, Envelope, &mut M)> {
        self.index(pattern.kind());
        let slot = self.messages.head(pattern);
        let at = self.unexpected.slots.get_mut(slot as usize)?;
        let (envelope, message) = at.content.as_mut()?;
        Some((Ticket { slot, generation: at.generation }, *envelope, message))
    }

    /// Removes and returns the unexpected message that a receive of `pattern` gets.
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(Envelope, M)> {
        self.index(pattern.kind());
        self.take_slot(self.messages.head(pattern))
    }

    /// Removes and returns an unexpected message by its ticket; `None` if it was taken.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<(Envelope, M)> {
        self.unexpected.get(ticket)?;
        self.take_slot(ticket.slot)
    }

    #[inline]
    fn take_slot(&mut self, slot: u32) -> Option<(Envelope, M)> {
        let (taken, links) = self.unexpected.remove(slot)?;
        for kind in (0..KINDS).filter(|kind| self.used[*kind]) {
            self.messages.unlink(links[kind], kind, &mut self.unexpected.slots);
        }
        self.kept -= 1;
        Some(taken)
    }

    /// Indexes unexpected messages by patterns of this kind from now on, including those already stored. Programs that
    /// never use wildcards do not pay for the other kinds.
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
            self.messages.push(envelope.pattern(kind), slot, kind, &mut self.unexpected.slots);
        }
    }

    /// Removes all receives and messages of a context whose team ends.
    pub(crate) fn drain(&mut self, context: u32) -> (Vec<R>, Vec<(Envelope, M)>) {
        let of = |slots: usize| 0..slots as u32;
        let posted: Vec<u32> = of(self.posted.slots.len())
            .filter(|i| self.posted.slots[*i as usize].content.as_ref().is_some_and(|(p, _)| p.context() == context))
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
