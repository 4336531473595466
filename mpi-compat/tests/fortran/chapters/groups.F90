! Chapters 7 and 8: groups, communicators, attributes, two groups, grids, graphs, collectives of neighbours.
#include "interfaces.h"
module chapter_groups
  use checks
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: groups
  integer :: copied = 0, deleted = 0
contains
  subroutine groups(comm)
    COMM :: comm
    call sets(comm)
    call communicators(comm)
    call attributes(comm)
    call two_groups(comm)
    call grids(comm)
    call graphs(comm)
  end subroutine

  subroutine sets(comm)
    COMM :: comm
    GROUP :: all_, even, odd, made
    integer :: i, n, ierror, back(2)
    call MPI_Comm_group(comm, all_, ierror)
    call MPI_Group_incl(all_, (ranks + 1) / 2, [(i, i = 0, ranks - 1, 2)], even, ierror)
    call MPI_Group_excl(all_, (ranks + 1) / 2, [(i, i = 0, ranks - 1, 2)], odd, ierror)
    call MPI_Group_union(odd, even, made, ierror)
    call MPI_Group_compare(all_, made, n, ierror)
    call check(n == MPI_SIMILAR, 'the same ranks in another order')
    call MPI_Group_translate_ranks(made, 2, [0, MPI_PROC_NULL], all_, back, ierror)
    call check(all(back == [1, MPI_PROC_NULL]), 'translated')
    call MPI_Group_free(made, ierror)
    call MPI_Group_intersection(odd, even, made, ierror)
    call check(made == MPI_GROUP_EMPTY, 'nothing in common')
    call MPI_Group_difference(all_, odd, made, ierror)
    call MPI_Group_compare(even, made, n, ierror)
    call check(n == MPI_IDENT, 'difference')
    call MPI_Group_free(made, ierror)
    call MPI_Group_range_excl(all_, 1, reshape([1, ranks - 1, 2], [3, 1]), made, ierror)
    call MPI_Group_size(made, n, ierror)
    call check(n == (ranks + 1) / 2, 'range')
    call MPI_Group_rank(made, n, ierror)
    call check(n == merge(rank / 2, MPI_UNDEFINED, mod(rank, 2) == 0), 'rank in the range')
    call MPI_Group_free(made, ierror)
    call MPI_Group_free(even, ierror)
    call MPI_Group_free(odd, ierror)
    call MPI_Group_free(all_, ierror)
    call check(all_ == MPI_GROUP_NULL, 'freed')
  end subroutine

  subroutine communicators(comm)
    COMM :: comm, half, other
    GROUP :: group, some
    REQUEST :: r
    INFO :: info
    integer :: n, ierror
    character(len=20) :: value
    logical :: flag
    call MPI_Comm_split(comm, mod(rank, 2), -rank, half, ierror)
    call MPI_Comm_rank(half, n, ierror)
    call check(n == (ranks - 1 - rank) / 2, 'split backwards')
    call MPI_Comm_free(half, ierror)
    call MPI_Comm_split(comm, merge(MPI_UNDEFINED, 0, rank == 0), 0, half, ierror)
    call check((half == MPI_COMM_NULL) .eqv. (rank == 0), 'no part')
    if (rank /= 0) call MPI_Comm_free(half, ierror)
    call MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, half, ierror)
    call MPI_Comm_size(half, n, ierror)
    one_node = n == ranks
    call MPI_Comm_compare(comm, half, n, ierror)
    call check((n == MPI_CONGRUENT) .eqv. one_node, 'ranks of a node')
    call MPI_Comm_free(half, ierror)
    call MPI_Comm_idup(comm, half, r, ierror)
    call MPI_Wait(r, MPI_STATUS_IGNORE, ierror)
    call MPI_Comm_compare(half, half, n, ierror)
    call check(n == MPI_IDENT, 'itself')
    call MPI_Comm_free(half, ierror)
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'mpi_assert_no_any_tag', 'true', ierror)
    call MPI_Comm_dup_with_info(comm, info, other, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_Comm_get_info(other, info, ierror)
    n = 20
    call MPI_Info_get_string(info, 'mpi_assert_no_any_tag', n, value, flag, ierror)
    if (flag) call check(value == 'true', 'asserted')
    call MPI_Info_free(info, ierror)
    call MPI_Comm_free(other, ierror)
    call MPI_Comm_group(comm, group, ierror)
    call MPI_Group_incl(group, 1, [1], some, ierror)
    call MPI_Comm_create(comm, some, half, ierror)
    call check((half /= MPI_COMM_NULL) .eqv. (rank == 1), 'create')
    if (rank == 1) then
      call MPI_Comm_free(half, ierror)
      call MPI_Comm_create_group(comm, some, 7, half, ierror)
      call MPI_Comm_size(half, n, ierror)
      call check(n == 1, 'create_group')
      call MPI_Comm_free(half, ierror)
    end if
    call MPI_Group_free(some, ierror)
    call MPI_Group_free(group, ierror)
  end subroutine

  subroutine attributes(comm)
    COMM :: comm, other
    WINDOW :: window
    DATATYPE :: made
    integer :: key, unused, ierror, memory(4)
    integer(MPI_ADDRESS_KIND) :: value
    logical :: flag
    call MPI_Comm_create_keyval(copy, delete_it, key, 3_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(comm, key, 20_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(comm, other, ierror)
    call MPI_Comm_get_attr(other, key, value, flag, ierror)
    call check(flag .and. value == 60 .and. copied == 1, 'copied by the function')
    call MPI_Comm_free(other, ierror)
    call MPI_Comm_delete_attr(comm, key, ierror)
    call check(deleted == 80, 'deleted by the function')
    call MPI_Comm_free_keyval(key, ierror)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(comm, key, 5_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(comm, other, ierror)
    call MPI_Comm_get_attr(other, key, value, flag, ierror)
    call check(.not. flag, 'not copied')
    call MPI_Comm_free(other, ierror)
    call MPI_Comm_delete_attr(comm, key, ierror)
    call MPI_Comm_free_keyval(key, ierror)
    call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_contiguous(2, MPI_REAL, made, ierror)
    call MPI_Type_set_attr(made, key, -1_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_get_attr(made, key, value, flag, ierror)
    call check(flag .and. value == -1, 'of a datatype')
    call MPI_Type_free(made, ierror)
    call MPI_Type_free_keyval(key, ierror)
    call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Win_create(memory, 16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_set_attr(window, key, 12_MPI_ADDRESS_KIND, ierror)
    call MPI_Win_get_attr(window, key, value, flag, ierror)
    call check(flag .and. value == 12, 'of a window')
    call MPI_Win_free(window, ierror)
    call MPI_Win_free_keyval(key, ierror)
    unused = ierror
  end subroutine
  subroutine copy(old, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    COMM :: old
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copied = copied + 1
    attribute_val_out = attribute_val_in * extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete_it(comm, keyval, attribute_val, extra_state, ierror)
    COMM :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deleted = deleted + int(attribute_val)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine two_groups(comm)
    COMM :: comm, half, between, together
    GROUP :: group
    integer :: n, ierror
    logical :: flag
    call MPI_Comm_split(comm, mod(rank, 2), rank, half, ierror)
    call MPI_Intercomm_create(half, 0, comm, 1 - mod(rank, 2), 5, between, ierror)
    call MPI_Comm_test_inter(between, flag, ierror)
    call check(flag, 'two groups')
    call MPI_Comm_remote_size(between, n, ierror)
    call check(n == ranks / 2, 'remote size')
    call MPI_Comm_remote_group(between, group, ierror)
    call MPI_Group_rank(group, n, ierror)
    call check(n == MPI_UNDEFINED, 'not in the other group')
    call MPI_Group_free(group, ierror)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, rank / 2, 0, n, 1, MPI_INTEGER, rank / 2, 0, between, MPI_STATUS_IGNORE, ierror)
    call check(n == ieor(rank, 1), 'partner')
    call MPI_Allreduce(rank, n, 1, MPI_INTEGER, MPI_MAX, between, ierror)
    call check(n == ranks - 1 - merge(0, 1, mod(rank, 2) == 0), 'the greatest of the others')
    n = 77
    if (mod(rank, 2) == 1) then
      call MPI_Bcast(n, 1, MPI_INTEGER, 0, between, ierror)
    else if (rank == 0) then
      n = 5
      call MPI_Bcast(n, 1, MPI_INTEGER, MPI_ROOT, between, ierror)
    else
      call MPI_Bcast(n, 1, MPI_INTEGER, MPI_PROC_NULL, between, ierror)
    end if
    call check(n == merge(77, 5, mod(rank, 2) == 0 .and. rank /= 0), 'from the other group')
    call MPI_Intercomm_merge(between, mod(rank, 2) == 0, together, ierror)
    call MPI_Comm_rank(together, n, ierror)
    call check(n == rank / 2 + merge(ranks / 2, 0, mod(rank, 2) == 0), 'odd ranks first')
    call MPI_Comm_free(together, ierror)
    call MPI_Comm_free(between, ierror)
    call MPI_Comm_free(half, ierror)
  end subroutine

  subroutine grids(comm)
    COMM :: comm, ring
    integer :: dims(1), coords(1), n, from, to, ierror, got(2), sent(2), twice(2)
    logical :: periods(1)
    call MPI_Cart_create(comm, 1, [ranks], [.true.], .false., ring, ierror)
    call MPI_Cartdim_get(ring, n, ierror)
    call check(n == 1, 'dimensions')
    call MPI_Cart_get(ring, 1, dims, periods, coords, ierror)
    call check(dims(1) == ranks .and. periods(1) .and. coords(1) == rank, 'a ring')
    call MPI_Cart_shift(ring, 0, 1, from, to, ierror)
    call check(from == previous .and. to == next, 'shift')
    call MPI_Cart_coords(ring, next, 1, coords, ierror)
    call check(coords(1) == next, 'coordinates')
    sent = [rank, rank + 1000]
    call MPI_Neighbor_allgather(sent, 1, MPI_INTEGER, got, 1, MPI_INTEGER, ring, ierror)
    call check(all(got == [previous, next]), 'neighbours')
    ! Of two ranks that are neighbours twice, libraries order the blocks differently.
    if (previous /= next) then
      call MPI_Neighbor_alltoall(sent, 1, MPI_INTEGER, got, 1, MPI_INTEGER, ring, ierror)
      call check(all(got == [previous + 1000, next]), 'one for each neighbour')
      twice = -1
      call MPI_Neighbor_alltoallv(sent, [1, 1], [0, 1], MPI_INTEGER, twice, [1, 1], [1, 0], MPI_INTEGER, ring, ierror)
      call check(all(twice == [next, previous + 1000]), 'with places')
      call MPI_Neighbor_alltoallw(sent, [1, 1], [4_MPI_ADDRESS_KIND, 0_MPI_ADDRESS_KIND], [MPI_INTEGER, MPI_INTEGER], got, &
                                  [1, 1], [0_MPI_ADDRESS_KIND, 4_MPI_ADDRESS_KIND], [MPI_INTEGER, MPI_INTEGER], ring, ierror)
      call check(all(got == [previous, next + 1000]), 'with types')
    end if
    call MPI_Cart_map(comm, 1, [ranks], [.true.], n, ierror)
    call check(n >= 0 .and. n < ranks, 'map')
    call MPI_Comm_free(ring, ierror)
  end subroutine

  subroutine graphs(comm)
    COMM :: comm, star, wheel
    integer :: i, n, m, kind, ierror, indices(ranks), edges(2 * ranks), mine(ranks), sources(2), targets(2), weights(2)
    integer :: others(2)
    logical :: weighted
    ! A star with rank 0 in its middle.
    indices = [(ranks - 1 + i, i = 0, ranks - 1)]
    edges(:2 * ranks - 2) = [(i, i = 1, ranks - 1), (0, i = 1, ranks - 1)]
    call MPI_Graph_create(comm, ranks, indices, edges, .false., star, ierror)
    call MPI_Topo_test(star, kind, ierror)
    call MPI_Graphdims_get(star, n, m, ierror)
    call check(kind == MPI_GRAPH .and. n == ranks .and. m == 2 * ranks - 2, 'a star')
    call MPI_Graph_neighbors_count(star, rank, n, ierror)
    call MPI_Graph_neighbors(star, rank, n, mine, ierror)
    if (rank == 0) call check(all(mine(:n) == [(i, i = 1, ranks - 1)]), 'its points')
    if (rank > 0) call check(n == 1 .and. mine(1) == 0, 'its middle')
    call MPI_Graph_get(star, ranks, 2 * ranks - 2, indices, edges, ierror)
    call check(indices(ranks) == 2 * ranks - 2 .and. edges(1) == 1, 'given back')
    call MPI_Comm_free(star, ierror)
    call MPI_Dist_graph_create(comm, 1, [rank], [2], [next, previous], [10 + rank, 20 + rank], MPI_INFO_NULL, .false., wheel, &
                               ierror)
    call MPI_Dist_graph_neighbors_count(wheel, n, m, weighted, ierror)
    call check(n == 2 .and. m == 2 .and. weighted, 'a wheel')
    call MPI_Dist_graph_neighbors(wheel, 2, sources, weights, 2, targets, mine, ierror)
    call check(sum(sources) == previous + next .and. all(targets == [next, previous]), 'neighbours on the wheel')
    call check(sum(weights) == 30 + previous + next .and. all(mine(:2) == [10, 20] + rank), 'weights')
    call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, others, 1, MPI_INTEGER, wheel, ierror)
    call check(all(others == sources), 'from sources')
    call MPI_Comm_free(wheel, ierror)
  end subroutine
end module
