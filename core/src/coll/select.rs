//! Which algorithm a call is made by.

use super::operation::{Algorithm, Call};
use super::table;
use crate::error::{Error, ErrorKind, Result};
use crate::team::Team;

/// The algorithm of a call of elements of so many bytes, and its parameters.
///
/// # Errors
/// `Unsupported` if there is none.
pub(super) fn choose(
    team: &Team,
    call: &Call<'_>,
    _element: usize,
    commutative: bool,
) -> Result<(&'static Algorithm, Vec<u32>)> {
    table::of(call.operation)
        .filter(|a| commutative || !a.commutative)
        .map(|a| (a, a.defaults()))
        .find(|(a, parameters)| (a.applies)(&Call { parameters, ..*call }))
        .ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, call.operation.name())
                .cause(format!("no algorithm for {} ranks", team.size()))
        })
}
