//! Plans that a communicator keeps, because programs make the same calls again.

use std::cell::RefCell;
use std::ffi::c_int;

use farside_core::coll::execute::{Collective, Memory};
use farside_core::coll::operation::Operation;

use super::plan::Plan;
use crate::constants::*;
use crate::fail::Result;
use crate::handle::{Handle, Op, Type, is_predefined};
use crate::objects::CommObject;
use crate::operands::{Address, Buffer};
use crate::runtime::Call;

/// The most plans that are kept for a communicator.
const MAX_PLANS: usize = 8;

/// A call without the addresses of its buffers. All calls on a communicator that are equal in it have the same plan, but
/// for the addresses.
#[derive(Clone, Copy)]
pub struct Key {
    arguments: Arguments,
    send: Address,
    recv: Address,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Arguments {
    operation: Operation,
    counts: [i64; 2],
    types: [Type; 2],
    are_in_place: [bool; 2],
    op: Op,
    root: c_int,
}

impl Key {
    pub fn new(operation: Operation, send: Buffer, recv: Buffer) -> Self {
        let arguments = Arguments {
            operation,
            counts: [send.n, recv.n],
            types: [send.datatype, recv.datatype],
            are_in_place: [send.address.is_in_place(), recv.address.is_in_place()],
            op: MPI_OP_NULL,
            root: 0,
        };
        Self { arguments, send: send.address, recv: recv.address }
    }

    pub fn op(mut self, op: Op) -> Self {
        self.arguments.op = op;
        self
    }

    pub fn root(mut self, root: c_int) -> Self {
        self.arguments.root = root;
        self
    }

    /// Whether a plan that was made for this call can be kept.
    pub fn keeps(&self, plan: &Plan) -> bool {
        let is_piece = |memory: &Memory| matches!(memory, Memory::None | Memory::Contiguous(_));
        plan.spans.is_some() && self.arguments.are_lasting() && is_piece(&plan.input) && is_piece(&plan.output)
    }
}

impl Arguments {
    /// Whether the handles refer to the same objects as long as the communicator exists.
    fn are_lasting(&self) -> bool {
        self.types.iter().all(|datatype| is_predefined(datatype.value())) && is_predefined(self.op.value())
    }
}

/// A plan, the call that was made by it, and the distances of its input and output from the addresses in the call.
pub struct Kept {
    arguments: Arguments,
    made: Option<Collective>,
    plan: Plan,
    distances: [isize; 2],
}

/// The plans that a communicator keeps, in the order of their last uses. A plan that is in use is missing.
#[allow(clippy::vec_box)] // A plan is moved in each call.
#[derive(Default)]
pub struct Plans(RefCell<Vec<Box<Kept>>>);

/// The address of memory in one piece.
fn address(memory: &Memory) -> Option<*mut u8> {
    if let Memory::Contiguous(address) = memory { Some(*address) } else { None }
}

impl Plans {
    /// The plans that a communicator keeps.
    #[inline]
    pub fn of(comm: &CommObject) -> Option<&Self> {
        comm.plans.get_or_init(|| Box::new(Self::default())).downcast_ref()
    }

    /// Takes the kept plan of a call and sets its addresses to those of the call. Returns `None` if no plan is kept, or if
    /// a buffer is null or overlaps the other one, which the caller reports.
    #[inline]
    pub fn take(&self, key: &Key) -> Option<Box<Kept>> {
        let mut plans = self.0.borrow_mut();
        let at = plans.iter().rposition(|kept| kept.arguments == key.arguments)?;
        let kept = &mut plans[at];
        let mut ranges = [0..0, 0..0];
        let sides = [(&mut kept.plan.input, key.send), (&mut kept.plan.output, key.recv)];
        for (i, (memory, given)) in sides.into_iter().enumerate() {
            let Memory::Contiguous(base) = memory else { continue };
            let len = kept.plan.spans?[i];
            if len > 0 && given.is_constant() {
                return None;
            }
            *base = given.at().wrapping_offset(kept.distances[i]);
            ranges[i] = base.addr()..base.addr().saturating_add(len);
        }
        let [input, output] = ranges;
        if input.start < output.end && output.start < input.end && !input.is_empty() && !output.is_empty() {
            return None;
        }
        Some(plans.remove(at))
    }

    /// Keeps the plan of a call that has ended, as the one that was used last.
    #[inline]
    pub fn give(&self, kept: Box<Kept>) {
        let mut plans = self.0.borrow_mut();
        if plans.len() == MAX_PLANS {
            plans.remove(0);
        }
        plans.push(kept);
    }
}

impl Kept {
    pub fn new(key: &Key, plan: Plan) -> Box<Self> {
        let distance = |memory: &Memory, given: Address| {
            address(memory).map_or(0, |address| address.addr().wrapping_sub(given.at().addr()).cast_signed())
        };
        let distances = [distance(&plan.input, key.send), distance(&plan.output, key.recv)];
        Box::new(Self { arguments: key.arguments, made: None, plan, distances })
    }

    /// Makes the call, and waits until it has ended.
    #[inline]
    pub fn make(&mut self, call: &Call<'_>) -> Result {
        if let Some(made) = &mut self.made
            && self.plan.repeat(call, made)?
        {
            return Ok(());
        }
        self.made = Some(self.plan.make(call)?).filter(Collective::is_light);
        Ok(())
    }
}
