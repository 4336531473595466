//! Envelope and contents of a datatype (MPI-4.1 §5.1.13): the constructor and its arguments.

use std::sync::Arc;

use crate::arrays::{Darray, Subarray};
use crate::datatype::{Datatype, Repr};
use crate::named::Named;

/// The constructor of a type with its arguments, as they were given.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the arguments of the constructor of the same name
pub enum Contents {
    Named(Named),
    Dup(Datatype),
    Contiguous { count: u64, old: Datatype },
    Vector { count: u64, blocklength: u64, stride: i64, old: Datatype },
    Hvector { count: u64, blocklength: u64, stride: i64, old: Datatype },
    Indexed { blocklengths: Arc<[u64]>, displacements: Arc<[i64]>, old: Datatype },
    Hindexed { blocklengths: Arc<[u64]>, displacements: Arc<[i64]>, old: Datatype },
    IndexedBlock { blocklength: u64, displacements: Arc<[i64]>, old: Datatype },
    HindexedBlock { blocklength: u64, displacements: Arc<[i64]>, old: Datatype },
    Struct { blocklengths: Arc<[u64]>, displacements: Arc<[i64]>, types: Arc<[Datatype]> },
    Subarray(Arc<Subarray>),
    Darray(Arc<Darray>),
    Resized { lb: i64, extent: i64, old: Datatype },
}

/// The constructor alone; names as MPI's `MPI_COMBINER_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    Resized,
}

/// How many arguments of each kind `MPI_Type_get_contents` returns, by the table of §5.1.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The constructor.
    pub combiner: Combiner,
    /// Counts, block lengths, displacements in elements, and the like.
    pub integers: usize,
    /// Displacements, strides and bounds in bytes.
    pub addresses: usize,
    /// Types.
    pub datatypes: usize,
}

impl Contents {
    /// The one type that it was made from; `None` for predefined types and structs.
    #[must_use]
    pub fn old(&self) -> Option<&Datatype> {
        match self {
            Self::Named(_) | Self::Struct { .. } => None,
            Self::Dup(old)
            | Self::Contiguous { old, .. }
            | Self::Vector { old, .. }
            | Self::Hvector { old, .. }
            | Self::Indexed { old, .. }
            | Self::Hindexed { old, .. }
            | Self::IndexedBlock { old, .. }
            | Self::HindexedBlock { old, .. }
            | Self::Resized { old, .. } => Some(old),
            Self::Subarray(array) => Some(&array.old),
            Self::Darray(array) => Some(&array.old),
        }
    }
}

impl Datatype {
    /// The constructor that made it, with its arguments.
    #[must_use]
    pub fn contents(&self) -> Contents {
        match &self.0 {
            Repr::Named(named) => Contents::Named(*named),
            Repr::Derived(derived) => derived.contents.clone(),
        }
    }

    /// The constructor that made it, and the number of its arguments.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        let (combiner, integers, addresses, datatypes) = match self.contents() {
            Contents::Named(_) => (Combiner::Named, 0, 0, 0),
            Contents::Dup(_) => (Combiner::Dup, 0, 0, 1),
            Contents::Contiguous { .. } => (Combiner::Contiguous, 1, 0, 1),
            Contents::Vector { .. } => (Combiner::Vector, 3, 0, 1),
            Contents::Hvector { .. } => (Combiner::Hvector, 2, 1, 1),
            Contents::Indexed { blocklengths: n, .. } => (Combiner::Indexed, 2 * n.len() + 1, 0, 1),
            Contents::Hindexed { blocklengths: n, .. } => (Combiner::Hindexed, n.len() + 1, n.len(), 1),
            Contents::IndexedBlock { displacements: n, .. } => (Combiner::IndexedBlock, n.len() + 2, 0, 1),
            Contents::HindexedBlock { displacements: n, .. } => (Combiner::HindexedBlock, 2, n.len(), 1),
            Contents::Struct { types: n, .. } => (Combiner::Struct, n.len() + 1, n.len(), n.len()),
            Contents::Subarray(array) => (Combiner::Subarray, 3 * array.sizes.len() + 2, 0, 1),
            Contents::Darray(array) => (Combiner::Darray, 4 * array.gsizes.len() + 4, 0, 1),
            Contents::Resized { .. } => (Combiner::Resized, 0, 2, 1),
        };
        Envelope { combiner, integers, addresses, datatypes }
    }
}
