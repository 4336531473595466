//! Checks that steps of a rank that touch the same block are ordered by their dependencies.

use super::{Fault, FaultKind};
use crate::coll::schedule::{Buffer, Schedule};

/// Steps that have touched a block.
#[derive(Clone, Debug, Default)]
struct Touched {
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// Checks at every rank that steps that touch the same block are ordered if one of them writes it, and that no step
/// waits for a later one.
pub(crate) fn ordered(schedules: &[Schedule]) -> Result<(), Fault> {
    let mut before = Vec::new();
    let mut touched: [Vec<Touched>; 3] = Default::default();
    for schedule in schedules {
        for buffer in [Buffer::Input, Buffer::Output, Buffer::Scratch] {
            let blocks = &mut touched[buffer as usize];
            blocks.resize_with(schedule.blocks_of(buffer) as usize, Touched::default);
            for block in blocks {
                block.writer = None;
                block.readers.clear();
            }
        }
        ordered_of(schedule, &mut before, &mut touched)?;
    }
    Ok(())
}

/// `before` is scratch memory: for each step, one bit for each step that precedes it.
fn ordered_of(schedule: &Schedule, before: &mut Vec<u64>, touched: &mut [Vec<Touched>; 3]) -> Result<(), Fault> {
    let words = schedule.len().div_ceil(64);
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
        for (slice, block) in step.from.iter().flat_map(|s| s.blocks().map(move |b| (s, b))) {
            let t = &mut touched[slice.buffer as usize][block as usize];
            if let Some(writer) = t.writer.filter(|w| !is_before(*w)) {
                return Err(race(writer, slice.buffer, block));
            }
            t.readers.push(i);
        }
        for (slice, block) in step.into.iter().flat_map(|s| s.blocks().map(move |b| (s, b))) {
            let t = &mut touched[slice.buffer as usize][block as usize];
            if let Some(other) = t.writer.iter().chain(&t.readers).find(|o| !is_before(**o)) {
                return Err(race(*other, slice.buffer, block));
            }
            t.writer = Some(i);
            t.readers.clear();
        }
    }
    Ok(())
}
