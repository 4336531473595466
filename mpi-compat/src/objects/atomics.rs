//! Predefined operators, and the atomic operations of windows that correspond to some of them.

use farside_datatype::Named;
use farside_rma::Op as Operation;
use farside_rma::op::ElementType;
use farside_rma::raw::element_type;

use super::kernels::{Predefined, is_swapped};
use crate::constants::*;

/// The predefined operators of reductions.
pub const PREDEFINED: [(Op, Predefined); 12] = [
    (MPI_SUM, Predefined::Sum),
    (MPI_MIN, Predefined::Min),
    (MPI_MAX, Predefined::Max),
    (MPI_PROD, Predefined::Prod),
    (MPI_BAND, Predefined::Band),
    (MPI_BOR, Predefined::Bor),
    (MPI_BXOR, Predefined::Bxor),
    (MPI_LAND, Predefined::Land),
    (MPI_LOR, Predefined::Lor),
    (MPI_LXOR, Predefined::Lxor),
    (MPI_MINLOC, Predefined::Minloc),
    (MPI_MAXLOC, Predefined::Maxloc),
];

/// The atomic operation of windows for a predefined operator; `None` for operators on pairs and for user-defined
/// operators.
#[inline]
pub fn operation(op: Op) -> Option<Operation> {
    Some(match op {
        MPI_SUM => Operation::Sum,
        MPI_PROD => Operation::Prod,
        MPI_MIN => Operation::Min,
        MPI_MAX => Operation::Max,
        MPI_LAND => Operation::Land,
        MPI_LOR => Operation::Lor,
        MPI_LXOR => Operation::Lxor,
        MPI_BAND => Operation::Band,
        MPI_BOR => Operation::Bor,
        MPI_BXOR => Operation::Bxor,
        MPI_REPLACE => Operation::Replace,
        MPI_NO_OP => Operation::NoOp,
        _ => return None,
    })
}

/// The atomic operations that windows support on elements of a predefined type.
#[derive(Clone, Copy)]
pub struct Atomics {
    pub ty: ElementType,
    /// One bit for each [`Operation`], by its number.
    allowed: u16,
    /// Whether the standard allows a compare-and-swap.
    pub is_swapped: bool,
}

impl Atomics {
    pub fn of(named: Named) -> Option<Self> {
        let ty = element_type(named)?;
        let mut allowed = 1 << Operation::Replace as u16 | 1 << Operation::NoOp as u16;
        for (op, kind) in PREDEFINED {
            if let Some(operation) = operation(op).filter(|_| kind.allowed(named)) {
                allowed |= 1 << operation as u16;
            }
        }
        Some(Self { ty, allowed, is_swapped: is_swapped(named) })
    }

    #[inline(always)]
    pub fn allow(self, operation: Operation) -> bool {
        self.allowed & 1 << operation as u16 != 0
    }
}
