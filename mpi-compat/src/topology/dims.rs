//! Dimensions of a grid (MPI-5.0 section 8.5.2): factors of the number of ranks that are as close to each other as
//! possible. This is interpreted such that the difference between the greatest and the smallest factor is minimal, and
//! then the same for the factors between them.

use std::ffi::c_int;

use crate::arguments::ListOut;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::runtime::Call;

/// The divisors of a number, ascending.
fn divisors(n: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let mut all: Vec<u32> = small.iter().copied().chain(small.iter().rev().map(|d| n / d)).collect();
    all.dedup();
    all
}

/// The number of prime factors of a number.
fn prime_factors(n: u32) -> usize {
    let (mut rest, mut count) = (n, 0);
    for p in (2..).take_while(|p| p * p <= n) {
        while rest.is_multiple_of(p) {
            (rest, count) = (rest / p, count + 1);
        }
    }
    count + usize::from(rest > 1)
}

fn power(base: u32, exponent: usize) -> u64 {
    u64::from(base).saturating_pow(exponent as u32)
}

/// `n` as a product of `factors` of the divisors, the greatest first, with the minimum difference between the first and
/// the last, and then the same for the factors between them. `None` if there is no such product.
///
/// The smallest factor is at most the root of `n`, and the greatest at least the root. Of pairs with the same smallest
/// factor only the closest matters, and pairs no closer than the best so far are skipped, so that few remain: at most
/// about 25,000 calls for 2,095,133,040 and 15 factors.
fn closest(n: u32, factors: usize, divisors: &[u32]) -> Option<Vec<u32>> {
    match factors {
        0 => return (n == 1).then(Vec::new),
        1 => return divisors.binary_search(&n).ok().map(|_| vec![n]),
        _ => {}
    }
    let mut best: Option<(u32, Vec<u32>)> = None;
    let smallest = divisors.iter().enumerate().rev();
    for (i, low) in smallest.filter(|(_, low)| power(**low, factors) <= n.into() && n.is_multiple_of(**low)) {
        let greatest = (i..divisors.len()).filter(|j| power(divisors[*j], factors) >= n.into());
        for j in greatest.take_while(|j| best.as_ref().is_none_or(|(spread, _)| divisors[*j] - low < *spread)) {
            let (high, rest) = (divisors[j], n / low);
            let inner =
                if rest.is_multiple_of(high) { closest(rest / high, factors - 2, &divisors[i..=j]) } else { None };
            if let Some(inner) = inner {
                best = Some((high - low, [vec![high], inner, vec![*low]].concat()));
                break;
            }
        }
    }
    best.map(|(_, factors)| factors)
}

/// The closest factors of `n`, the greatest first. If there are more factors than `n` has prime factors, the rest are
/// 1.
fn closest_factors(n: u32, factors: usize) -> Vec<u32> {
    let mut found = closest(n, factors.min(prime_factors(n)), &divisors(n)).unwrap_or_default();
    found.resize(factors, 1);
    found
}

pub fn dims_create(_: &Call<'_>, nnodes: c_int, ndims: c_int, dims: ListOut<c_int>) -> Result {
    if nnodes <= 0 {
        return Err(fail(MPI_ERR_ARG, format!("is {nnodes}")).named("nnodes"));
    }
    if ndims < 0 || ndims == 0 && nnodes > 1 {
        return Err(fail(MPI_ERR_DIMS, format!("is {ndims}")).named("ndims"));
    }
    let mut values = dims.read(ndims.into())?;
    if let Some(dim) = values.iter().find(|dim| **dim < 0) {
        return Err(fail(MPI_ERR_DIMS, format!("contains {dim}, but dimensions cannot be negative")).named("dims"));
    }
    let given = values.iter().filter(|dim| **dim > 0).try_fold(1, |product: c_int, dim| product.checked_mul(*dim));
    let free = values.iter().filter(|dim| **dim == 0).count();
    let rest = given.filter(|given| nnodes % given == 0 && (free > 0 || *given == nnodes)).map(|given| nnodes / given);
    let rest = rest.ok_or_else(|| {
        fail(MPI_ERR_DIMS, format!("has fixed dimensions whose product does not fit {nnodes} nodes")).named("dims")
    })?;
    if free > 0 {
        let mut factors = closest_factors(rest.unsigned_abs(), free).into_iter();
        for dim in values.iter_mut().filter(|dim| **dim == 0) {
            *dim = factors.next().unwrap_or(1).cast_signed();
        }
    }
    dims.write(&values)
}
