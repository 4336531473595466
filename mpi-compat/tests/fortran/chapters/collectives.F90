! Chapter 6: all operations, blocking, started and persistent, operators of the program, between two groups.
#include "interfaces.h"
module chapter_collectives
  use checks
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: collectives
contains
  subroutine collectives(comm)
    COMM :: comm
    call blocks(comm)
    call reductions(comm)
    call own_operator(comm)
    call started(comm)
    if (.not. on_intel) call kept(comm)
  end subroutine

  subroutine blocks(comm)
    COMM :: comm
    integer :: i, j, ierror, counts(ranks), places(ranks), mine(ranks + 1)
    integer :: all_(2, ranks), sum_
    integer, allocatable :: many(:), others(:)
    character(len=6) :: word
    word = merge('by one', '      ', rank == 1)
    call MPI_Bcast(word, 6, MPI_CHARACTER, 1, comm, ierror)
    call check(word == 'by one', 'broadcast')
    all_ = 0
    call MPI_Gather([rank, -rank], 2, MPI_INTEGER, all_, 2, MPI_INTEGER, 1, comm, ierror)
    if (rank == 1) call check(all(all_(1, :) == [(i, i = 0, ranks - 1)]) .and. all(all_(2, :) == -all_(1, :)), 'gather')
    call MPI_Scatter(all_, 2, MPI_INTEGER, mine, 2, MPI_INTEGER, 1, comm, ierror)
    call check(all(mine(1:2) == [rank, -rank]), 'scatter')
    ! Rank r has r + 1 numbers.
    counts = [(i + 1, i = 0, ranks - 1)]
    places = [(i * (i + 1) / 2, i = 0, ranks - 1)]
    sum_ = ranks * (ranks + 1) / 2
    allocate (many(sum_), others(sum_))
    mine = rank
    many = -1
    call MPI_Gatherv(mine, rank + 1, MPI_INTEGER, many, counts, places, MPI_INTEGER, 0, comm, ierror)
    if (rank == 0) call check(all(many == [((i, j = 0, i), i = 0, ranks - 1)]), 'gatherv')
    call MPI_Allgatherv(mine, rank + 1, MPI_INTEGER, others, counts, places, MPI_INTEGER, comm, ierror)
    call check(all(others == [((i, j = 0, i), i = 0, ranks - 1)]), 'allgatherv')
    mine = -1
    call MPI_Scatterv(many, counts, places, MPI_INTEGER, mine, rank + 1, MPI_INTEGER, 0, comm, ierror)
    call check(all(mine(:rank + 1) == rank) .and. mine(rank + 2) == -1, 'scatterv')
    all_(1, :) = [(10 * rank + i, i = 0, ranks - 1)]
    call MPI_Alltoall(all_(1, :), 1, MPI_INTEGER, counts, 1, MPI_INTEGER, comm, ierror)
    call check(all(counts == [(10 * i + rank, i = 0, ranks - 1)]), 'alltoall')
    ! One number to each; backwards in memory.
    places = [(ranks - i, i = 1, ranks)]
    call MPI_Alltoallv(all_(1, :), [(1, i = 1, ranks)], [(i, i = 0, ranks - 1)], MPI_INTEGER, counts, [(1, i = 1, ranks)], &
                       places, MPI_INTEGER, comm, ierror)
    call check(all(counts == [(10 * (ranks - 1 - i) + rank, i = 0, ranks - 1)]), 'alltoallv')
    call MPI_Barrier(comm, ierror)
  end subroutine

  subroutine reductions(comm)
    COMM :: comm
    integer :: i, n, ierror, counts(ranks), v(ranks)
    integer :: pair(2), best(2)
    double precision :: place(2), least(2)
    logical :: truth, any_, all_
    n = 0
    call MPI_Reduce(rank + 1, n, 1, MPI_INTEGER, MPI_PROD, 0, comm, ierror)
    if (rank == 0) call check(n == product([(i, i = 1, ranks)]), 'product')
    call MPI_Scan(rank, n, 1, MPI_INTEGER, MPI_SUM, comm, ierror)
    call check(n == rank * (rank + 1) / 2, 'scan')
    n = -1
    call MPI_Exscan(rank, n, 1, MPI_INTEGER, MPI_SUM, comm, ierror)
    call check(n == merge(-1, rank * (rank - 1) / 2, rank == 0), 'exscan')
    counts = 1
    v = [(i + rank, i = 1, ranks)]
    call MPI_Reduce_scatter(v, n, counts, MPI_INTEGER, MPI_MAX, comm, ierror)
    call check(n == rank + ranks, 'reduce_scatter')
    call MPI_Reduce_scatter_block(v, n, 1, MPI_INTEGER, MPI_MIN, comm, ierror)
    call check(n == rank + 1, 'reduce_scatter_block')
    pair = [mod(rank + 1, ranks), rank]
    call MPI_Allreduce(pair, best, 1, MPI_2INTEGER, MPI_MAXLOC, comm, ierror)
    call check(all(best == [ranks - 1, ranks - 2]), 'greatest and where')
    place = [abs(rank - 1.5d0), dble(rank)]
    call MPI_Allreduce(place, least, 1, MPI_2DOUBLE_PRECISION, MPI_MINLOC, comm, ierror)
    call check(all(least == [0.5d0, 1d0]), 'least and where')
    truth = rank == 1
    call MPI_Allreduce(truth, any_, 1, MPI_LOGICAL, MPI_LOR, comm, ierror)
    call MPI_Allreduce(truth, all_, 1, MPI_LOGICAL, MPI_LAND, comm, ierror)
    call check(any_ .and. .not. all_, 'logicals')
    call MPI_Allreduce(2**rank, n, 1, MPI_INTEGER, MPI_BXOR, comm, ierror)
    call check(n == 2**ranks - 1, 'bits')
    v = rank
    call MPI_Reduce_local(v, counts, ranks, MPI_INTEGER, MPI_SUM, ierror)
    call check(all(counts == rank + 1), 'local')
    if (rank == ranks - 1) then
      call MPI_Reduce(MPI_IN_PLACE, v, ranks, MPI_INTEGER, MPI_SUM, ranks - 1, comm, ierror)
      call check(all(v == ranks * (ranks - 1) / 2), 'in place at the root')
    else
      call MPI_Reduce(v, v, ranks, MPI_INTEGER, MPI_SUM, ranks - 1, comm, ierror)
    end if
  end subroutine

  ! Matrices of two by two, whose product does not commute.
  subroutine own_operator(comm)
    COMM :: comm
    OP :: op
    DATATYPE :: matrix
    integer :: ierror, i
    integer(8) :: mine(2, 2), result(2, 2), expected(2, 2)
    logical :: flag
    call MPI_Type_contiguous(4, MPI_INTEGER8, matrix, ierror)
    call MPI_Type_commit(matrix, ierror)
    call MPI_Op_create(multiply, .false., op, ierror)
    call MPI_Op_commutative(op, flag, ierror)
    call check(.not. flag, 'does not commute')
    mine = of(rank)
    call MPI_Allreduce(mine, result, 1, matrix, op, comm, ierror)
    expected = of(0)
    do i = 1, ranks - 1
      expected = matmul(expected, of(i))
    end do
    call check(all(result == expected), 'product of matrices')
    call MPI_Scan(mine, result, 1, matrix, op, comm, ierror)
    if (rank == 1) call check(all(result == matmul(of(0), of(1))), 'products so far')
    call MPI_Op_free(op, ierror)
    call MPI_Type_free(matrix, ierror)
  contains
    function of(r) result(m)
      integer, intent(in) :: r
      integer(8) :: m(2, 2)
      m = reshape([1, r + 1, r, 2], [2, 2])
    end function
  end subroutine

#if defined(MPIF_H) || defined(MPI_MODULE)
  subroutine multiply(in, inout, n, type)
    integer :: n, type, i
    integer(8) :: in(2, 2, n), inout(2, 2, n)
#else
  subroutine multiply(left, right, n, type)
    use, intrinsic :: iso_c_binding
    type(c_ptr), value :: left, right
    integer :: n, i
    type(MPI_Datatype) :: type
    integer(8), pointer :: in(:, :, :), inout(:, :, :)
    call c_f_pointer(left, in, [2, 2, n])
    call c_f_pointer(right, inout, [2, 2, n])
#endif
    do i = 1, n
      inout(:, :, i) = matmul(in(:, :, i), inout(:, :, i))
    end do
  end subroutine

  subroutine started(comm)
    COMM :: comm
    REQUEST :: r(6)
    integer :: i, ierror
    integer DELAYED :: a(ranks), b(ranks), c, d, e(ranks), f(ranks), own(ranks)
    own = [(100 * rank + i, i = 1, ranks)]
    c = rank
    d = -1
    call MPI_Iallgather(c, 1, MPI_INTEGER, a, 1, MPI_INTEGER, comm, r(1), ierror)
    call MPI_Ialltoall(own, 1, MPI_INTEGER, b, 1, MPI_INTEGER, comm, r(2), ierror)
    call MPI_Iexscan(c, d, 1, MPI_INTEGER, MPI_SUM, comm, r(3), ierror)
    call MPI_Iallreduce(own, e, ranks, MPI_INTEGER, MPI_MAX, comm, r(4), ierror)
    call MPI_Igather(c, 1, MPI_INTEGER, f, 1, MPI_INTEGER, 0, comm, r(5), ierror)
    call MPI_Ibarrier(comm, r(6), ierror)
    call MPI_Waitall(6, r, MPI_STATUSES_IGNORE, ierror)
    call sync()
    call check(all(a == [(i, i = 0, ranks - 1)]), 'iallgather')
    call check(all(b == [(100 * i + rank + 1, i = 0, ranks - 1)]), 'ialltoall')
    call check(d == merge(-1, rank * (rank - 1) / 2, rank == 0), 'iexscan')
    call check(all(e == [(100 * (ranks - 1) + i, i = 1, ranks)]), 'iallreduce')
    if (rank == 0) call check(all(f == [(i, i = 0, ranks - 1)]), 'igather')
    call MPI_Iscatter(own, 1, MPI_INTEGER, d, 1, MPI_INTEGER, 1, comm, r(1), ierror)
    call MPI_Ireduce_scatter_block(own, c, 1, MPI_INTEGER, MPI_MIN, comm, r(2), ierror)
    call MPI_Iscan(rank, e, 1, MPI_INTEGER, MPI_SUM, comm, r(3), ierror)
    call MPI_Ireduce(own, f, ranks, MPI_INTEGER, MPI_SUM, 1, comm, r(4), ierror)
    call MPI_Waitall(4, r, MPI_STATUSES_IGNORE, ierror)
    call sync()
    call check(d == 101 + rank .and. c == rank + 1 .and. e(1) == rank * (rank + 1) / 2, 'started operations')
    if (rank == 1) call check(all(f == [(50 * ranks * (ranks - 1) + ranks * i, i = 1, ranks)]), 'ireduce')
  contains
    subroutine sync()
      call MPI_F_sync_reg(a)
      call MPI_F_sync_reg(b)
      call MPI_F_sync_reg(e)
      call MPI_F_sync_reg(f)
    end subroutine
  end subroutine

  subroutine kept(comm)
    COMM :: comm
    REQUEST :: r(3)
    integer :: i, round, ierror
    integer DELAYED :: a(ranks), b, c(2), d(2)
    call MPI_Allgather_init(b, 1, MPI_INTEGER, a, 1, MPI_INTEGER, comm, MPI_INFO_NULL, r(1), ierror)
    call MPI_Allreduce_init(c, d, 2, MPI_INTEGER, MPI_SUM, comm, MPI_INFO_NULL, r(2), ierror)
    call MPI_Barrier_init(comm, MPI_INFO_NULL, r(3), ierror)
    do round = 1, 3
      b = round * rank
      c = [round, rank]
      call MPI_Startall(3, r, ierror)
      call MPI_Waitall(3, r, MPI_STATUSES_IGNORE, ierror)
      call check(all(a == [(round * i, i = 0, ranks - 1)]), 'persistent allgather')
      call check(all(d == [round * ranks, ranks * (ranks - 1) / 2]), 'persistent allreduce')
    end do
    do i = 1, 3
      call MPI_Request_free(r(i), ierror)
    end do
  end subroutine
end module
