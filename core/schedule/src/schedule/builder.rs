//! Builds a schedule from steps in the order of the algorithm.

mod part;

pub(crate) use part::Part;

use super::{Action, Buffer, LENT, List, Schedule, Side, Sizes, Slice, Stored};

/// Steps that have accessed a block.
#[derive(Clone, Debug, Default)]
struct Accesses {
    writer: Option<u32>,
    readers: Vec<u32>,
    /// Loans that are not reclaimed, in which the block may be read, and written.
    lent: [u32; 2],
}

/// A loan of this rank that is not reclaimed.
#[derive(Debug)]
struct Lent {
    to: u32,
    tag: u32,
    step: u32,
    blocks: [Vec<Slice>; 2],
}

/// A loan to this rank that is not returned, and the steps that use it.
#[derive(Debug)]
struct Borrowed {
    loan: (u32, u32),
    step: u32,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// The order of a step among the others.
#[derive(Clone, Copy, Debug)]
enum Order<'a> {
    /// A signal is ordered after all earlier steps and before all later ones, any other step by the blocks that it
    /// accesses.
    Whole,
    /// The step is ordered by the blocks that it accesses.
    Blocks,
    /// The step is ordered after these steps, and by the blocks that it accesses.
    After(&'a [u32]),
}

/// Makes the schedule of one rank. Steps are added in the sequential order of the algorithm; steps that do not access
/// the same blocks may run at the same time. A step waits for an earlier step if
/// - it writes a block that the earlier one reads or writes, or reads a block that the earlier one writes;
/// - both use the same loan, and one of them writes, borrows, returns or reclaims it;
/// - one of them is a signal, an await or an in-switch barrier, or a [`fence`](Self::fence) is between them; but an
///   await does not wait for the signals and awaits directly before it.
///
/// Steps of a part (`add_part`) wait for each other as in the schedule of the part, and for earlier steps by the blocks
/// that both access; the first of them also wait for the last signals, awaits or fence.
#[derive(Debug)]
pub struct Builder {
    schedule: Schedule,
    accesses: [Vec<Accesses>; 3],
    /// Steps after the last step for which all later steps wait.
    open: Vec<u32>,
    /// Steps for which every later step waits.
    last: Vec<u32>,
    /// The first step of `last`'s run of signals and then awaits. Further awaits do not wait for this run.
    run: Option<u32>,
    /// Whether the run has awaits, so that a signal begins another run.
    awaits: bool,
    in_place: Option<u32>,
    lent: Vec<Lent>,
    borrowed: Vec<Borrowed>,
}

impl Builder {
    /// A builder for rank `rank` of `size`, whose input and output have blocks of these sizes.
    #[must_use]
    pub fn new(rank: u32, size: u32, input: Sizes, output: Sizes) -> Self {
        let (scratch, steps, slices, after) = Default::default();
        let schedule = Schedule { rank, size, input, output, scratch, steps, slices, after, is_checked: true };
        let of = |n: u32| vec![Accesses::default(); n as usize];
        let accesses = [of(input.count), of(output.count), Vec::new()];
        let (open, last, run, lent, borrowed) = Default::default();
        Self { schedule, accesses, open, last, run, awaits: false, in_place: None, lent, borrowed }
    }

    /// Makes the call in place: block `b` of the input is block `b + first` of the output, which at first has the
    /// content of the input. Reads of the input become reads of the output, and copies of a block to itself are
    /// omitted.
    pub(crate) fn in_place(mut self, first: Option<u32>) -> Self {
        self.in_place = first;
        self
    }

    /// The rank of the schedule.
    pub(crate) fn rank(&self) -> u32 {
        self.schedule.rank
    }

    /// The number of ranks.
    pub(crate) fn size(&self) -> u32 {
        self.schedule.size
    }

    /// Adds a block of scratch for each of these size numbers.
    pub fn scratch(&mut self, sizes: impl IntoIterator<Item = u32>) -> Slice {
        let first = self.schedule.scratch.len() as u32;
        self.schedule.scratch.extend(sizes);
        let all = self.schedule.scratch.len();
        self.accesses[2].resize(all, Accesses::default());
        Slice::new(Buffer::Scratch, first, all as u32 - first)
    }

    /// Adds scratch with blocks of the same sizes as those of a slice.
    pub(crate) fn scratch_like(&mut self, slice: Slice) -> Slice {
        let sizes: Vec<u32> = slice.blocks().map(|b| self.schedule.size_of(slice.buffer, b)).collect();
        self.scratch(sizes)
    }

    /// Sends blocks to a rank, as one message.
    pub fn send(&mut self, to: u32, tag: u32, from: &[Slice]) {
        self.add(Action::Send { to, tag }, from, &[]);
    }

    /// Receives one message into blocks.
    pub fn receive(&mut self, source: u32, tag: u32, into: &[Slice]) {
        self.add(Action::Receive { source, tag }, &[], into);
    }

    /// Receives one message as an operand.
    pub fn receive_reduce(&mut self, source: u32, tag: u32, side: Side, into: &[Slice]) {
        self.add(Action::ReceiveReduce { source, tag, side }, &[], into);
    }

    /// Reduces operands into blocks.
    pub fn reduce(&mut self, from: &[Slice], side: Side, into: &[Slice]) {
        self.add(Action::Reduce { side }, from, into);
    }

    /// Copies blocks.
    pub fn copy(&mut self, from: &[Slice], into: &[Slice]) {
        self.add(Action::Copy, from, into);
    }

    /// Signals a rank, after all earlier steps.
    pub fn signal(&mut self, to: u32, tag: u32) {
        self.add(Action::Signal { to, tag }, &[], &[]);
    }

    /// Signals a rank after the earlier steps that write these blocks. The signal waits for no other steps, and later
    /// steps do not wait for it.
    pub(crate) fn signal_after(&mut self, to: u32, tag: u32, blocks: &[Slice]) {
        self.add_step(Action::Signal { to, tag }, blocks, &[], Order::Blocks);
    }

    /// Waits for a signal before all later steps. Consecutive awaits wait at the same time, and while the signals
    /// directly before them are sent.
    pub fn wait(&mut self, source: u32, tag: u32) {
        self.add(Action::Await { source, tag }, &[], &[]);
    }

    /// Enters the in-switch barrier of the network after all earlier steps, and waits in it before all later ones.
    pub(crate) fn enter_switch(&mut self) {
        self.add(Action::EnterSwitch, &[], &[]);
    }

    /// Lends blocks to a rank: those of `read` to be read, those of `written` to be written.
    pub fn lend(&mut self, to: u32, tag: u32, read: &[Slice], written: &[Slice]) {
        self.add(Action::Lend { to, tag }, read, written);
    }

    /// Waits for a loan before the steps that use it.
    pub fn borrow(&mut self, source: u32, tag: u32) {
        self.add(Action::Borrow { source, tag }, &[], &[]);
    }

    /// Reads blocks of a loan, from block `first` of it on.
    pub fn read_lent(&mut self, source: u32, tag: u32, first: u32, into: &[Slice]) {
        self.add(Action::Read { source, tag, first }, &[], into);
    }

    /// Reduces blocks of a loan, as operands, from block `first` of it on.
    pub fn reduce_lent(&mut self, source: u32, tag: u32, first: u32, side: Side, into: &[Slice]) {
        self.add(Action::ReadReduce { source, tag, first, side }, &[], into);
    }

    /// Writes blocks of a loan, from block `first` of it on.
    pub fn write_lent(&mut self, to: u32, tag: u32, first: u32, from: &[Slice]) {
        self.add(Action::Write { to, tag, first }, from, &[]);
    }

    /// Returns a loan after the steps that use it.
    pub fn give_back(&mut self, to: u32, tag: u32) {
        self.add(Action::Return { to, tag }, &[], &[]);
    }

    /// Waits until a loan has been returned, before later steps that write its blocks, or read those that were lent for
    /// writing.
    ///
    /// # Panics
    /// If there is no such loan.
    pub fn reclaim(&mut self, source: u32, tag: u32) {
        let lent = self.lent.iter().find(|l| (l.to, l.tag) == (source, tag));
        let [from, into] = lent.expect("a loan that was not made is reclaimed").blocks.clone();
        self.add(Action::Reclaim { source, tag }, &from, &into);
    }

    /// Makes later steps wait for all earlier ones: the end of a round, if an algorithm must run in lockstep.
    pub fn fence(&mut self) {
        if !self.open.is_empty() {
            self.last = std::mem::take(&mut self.open);
            (self.run, self.awaits) = (None, false);
        }
    }

    fn add(&mut self, action: Action, from: &[Slice], into: &[Slice]) {
        self.add_step(action, from, into, Order::Whole);
    }

    /// Adds a step.
    ///
    /// # Panics
    /// If a slice lies outside its buffer, the input is written, a block is reduced into itself, a lent block is
    /// accessed although its loan forbids it, a loan is used that was not borrowed, the peer is this rank or not a rank
    /// of the call, or a tag is not below 2^29: a mistake of the algorithm.
    fn add_step(&mut self, action: Action, from: &[Slice], into: &[Slice], order: Order<'_>) {
        if let Some(peer) = action.peer(self.rank()) {
            assert!(peer < self.size() && peer != self.rank(), "rank {} names rank {peer}", self.rank());
        }
        if let Some(tag) = action.tag() {
            assert!(tag < LENT, "a message has the tag {tag}, which is not below {LENT}");
        }
        assert!(into.iter().all(|s| s.buffer != Buffer::Input), "the input is written");
        let moved;
        let from = match self.in_place {
            Some(first) if from.iter().any(|s| s.buffer == Buffer::Input) => {
                let at = |s: &Slice| match s.buffer {
                    Buffer::Input => Slice::output(s.first + first, s.count),
                    _ => *s,
                };
                moved = from.iter().map(at).collect::<Vec<_>>();
                &moved[..]
            }
            _ => from,
        };
        if action == Action::Copy && from == into {
            return;
        }
        if let Action::Reduce { .. } = action {
            let is_before = |a: &Slice, b: &Slice| a.first as usize + a.count as usize <= b.first as usize;
            let overlap = |a: &Slice, b: &Slice| a.buffer == b.buffer && !is_before(a, b) && !is_before(b, a);
            assert!(!from.iter().any(|a| into.iter().any(|b| overlap(a, b))), "a block is reduced into itself");
        }
        let number = self.schedule.steps.len() as u32;
        let mut after = Vec::new();
        match (action, order) {
            (Action::Signal { .. }, Order::Whole) => {
                if self.awaits || !self.open.is_empty() {
                    (self.run, self.awaits) = (None, false);
                }
                self.run.get_or_insert(number);
                after.append(&mut self.open);
                after.append(&mut self.last);
                self.last.push(number);
            }
            (Action::Await { .. }, Order::Whole) => {
                match self.run {
                    Some(first) if self.open.is_empty() => after.extend(self.schedule.step(first as usize).after),
                    _ => {
                        after.append(&mut self.open);
                        after.append(&mut self.last);
                        self.run = Some(number);
                    }
                }
                self.last.push(number);
                self.awaits = true;
            }
            (Action::EnterSwitch, _) => {
                after.append(&mut self.open);
                after.append(&mut self.last);
                (self.run, self.awaits) = (None, false);
                self.last.push(number);
            }
            _ => {
                match order {
                    Order::After(steps) if !steps.is_empty() => after.extend(steps),
                    _ => after.extend(&self.last),
                }
                self.use_loan(action, number, &mut after);
                for slice in from {
                    self.read(*slice, number, &mut after);
                }
                for slice in into {
                    self.write(*slice, number, &mut after);
                }
                if let Action::Lend { to, tag } = action {
                    self.mark(from, into, |n| n + 1);
                    self.lent.push(Lent { to, tag, step: number, blocks: [from.to_vec(), into.to_vec()] });
                }
                self.open.push(number);
            }
        }
        after.sort_unstable();
        after.dedup();
        let s = &mut self.schedule;
        let mut slices = |of: &[Slice]| {
            let start = s.slices.len() as u32;
            s.slices.extend(of.iter().filter(|slice| slice.count > 0));
            List { start, len: s.slices.len() as u32 - start }
        };
        // A signal has no data, even if it waits for blocks.
        let from = if matches!(action, Action::Signal { .. }) { &[] } else { from };
        let (from, into) = (slices(from), slices(into));
        let start = s.after.len() as u32;
        let after = {
            s.after.extend(&after);
            List { start, len: after.len() as u32 }
        };
        s.steps.push(Stored { action, from, into, after });
    }

    fn blocks(&mut self, slice: Slice) -> &mut [Accesses] {
        let all = &mut self.accesses[slice.buffer as usize];
        let (first, end) = (slice.first as usize, slice.first as usize + slice.count as usize);
        assert!(end <= all.len(), "blocks {first} to {end} of {} of the {:?}", all.len(), slice.buffer);
        &mut all[first..end]
    }

    /// Orders a step among those that use the same loan, and ends the loan if the step returns or reclaims it.
    fn use_loan(&mut self, action: Action, number: u32, after: &mut Vec<u32>) {
        let find = |all: &[Borrowed], loan| {
            all.iter().position(|b| b.loan == loan).expect("a loan that was not borrowed is used")
        };
        match action {
            Action::Borrow { source, tag } => {
                let (reads, writes) = Default::default();
                self.borrowed.push(Borrowed { loan: (source, tag), step: number, reads, writes });
            }
            Action::Read { source, tag, .. } | Action::ReadReduce { source, tag, .. } => {
                let at = find(&self.borrowed, (source, tag));
                let loan = &mut self.borrowed[at];
                after.push(loan.step);
                after.extend(&loan.writes);
                loan.reads.push(number);
            }
            Action::Write { to, tag, .. } => {
                let at = find(&self.borrowed, (to, tag));
                let loan = &mut self.borrowed[at];
                after.push(loan.step);
                after.extend(loan.reads.iter().chain(&loan.writes));
                loan.writes.push(number);
            }
            Action::Return { to, tag } => {
                let at = find(&self.borrowed, (to, tag));
                let loan = self.borrowed.swap_remove(at);
                after.push(loan.step);
                after.extend(loan.reads.iter().chain(&loan.writes));
            }
            Action::Reclaim { source, tag } => {
                if let Some(at) = self.lent.iter().position(|l| (l.to, l.tag) == (source, tag)) {
                    let Lent { step, blocks: [from, into], .. } = self.lent.swap_remove(at);
                    after.push(step);
                    self.mark(&from, &into, |n| n - 1);
                }
            }
            _ => {}
        }
    }

    /// Changes the numbers of loans in which blocks may be read, and written.
    fn mark(&mut self, from: &[Slice], into: &[Slice], change: fn(u32) -> u32) {
        for (slices, way) in [(from, 0), (into, 1)] {
            for slice in slices {
                self.blocks(*slice).iter_mut().for_each(|block| block.lent[way] = change(block.lent[way]));
            }
        }
    }

    fn read(&mut self, slice: Slice, number: u32, after: &mut Vec<u32>) {
        for block in self.blocks(slice) {
            assert!(block.lent[1] == 0, "a block that is lent to be written is read");
            after.extend(block.writer);
            block.readers.push(number);
        }
    }

    fn write(&mut self, slice: Slice, number: u32, after: &mut Vec<u32>) {
        for block in self.blocks(slice) {
            assert!(block.lent == [0, 0], "a lent block is written");
            after.extend(block.writer.replace(number).filter(|w| *w != number));
            after.extend(block.readers.drain(..).filter(|r| *r != number));
        }
    }

    /// Finishes the schedule.
    ///
    /// # Panics
    /// If a loan is not returned or not reclaimed: a mistake of the algorithm.
    #[must_use]
    pub fn done(self) -> Schedule {
        assert!(self.lent.is_empty() && self.borrowed.is_empty(), "a loan does not end");
        self.schedule
    }
}
