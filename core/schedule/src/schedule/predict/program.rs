//! A schedule in the compact form of a prediction: a few bytes for each step. The data of a loan is sent with the
//! messages that lend and return it.

use super::Bytes;
use crate::schedule::{Action, Port, Schedule};

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    ReceiveReduce,
    Reduce,
    Copy,
    EnterSwitch,
}

const KINDS: [Kind; 6] = [Kind::Send, Kind::Receive, Kind::ReceiveReduce, Kind::Reduce, Kind::Copy, Kind::EnterSwitch];

/// A step, decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    pub(crate) kind: Kind,
    pub(crate) peer: u32,
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
    /// Number of steps of the same stretch for which the step waits; they follow, each as its distance back from this
    /// step.
    pub(crate) after: u32,
}

/// The steps of a rank in stretches: each step of a stretch waits for all steps of the earlier stretches. Numbers are
/// in base 128, low digits first.
#[derive(Debug, Default)]
pub(crate) struct Program {
    code: Box<[u8]>,
    at: u32,
    /// The number of messages that the rank sends, and the number that it receives.
    pub(crate) sends: u32,
    pub(crate) receives: u32,
}

impl Program {
    pub(crate) fn new(schedule: &Schedule, bytes: Bytes<'_>) -> Self {
        let mut program = Self::default();
        let mut code = Vec::new();
        let starts = stretches(schedule);
        let mut starts = starts.iter().copied().chain([schedule.len() as u32]);
        let (mut first, mut next) = (0, starts.next());
        for (i, step) in (0u32..).zip(schedule.steps()) {
            if next == Some(i) {
                first = i;
                next = starts.next();
                put(&mut code, u64::from(next.unwrap_or(i) - i));
            }
            let (kind, peer, tag) = match step.action.message(schedule.rank()) {
                Some((Port::Out, (_, to, tag))) => (Kind::Send, to, tag),
                Some((Port::In, (source, _, tag))) if matches!(step.action, Action::ReceiveReduce { .. }) => {
                    (Kind::ReceiveReduce, source, tag)
                }
                Some((Port::In, (source, _, tag))) => (Kind::Receive, source, tag),
                None if matches!(step.action, Action::Reduce { .. } | Action::ReadReduce { .. }) => {
                    (Kind::Reduce, 0, 0)
                }
                None if step.action == Action::EnterSwitch => (Kind::EnterSwitch, 0, 0),
                None => (Kind::Copy, 0, 0),
            };
            program.sends += u32::from(kind == Kind::Send);
            program.receives += u32::from(matches!(kind, Kind::Receive | Kind::ReceiveReduce));
            let after = step.after.iter().filter(|d| **d >= first);
            put(&mut code, kind as u64 | (after.clone().count() as u64) << 3);
            put(&mut code, u64::from(peer));
            put(&mut code, u64::from(tag));
            put(&mut code, bytes.of(schedule, &schedule.carried(step)));
            after.for_each(|d| put(&mut code, u64::from(i - d)));
        }
        program.code = code.into();
        program
    }

    /// Bytes of the encoded program.
    pub(crate) fn len(&self) -> usize {
        self.code.len()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at as usize == self.code.len()
    }

    /// The next number; at the start of a stretch, its number of steps.
    pub(crate) fn number(&mut self) -> u32 {
        self.take() as u32
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Decoded {
        let head = self.take();
        let (peer, tag, bytes) = (self.number(), self.number(), self.take());
        Decoded { kind: KINDS[head as usize & 7], peer, tag, bytes, after: (head >> 3) as u32 }
    }

    fn take(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let digit = self.code[self.at as usize];
            self.at += 1;
            number |= u64::from(digit & 0x7f) << shift;
            if digit < 0x80 {
                return number;
            }
            shift += 7;
        }
    }
}

fn put(code: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        code.push(number as u8 | 0x80);
        number >>= 7;
    }
    code.push(number as u8);
}

/// The first steps of stretches. A stretch begins at a step that waits for all steps for which no other step has
/// waited, if every later step waits for it, for a later one, or for the same steps.
fn stretches(schedule: &Schedule) -> Vec<u32> {
    let mut starts: Vec<u32> = Vec::new();
    // Whether some step waits for each step, and the number of steps for which no step waits.
    let mut waited = vec![false; schedule.len()];
    let mut ends = 0;
    for (i, step) in (0u32..).zip(schedule.steps()) {
        let latest = step.after.last().copied();
        while let Some(start) = starts.last() {
            if latest.is_some_and(|l| l >= *start) || schedule.step(*start as usize).after == step.after {
                break;
            }
            starts.pop();
        }
        ends -= step.after.iter().filter(|d| !std::mem::replace(&mut waited[**d as usize], true)).count();
        if ends == 0 {
            starts.push(i);
        }
        ends += 1;
    }
    starts
}
