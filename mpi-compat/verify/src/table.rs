//! The checked calls, and the checks of each. The build script generates their wrappers.

/// The pattern of a call's data, which determines the sizes and signatures that must agree between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The call has no data, or no data on which ranks must agree.
    None,
    /// The root sends the same data to all ranks.
    Bcast,
    /// The root sends each rank its part.
    Scatter,
    /// Each rank sends to the root.
    Gather,
    /// Each rank sends the same data to all ranks.
    Allgather,
    /// Each rank sends a different part to each rank.
    Alltoall,
    /// All ranks contribute the same amount of data, which is reduced.
    Reduce,
    /// All ranks contribute the same amount of data, which is reduced; each rank receives its part of the result.
    ReduceScatter,
    /// Each rank sends the same data to all its neighbours.
    NeighborAllgather,
    /// Each rank sends each of its neighbours its part.
    NeighborAlltoall,
    /// A group from which all ranks of a communicator create a new communicator.
    Group,
    /// A group from which only its members create a communicator.
    GroupAlone,
    /// The edges of this rank in a graph.
    Edges,
    /// The whole graph, on every rank.
    Graph,
    /// Memory that becomes a window.
    Window,
    /// Local: a message between two ranks.
    Message,
    /// Local: an access to a window.
    Access,
    /// Local: a reduction.
    Local,
    /// Local: a lock of a window, and the calls that complete operations to a rank.
    Lock,
    /// Local: ranks of a group.
    Ranks,
}

/// One call, in its blocking form; `MPI_IX` and `MPI_X_init` have the same checks, and large counts too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name of the call.
    pub name: &'static str,
    /// The pattern of its data.
    pub data: Data,
    /// The parameters whose values must be the same on all ranks; `NAME*LENGTH` is a list. `in_place` is whether a
    /// buffer is `MPI_IN_PLACE`. `info` is compared from level 3 on, `assert` at level 4.
    pub same: &'static [&'static str],
}

const fn row(name: &'static str, data: Data, same: &'static [&'static str]) -> Row {
    Row { name, data, same }
}

/// All calls.
pub(crate) const CALLS: &[Row] = &[
    row("MPI_Barrier", Data::None, &[]),
    row("MPI_Bcast", Data::Bcast, &["root"]),
    row("MPI_Gather", Data::Gather, &["root"]),
    row("MPI_Gatherv", Data::Gather, &["root"]),
    row("MPI_Scatter", Data::Scatter, &["root"]),
    row("MPI_Scatterv", Data::Scatter, &["root"]),
    row("MPI_Allgather", Data::Allgather, &["in_place"]),
    row("MPI_Allgatherv", Data::Allgather, &["in_place"]),
    row("MPI_Alltoall", Data::Alltoall, &["in_place"]),
    row("MPI_Alltoallv", Data::Alltoall, &["in_place"]),
    row("MPI_Alltoallw", Data::Alltoall, &["in_place"]),
    row("MPI_Reduce", Data::Reduce, &["root", "op"]),
    row("MPI_Allreduce", Data::Reduce, &["op", "in_place"]),
    row("MPI_Reduce_scatter", Data::ReduceScatter, &["op", "in_place"]),
    row("MPI_Reduce_scatter_block", Data::ReduceScatter, &["op", "in_place"]),
    row("MPI_Scan", Data::Reduce, &["op", "in_place"]),
    row("MPI_Exscan", Data::Reduce, &["op", "in_place"]),
    row("MPI_Neighbor_allgather", Data::NeighborAllgather, &[]),
    row("MPI_Neighbor_allgatherv", Data::NeighborAllgather, &[]),
    row("MPI_Neighbor_alltoall", Data::NeighborAlltoall, &[]),
    row("MPI_Neighbor_alltoallv", Data::NeighborAlltoall, &[]),
    row("MPI_Neighbor_alltoallw", Data::NeighborAlltoall, &[]),
    row("MPI_Comm_dup", Data::None, &[]),
    row("MPI_Comm_idup", Data::None, &[]),
    row("MPI_Comm_dup_with_info", Data::None, &["info"]),
    row("MPI_Comm_idup_with_info", Data::None, &["info"]),
    row("MPI_Comm_create", Data::Group, &[]),
    row("MPI_Comm_create_group", Data::GroupAlone, &["tag"]),
    row("MPI_Comm_split", Data::None, &[]),
    row("MPI_Comm_split_type", Data::None, &["split_type", "info"]),
    row("MPI_Comm_free", Data::None, &[]),
    row("MPI_Comm_disconnect", Data::None, &[]),
    row("MPI_Comm_set_info", Data::None, &["info"]),
    row("MPI_Intercomm_create", Data::None, &["local_leader", "tag"]),
    row("MPI_Intercomm_merge", Data::None, &["high"]),
    row("MPI_Comm_spawn", Data::None, &["root"]),
    row("MPI_Comm_spawn_multiple", Data::None, &["root"]),
    row("MPI_Comm_accept", Data::None, &["root"]),
    row("MPI_Comm_connect", Data::None, &["root"]),
    row("MPI_Cart_create", Data::None, &["ndims", "dims*ndims", "periods*ndims", "reorder"]),
    row("MPI_Cart_map", Data::None, &["ndims", "dims*ndims", "periods*ndims"]),
    row("MPI_Cart_sub", Data::None, &["remain_dims*ndims"]),
    row("MPI_Graph_create", Data::Graph, &["nnodes", "indx*nnodes", "edges*nedges", "reorder"]),
    row("MPI_Graph_map", Data::Graph, &["nnodes", "indx*nnodes", "edges*nedges"]),
    row("MPI_Dist_graph_create", Data::None, &["reorder", "info"]),
    row("MPI_Dist_graph_create_adjacent", Data::Edges, &["reorder", "info"]),
    row("MPI_Win_create", Data::Window, &["info"]),
    row("MPI_Win_allocate", Data::Window, &["info"]),
    row("MPI_Win_allocate_shared", Data::Window, &["info"]),
    row("MPI_Win_create_dynamic", Data::Window, &["info"]),
    row("MPI_Win_fence", Data::None, &["assert"]),
    row("MPI_Win_free", Data::None, &[]),
    row("MPI_Win_set_info", Data::None, &["info"]),
    row("MPI_Finalize", Data::None, &[]),
    row("MPI_Put", Data::Access, &[]),
    row("MPI_Get", Data::Access, &[]),
    row("MPI_Accumulate", Data::Access, &[]),
    row("MPI_Get_accumulate", Data::Access, &[]),
    row("MPI_Fetch_and_op", Data::Access, &[]),
    row("MPI_Compare_and_swap", Data::Access, &[]),
    row("MPI_Rput", Data::Access, &[]),
    row("MPI_Rget", Data::Access, &[]),
    row("MPI_Raccumulate", Data::Access, &[]),
    row("MPI_Rget_accumulate", Data::Access, &[]),
    row("MPI_Win_lock", Data::Lock, &[]),
    row("MPI_Win_lock_all", Data::Lock, &[]),
    row("MPI_Win_unlock", Data::Lock, &[]),
    row("MPI_Win_flush", Data::Lock, &[]),
    row("MPI_Win_flush_local", Data::Lock, &[]),
    row("MPI_Reduce_local", Data::Local, &[]),
    row("MPI_Send", Data::Message, &[]),
    row("MPI_Ssend", Data::Message, &[]),
    row("MPI_Bsend", Data::Message, &[]),
    row("MPI_Rsend", Data::Message, &[]),
    row("MPI_Issend", Data::Message, &[]),
    row("MPI_Ibsend", Data::Message, &[]),
    row("MPI_Irsend", Data::Message, &[]),
    row("MPI_Isend", Data::Message, &[]),
    row("MPI_Recv", Data::Message, &[]),
    row("MPI_Irecv", Data::Message, &[]),
    row("MPI_Sendrecv", Data::Message, &[]),
    row("MPI_Isendrecv", Data::Message, &[]),
    row("MPI_Group_incl", Data::Ranks, &[]),
    row("MPI_Group_excl", Data::Ranks, &[]),
];

/// The form of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The operation is complete when the call returns.
    Blocking,
    /// The operation is complete when its request completes.
    Started,
    /// The call creates a request that is started later.
    Persistent,
}

/// The row and the form of a function, by its name without `_c`.
pub(crate) fn find(name: &str) -> Option<(usize, Form)> {
    let at = |name: &str| CALLS.iter().position(|row| row.name == name);
    if let Some(row) = at(name) {
        let started = name.starts_with("MPI_Comm_idup");
        return Some((row, if started { Form::Started } else { Form::Blocking }));
    }
    if let Some(row) = name.strip_suffix("_init").and_then(at) {
        return Some((row, Form::Persistent));
    }
    let rest = name.strip_prefix("MPI_I")?;
    let row = at(&format!("MPI_{}{}", rest[..1].to_uppercase(), &rest[1..]))?;
    Some((row, Form::Started))
}
