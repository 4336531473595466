//! Cartesian grids (MPI-5.0 sections 8.5.1 and 8.5.5 to 8.5.8).

use std::ffi::c_int;

use super::{check_intra, first_ranks, on_grid, put_with, rank_of, room};
use crate::arguments::{List, ListOut, Out};
use crate::collective::plan::Caller;
use crate::comm::split;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Comm;
use crate::objects::{Grid, Topology};
use crate::runtime::Call;

/// The grid that the arguments describe, and its number of ranks, which is 0 if a dimension is 0.
fn grid(comm_size: usize, ndims: c_int, dims: List<c_int>, periods: List<c_int>) -> Result<(Grid, usize)> {
    if ndims < 0 {
        return Err(fail(MPI_ERR_DIMS, format!("is {ndims}")).named("ndims"));
    }
    let (dims, periods) = (dims.read(ndims.into())?, periods.read(ndims.into())?);
    if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
        return Err(fail(MPI_ERR_DIMS, format!("contains {dim}, but dimensions cannot be negative")).named("dims"));
    }
    let first = usize::from(!dims.contains(&0));
    let nodes = dims.iter().try_fold(first, |nodes, dim| nodes.checked_mul(*dim as usize).filter(|n| *n <= comm_size));
    let nodes = nodes.ok_or_else(|| {
        fail(MPI_ERR_DIMS, format!("describes a grid of more processes than the communicator's {comm_size}"))
            .named("dims")
    })?;
    Ok((Grid { dims, periods: periods.into_iter().map(|period| period != 0).collect() }, nodes))
}

pub fn cart_create(
    call: &Call<'_>,
    comm_old: Comm,
    ndims: c_int,
    dims: List<c_int>,
    periods: List<c_int>,
    _reorder: c_int,
    comm_cart: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, comm_old)?;
    check_intra(&caller, comm_old)?;
    let (grid, nodes) = grid(caller.local_size(), ndims, dims, periods)?;
    first_ranks(&caller, nodes, Topology::Grid(grid), comm_cart)
}

pub fn cart_map(
    call: &Call<'_>,
    comm: Comm,
    ndims: c_int,
    dims: List<c_int>,
    periods: List<c_int>,
    newrank: Out<c_int>,
) -> Result {
    let object = call.comms.get(comm)?;
    let (_, nodes) = grid(object.group.members.len(), ndims, dims, periods)?;
    newrank.set(if object.rank < nodes { object.rank as c_int } else { MPI_UNDEFINED });
    Ok(())
}

pub fn cart_sub(call: &Call<'_>, comm: Comm, remain_dims: List<c_int>, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    let (part, color, key) = on_grid(call, comm, |object, grid| {
        let remain: Vec<bool> = remain_dims.read(grid.dims.len() as i64)?.iter().map(|r| *r != 0).collect();
        let coords = grid.coords(object.rank as c_int);
        let part = |keep: bool| {
            let of = || (0..coords.len()).filter(|at| remain[*at] == keep);
            let grid = Grid {
                dims: of().map(|at| grid.dims[at]).collect(),
                periods: of().map(|at| grid.periods[at]).collect(),
            };
            let rank = grid.rank(&of().map(|at| coords[at]).collect::<Vec<_>>());
            (grid, rank)
        };
        let ((kept, key), (_, color)) = (part(true), part(false));
        Ok((kept, color.cast_unsigned(), key))
    })?;
    let made = split(&caller, Some(color), key)?;
    put_with(call, made, Topology::Grid(part), newcomm);
    Ok(())
}

pub fn cartdim_get(call: &Call<'_>, comm: Comm, ndims: Out<c_int>) -> Result {
    on_grid(call, comm, |_, grid| {
        ndims.set(grid.dims.len() as c_int);
        Ok(())
    })
}

pub fn cart_get(
    call: &Call<'_>,
    comm: Comm,
    maxdims: c_int,
    dims: ListOut<c_int>,
    periods: ListOut<c_int>,
    coords: ListOut<c_int>,
) -> Result {
    on_grid(call, comm, |object, grid| {
        room(maxdims, "maxdims", grid.dims.len())?;
        dims.write(&grid.dims)?;
        periods.write(&grid.periods.iter().map(|period| c_int::from(*period)).collect::<Vec<_>>())?;
        coords.write(&grid.coords(object.rank as c_int))
    })
}

pub fn cart_coords(call: &Call<'_>, comm: Comm, rank: c_int, maxdims: c_int, coords: ListOut<c_int>) -> Result {
    on_grid(call, comm, |object, grid| {
        rank_of(object, rank)?;
        room(maxdims, "maxdims", grid.dims.len())?;
        coords.write(&grid.coords(rank))
    })
}

pub fn cart_rank(call: &Call<'_>, comm: Comm, coords: List<c_int>, rank: Out<c_int>) -> Result {
    on_grid(call, comm, |_, grid| {
        let mut coords = coords.read(grid.dims.len() as i64)?;
        for ((at, dim), period) in coords.iter_mut().zip(&grid.dims).zip(&grid.periods) {
            if !period && !(0..*dim).contains(at) {
                let text =
                    format!("contains {at}, but that dimension is not periodic and has coordinates 0 to {}", dim - 1);
                return Err(fail(MPI_ERR_ARG, text).named("coords"));
            }
            *at = at.rem_euclid(*dim);
        }
        rank.set(grid.rank(&coords));
        Ok(())
    })
}

pub fn cart_shift(
    call: &Call<'_>,
    comm: Comm,
    direction: c_int,
    disp: c_int,
    rank_source: Out<c_int>,
    rank_dest: Out<c_int>,
) -> Result {
    on_grid(call, comm, |object, grid| {
        let dimension = usize::try_from(direction).ok().filter(|dimension| *dimension < grid.dims.len());
        let dimension = dimension.ok_or_else(|| {
            fail(MPI_ERR_DIMS, format!("is {direction}, but there are {} dimensions", grid.dims.len()))
                .named("direction")
        })?;
        let rank = object.rank as c_int;
        rank_source.set(grid.shifted(rank, dimension, disp.wrapping_neg()));
        rank_dest.set(grid.shifted(rank, dimension, disp));
        Ok(())
    })
}
