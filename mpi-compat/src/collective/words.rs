#![allow(unsafe_code)]
//! What this library tells the ranks of a team, in words: to agree on contexts, members and edges.

use farside_core::Team;
use farside_core::coll::execute::Memory;
use farside_core::coll::operation::Operation;

use super::plan::{Counts, Plan};
use super::reduction::{Scratch, scratch};
use crate::fail::Result;
use crate::runtime::Call;

/// Words that each rank of a team tells all others.
pub struct Words {
    all: Scratch,
    each: usize,
}

impl Words {
    /// An allgather of words, as many from every rank, which are there when it has ended; until then they must be kept.
    pub fn plan(team: &Team, mine: &[u32]) -> Result<(Plan, Self)> {
        let bytes = size_of_val(mine) as u64;
        let (all, output) = scratch(bytes * team.size() as u64)?;
        // In place: what this rank says is in the place where all get it.
        let own = output.cast::<u32>().wrapping_add(team.rank() * mine.len());
        // SAFETY: the memory has so many words of each rank.
        unsafe { own.copy_from_nonoverlapping(mine.as_ptr(), mine.len()) };
        let plan = Plan::new(team, Operation::Allgather, Counts::Equal(bytes));
        let plan = Plan { output: Memory::Contiguous(output), in_place: true, ..plan };
        Ok((plan, Self { all, each: mine.len() }))
    }

    /// Tells all others, and waits for what they say. Collective.
    pub fn gather(call: &Call<'_>, team: &Team, mine: &[u32]) -> Result<Self> {
        let (plan, words) = Self::plan(team, mine)?;
        plan.make(call)?;
        Ok(words)
    }

    /// An exchange of words: `said[i]` goes to rank i, and what rank i said comes back. Collective.
    pub fn exchange(call: &Call<'_>, team: &Team, said: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
        let alltoall = |from: &[u32], into: &mut [u32], counts| {
            let input = Memory::Contiguous(from.as_ptr().cast_mut().cast());
            let output = Memory::Contiguous(into.as_mut_ptr().cast());
            Plan { input, output, ..Plan::new(team, Operation::Alltoall, counts) }.make(call)
        };
        let lengths: Vec<u32> = said.iter().map(|words| words.len() as u32).collect();
        let mut theirs = vec![0; lengths.len()];
        alltoall(&lengths, &mut theirs, Counts::Equal(4))?;
        let bytes = lengths.iter().chain(&theirs).map(|n| u64::from(*n) * 4).collect();
        let mut words = vec![0; theirs.iter().map(|n| *n as usize).sum()];
        alltoall(&said.concat(), &mut words, Counts::Each(bytes))?;
        let mut rest = words.into_iter();
        Ok(theirs.into_iter().map(|n| rest.by_ref().take(n as usize).collect()).collect())
    }

    /// A broadcast of words; every rank gives as many. Collective.
    pub fn from(call: &Call<'_>, team: &Team, root: usize, words: &[u32]) -> Result<Vec<u32>> {
        let mut words = words.to_vec();
        let output = Memory::Contiguous(words.as_mut_ptr().cast());
        let counts = Counts::Vector(size_of_val(&words[..]) as u64);
        Plan { root, output, ..Plan::new(team, Operation::Broadcast, counts) }.make(call)?;
        Ok(words)
    }

    /// Those of a rank.
    pub fn of(&self, rank: usize) -> &[u32] {
        // SAFETY: the memory has so many words of each rank, and the call that wrote it has ended.
        let all = unsafe { std::slice::from_raw_parts(self.all.as_ptr().cast::<u32>(), self.all.len() * 16) };
        &all[rank * self.each..][..self.each]
    }
}
