//! Keys of collective calls, by which a team finds a call that was made before.

use std::ffi::c_int;

use farside_core::Team;
use farside_core::coll::execute::{self, Prepared};
use farside_core::coll::operation::Operation;

use crate::handle::{Handle, Op, is_predefined};
use crate::operands::{Address, Buffer};

/// A call as its arguments describe it. Calls on a communicator that are equal but for the addresses of their buffers are one
/// call to the core, but for the addresses.
#[derive(Clone, Copy)]
pub struct Key {
    operation: Operation,
    /// The counts, types, operator and root, and whether the buffers are `MPI_IN_PLACE`.
    words: [u64; 7],
    addresses: [Address; 2],
}

const TYPES: [usize; 2] = [2, 3];
const OP: usize = 4;
const ROOT: usize = 5;

impl Key {
    #[inline]
    pub fn new(operation: Operation, send: Buffer, recv: Buffer) -> Self {
        let addresses = [send.address, recv.address];
        let [types, counts] = [[send, recv].map(|of| of.datatype.value() as u64), [send, recv].map(|of| of.n as u64)];
        let in_place = addresses.map(|address| u64::from(address.is_in_place()));
        let words = [counts[0], counts[1], types[0], types[1], 0, 0, in_place[0] | in_place[1] << 1];
        Self { operation, words, addresses }
    }

    #[inline]
    pub fn op(mut self, op: Op) -> Self {
        self.words[OP] = op.value() as u64;
        self
    }

    #[inline]
    pub fn root(mut self, root: c_int) -> Self {
        self.words[ROOT] = u64::from(root.cast_unsigned());
        self
    }

    /// The key in the core, with the addresses; `None` if a handle may refer to another object in a later call.
    pub fn lasting(&self) -> Option<(execute::Key, [*mut u8; 2])> {
        let is_lasting = |at: usize| is_predefined(self.words[at] as usize);
        let lasts = TYPES.into_iter().chain([OP]).all(is_lasting);
        lasts.then(|| (execute::Key::new(self.operation, self.words), self.addresses.map(Address::at)))
    }

    /// The call that the team keeps, on these buffers; `None` if it keeps none, or if a buffer is null or overlaps the other
    /// one, which the caller reports.
    #[inline]
    pub fn recall(&self, team: &Team) -> Option<Prepared> {
        let addresses = self.addresses.map(|address| (!address.is_constant()).then(|| address.at()));
        Prepared::recall(team, &execute::Key::new(self.operation, self.words), addresses)
    }
}
