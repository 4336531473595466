//! Checks that steps of a rank that access the same block, or use the same loan, are ordered by their dependencies, and
//! that no step accesses a lent block although its loan forbids it.
//!
//! A loan is ordered at both ends: the lender does not access the blocks before the borrower has returned it, and the
//! borrower accesses them only between borrow and return. So accesses of several ranks to a block are ordered too.

use super::{Fault, FaultKind};
use crate::schedule::{Action, Buffer, Schedule, Step};

/// Steps that have accessed a block.
#[derive(Clone, Debug, Default)]
struct Accesses {
    writer: Option<usize>,
    readers: Vec<usize>,
    /// Loans that are not reclaimed, in which the block may be read, and written.
    lent: [u32; 2],
}

/// A loan at one of its two ranks: the step that lends or borrows it, and the steps that use it.
#[derive(Clone, Debug)]
struct Loan {
    /// Whether this rank lends, the other rank, and the tag.
    key: (bool, u32, u32),
    begin: usize,
    reads: Vec<usize>,
    writes: Vec<usize>,
    ended: bool,
}

/// Checks at every rank that steps that access the same block are ordered if one of them writes it, and that no step
/// waits for a later one.
pub(crate) fn ordered(schedules: &[Schedule]) -> Result<(), Fault> {
    let mut before = Vec::new();
    let mut accesses: [Vec<Accesses>; 3] = Default::default();
    for schedule in schedules {
        for buffer in [Buffer::Input, Buffer::Output, Buffer::Scratch] {
            let blocks = &mut accesses[buffer as usize];
            blocks.resize_with(schedule.blocks_of(buffer) as usize, Accesses::default);
            for block in blocks {
                block.writer = None;
                block.readers.clear();
                block.lent = [0, 0];
            }
        }
        ordered_of(schedule, &mut before, &mut accesses)?;
    }
    Ok(())
}

/// `before` is scratch memory: for each step, one bit for each step that precedes it.
fn ordered_of(schedule: &Schedule, before: &mut Vec<u64>, accesses: &mut [Vec<Accesses>; 3]) -> Result<(), Fault> {
    let words = schedule.len().div_ceil(64);
    let mut loans: Vec<Loan> = Vec::new();
    before.clear();
    before.resize(schedule.len() * words, 0);
    for (i, step) in schedule.steps().enumerate() {
        let (earlier, own) = before.split_at_mut(i * words);
        for dep in step.after {
            let dep = *dep as usize;
            if dep >= i {
                return Err(Fault::at(schedule, i, FaultKind::Deadlock, format_args!("waits for step {dep}")));
            }
            let theirs = &earlier[dep * words..][..words];
            own[..=i / 64].iter_mut().zip(theirs).for_each(|(o, e)| *o |= e);
            own[dep / 64] |= 1 << (dep % 64);
        }
        let own = &own[..words];
        let is_before = |other: usize| other == i || own[other / 64] >> (other % 64) & 1 == 1;
        let race = |other: usize, buffer: Buffer, block: u32| {
            let what = format_args!("and step {other} touch block {block} of the {buffer:?}, in no order").to_string();
            Fault::at(schedule, i, FaultKind::Race, what)
        };
        use_loan(&mut loans, schedule, i, is_before).map_err(|(kind, what)| Fault::at(schedule, i, kind, what))?;
        if let Action::Reclaim { .. } = step.action {
            mark(accesses, step, |n| n.saturating_sub(1));
        }
        let lent = |buffer: Buffer, block: u32| {
            Fault::at(
                schedule,
                i,
                FaultKind::Race,
                format_args!("touches block {block} of the {buffer:?}, which is lent"),
            )
        };
        for (slice, block) in step.from.iter().flat_map(|s| s.blocks().map(move |b| (s, b))) {
            let t = &mut accesses[slice.buffer as usize][block as usize];
            if let Some(writer) = t.writer.filter(|w| !is_before(*w)) {
                return Err(race(writer, slice.buffer, block));
            }
            if t.lent[1] > 0 {
                return Err(lent(slice.buffer, block));
            }
            t.readers.push(i);
        }
        for (slice, block) in step.into.iter().flat_map(|s| s.blocks().map(move |b| (s, b))) {
            let t = &mut accesses[slice.buffer as usize][block as usize];
            if let Some(other) = t.writer.iter().chain(&t.readers).find(|o| !is_before(**o)) {
                return Err(race(*other, slice.buffer, block));
            }
            if t.lent != [0, 0] {
                return Err(lent(slice.buffer, block));
            }
            t.writer = Some(i);
            t.readers.clear();
        }
        if let Action::Lend { .. } = step.action {
            mark(accesses, step, |n| n + 1);
        }
    }
    match loans.iter().find(|loan| !loan.ended) {
        Some(loan) => Err(Fault::at(schedule, loan.begin, FaultKind::Unmatched, "the loan does not end")),
        None => Ok(()),
    }
}

/// Changes the numbers of loans in which the blocks of a step may be read, and written.
fn mark(accesses: &mut [Vec<Accesses>; 3], step: Step<'_>, change: fn(u32) -> u32) {
    for (slices, way) in [(step.from, 0), (step.into, 1)] {
        for (slice, block) in slices.iter().flat_map(|s| s.blocks().map(move |b| (s, b))) {
            let lent = &mut accesses[slice.buffer as usize][block as usize].lent[way];
            *lent = change(*lent);
        }
    }
}

/// Checks step `i` against the steps before it that use the same loan.
fn use_loan(
    loans: &mut Vec<Loan>,
    schedule: &Schedule,
    i: usize,
    is_before: impl Fn(usize) -> bool,
) -> Result<(), (FaultKind, &'static str)> {
    let step = schedule.step(i);
    let (key, writes, ends) = match step.action {
        Action::Lend { to: peer, tag } | Action::Borrow { source: peer, tag } => {
            let key = (matches!(step.action, Action::Lend { .. }), peer, tag);
            let (reads, writes) = Default::default();
            loans.push(Loan { key, begin: i, reads, writes, ended: false });
            return Ok(());
        }
        Action::Read { source, tag, .. } | Action::ReadReduce { source, tag, .. } => {
            ((false, source, tag), false, false)
        }
        Action::Write { to, tag, .. } => ((false, to, tag), true, false),
        Action::Return { to, tag } => ((false, to, tag), true, true),
        Action::Reclaim { source, tag } => ((true, source, tag), true, true),
        _ => return Ok(()),
    };
    let loan = loans.iter_mut().find(|loan| loan.key == key && !loan.ended);
    let loan = loan.ok_or((FaultKind::Unmatched, "uses a loan that has not begun, or has ended"))?;
    let reads = loan.reads.iter().filter(|_| writes);
    if !loan.writes.iter().chain([&loan.begin]).chain(reads).all(|step| is_before(*step)) {
        return Err((FaultKind::Race, "uses a loan in no order with another step that uses it"));
    }
    let begin = schedule.step(loan.begin);
    if matches!(step.action, Action::Reclaim { .. }) && (begin.from, begin.into) != (step.from, step.into) {
        return Err((FaultKind::Shape, "reclaims other blocks than were lent"));
    }
    if writes {
        loan.writes.push(i)
    } else {
        loan.reads.push(i)
    }
    loan.ended = ends;
    Ok(())
}
