//! Keys of collective calls, by which a team finds the cached plan of an earlier equal call.

use std::ffi::c_int;

use farside_core::Team;
use farside_core::coll::execute::{self, Prepared};
use farside_core::coll::operation::Operation;

use crate::handle::{Handle, Op, is_predefined};
use crate::operands::{Address, Buffer};

/// A call as its arguments describe it. Calls on a communicator that differ only in the addresses of their buffers
/// share one prepared call of the core.
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

    /// The key for the core, and the addresses; `None` if one of the handles may refer to another object in a later
    /// call.
    pub fn cacheable(&self) -> Option<(execute::Key, [*mut u8; 2])> {
        let is_lasting = |at: usize| is_predefined(self.words[at] as usize);
        let lasts = TYPES.into_iter().chain([OP]).all(is_lasting);
        lasts.then(|| (execute::Key::new(self.operation, self.words), self.addresses.map(Address::at)))
    }

    /// The team's cached call, applied to these buffers; `None` if no call is cached, or if a buffer is null or the two
    /// overlap, which the caller reports.
    #[inline]
    pub fn cached_call(&self, team: &Team) -> Option<Prepared> {
        let addresses = self.addresses.map(|address| (!address.is_constant()).then(|| address.at()));
        Prepared::recall(team, &execute::Key::new(self.operation, self.words), addresses)
    }
}
