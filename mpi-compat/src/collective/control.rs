#![allow(unsafe_code)]
//! Internal exchanges between the ranks of a team, to agree on contexts, members and edges.

use farside_core::Team;
use farside_core::coll::execute::{Arguments, CallMode, Memory, Shape};
use farside_core::coll::operation::Operation;

use super::plan::{Plan, fail_at_peers, of_bytes};
use super::reduction::{Scratch, scratch};
use crate::fail::Result;
use crate::runtime::Call;

/// The words that all ranks of a team have exchanged.
pub struct ControlExchange {
    all: Scratch,
    each: usize,
}

impl ControlExchange {
    /// Prepares an allgather of the same number of words from each rank, as part of the MPI call with this name. The
    /// result must outlive the call and is valid once the call has ended.
    pub fn plan(team: &Team, purpose: &'static str, mine: &[u32], mode: CallMode) -> Result<(Plan, Self)> {
        let bytes = size_of_val(mine) as u64;
        let (all, output) = scratch(bytes * team.size() as u64)?;
        // In place: this rank's words are already at their position of the allgather's result.
        let own = output.cast::<u32>().wrapping_add(team.rank() * mine.len());
        // SAFETY: the memory has room for the words of every rank.
        unsafe { own.copy_from_nonoverlapping(mine.as_ptr(), mine.len()) };
        let (output, shape) = (Memory::Contiguous(output), Shape::Equal(bytes));
        let arguments = Arguments { output, in_place: true, purpose, ..of_bytes(Operation::Allgather, shape) };
        Ok((Plan::new(team, &arguments, mode)?, Self { all, each: mine.len() }))
    }

    /// Exchanges words between all ranks. Collective.
    pub fn gather(call: &Call<'_>, team: &Team, mine: &[u32]) -> Result<Self> {
        let prepared = Self::plan(team, call.name, mine, CallMode::Blocking);
        let (plan, words) = prepared.map_err(|failed| fail_at_peers(call, team, failed))?;
        plan.make(call)?;
        Ok(words)
    }

    /// Sends `own_words[i]` to rank i, and returns the words that each rank has sent to this rank. Collective.
    pub fn exchange(call: &Call<'_>, team: &Team, own_words: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
        let alltoall = |from: &[u32], into: &mut [u32], shape| {
            let input = Memory::Contiguous(from.as_ptr().cast_mut().cast());
            let output = Memory::Contiguous(into.as_mut_ptr().cast());
            let arguments = Arguments { input, output, purpose: call.name, ..of_bytes(Operation::Alltoall, shape) };
            Plan::new(team, &arguments, CallMode::Blocking)?.make(call)
        };
        let lengths: Vec<u32> = own_words.iter().map(|words| words.len() as u32).collect();
        let mut theirs = vec![0; lengths.len()];
        alltoall(&lengths, &mut theirs, Shape::Equal(4))?;
        let bytes = lengths.iter().chain(&theirs).map(|n| u64::from(*n) * 4);
        let mut words = vec![0; theirs.iter().map(|n| *n as usize).sum()];
        alltoall(&own_words.concat(), &mut words, Shape::Each(bytes.collect()))?;
        let mut rest = words.into_iter();
        Ok(theirs.into_iter().map(|n| rest.by_ref().take(n as usize).collect()).collect())
    }

    /// Broadcasts the root's words; every rank passes a list of the same length. Collective.
    pub fn from(call: &Call<'_>, team: &Team, root: usize, words: &[u32]) -> Result<Vec<u32>> {
        let mut words = words.to_vec();
        let bytes = size_of_val(&words[..]) as u64;
        let output = Memory::Contiguous(words.as_mut_ptr().cast());
        let shape = Shape::Vector(bytes);
        let arguments = Arguments { root, output, purpose: call.name, ..of_bytes(Operation::Broadcast, shape) };
        Plan::new(team, &arguments, CallMode::Blocking)?.make(call)?;
        Ok(words)
    }

    /// The words of a rank.
    pub fn of(&self, rank: usize) -> &[u32] {
        // SAFETY: the memory has `each` words of every rank, and the call that wrote it has ended.
        let all = unsafe { std::slice::from_raw_parts(self.all.as_ptr().cast::<u32>(), self.all.len() * 16) };
        &all[rank * self.each..][..self.each]
    }
}
