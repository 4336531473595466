! Chapter 12: distributed arrays read by indices, halos by fence and by post-start, counters, dynamic windows, requests.
#include "interfaces.h"
module chapter_windows
  use checks
  use, intrinsic :: iso_c_binding
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: windows
  integer, parameter :: each = 5
contains
  subroutine windows(comm)
    COMM :: comm
    call gathered(comm)
    call summed(comm)
    call halos(comm)
    call counters(comm)
    call lists(comm)
    call dynamic(comm)
    call requests(comm)
    if (one_node) call shared(comm)
  end subroutine

  ! Each rank reads elements of an array that is distributed by blocks; one get a rank, with a type of indices at both ends.
  subroutine gathered(comm)
    COMM :: comm
    integer DELAYED :: a(each), b(2 * each)
    integer :: map(2 * each), i, r, n, ierror
    integer, allocatable :: here(:), there(:)
    DATATYPE :: from, into
    WINDOW :: window
    a = [(each * rank + i, i = 0, each - 1)] * 3
    map = [(mod(7 * i + 3 * rank, each * ranks), i = 1, 2 * each)]
    call MPI_Win_create(a, 4_MPI_ADDRESS_KIND * each, 4, MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_fence(ior(MPI_MODE_NOPRECEDE, MPI_MODE_NOPUT), window, ierror)
    do r = 0, ranks - 1
      here = pack([(i, i = 0, 2 * each - 1)], map / each == r)
      there = pack(mod(map, each), map / each == r)
      n = size(here)
      if (n == 0) cycle
      call MPI_Type_create_indexed_block(n, 1, here, MPI_INTEGER, into, ierror)
      call MPI_Type_create_indexed_block(n, 1, there, MPI_INTEGER, from, ierror)
      call MPI_Type_commit(into, ierror)
      call MPI_Type_commit(from, ierror)
      call MPI_Get(b, 1, into, r, 0_MPI_ADDRESS_KIND, 1, from, window, ierror)
      call MPI_Type_free(into, ierror)
      call MPI_Type_free(from, ierror)
    end do
    call MPI_Win_fence(ior(MPI_MODE_NOSUCCEED, MPI_MODE_NOSTORE), window, ierror)
    call MPI_F_sync_reg(b)
    call check(all(b == 3 * map), 'elements by their indices')
    call MPI_Win_free(window, ierror)
  end subroutine

  ! Each rank adds to elements of that array.
  subroutine summed(comm)
    COMM :: comm
    double precision DELAYED :: sums(each), added(3 * each)
    integer :: map(3 * each), all_(3 * each * ranks), i, j, expected, ierror
    WINDOW :: window
    sums = 0
    added = [(dble(i), i = 1, 3 * each)]
    map = [(mod(11 * i + 5 * rank, each * ranks), i = 1, 3 * each)]
    call MPI_Win_create(sums, 8_MPI_ADDRESS_KIND * each, 8, MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_fence(0, window, ierror)
    do i = 1, 3 * each
      call MPI_Accumulate(added(i), 1, MPI_DOUBLE_PRECISION, map(i) / each, int(mod(map(i), each), MPI_ADDRESS_KIND), 1, &
                          MPI_DOUBLE_PRECISION, MPI_SUM, window, ierror)
    end do
    call MPI_Win_fence(0, window, ierror)
    call MPI_F_sync_reg(sums)
    call MPI_Allgather(map, 3 * each, MPI_INTEGER, all_, 3 * each, MPI_INTEGER, comm, ierror)
    do i = 1, each
      expected = sum([(mod(j, 3 * each) + 1, j = 0, 3 * each * ranks - 1)], all_ == each * rank + i - 1)
      call check(nint(sums(i)) == expected, 'sums')
    end do
    call MPI_Win_free(window, ierror)
  end subroutine

  ! Columns at the edges of a strip are put into the strips beside it.
  subroutine halos(comm)
    COMM :: comm
    integer, parameter :: n = 6, m = 4
    integer DELAYED :: strip(n, 0:m + 1)
    integer(MPI_ADDRESS_KIND) :: right_edge, left_edge
    integer :: i, way, ierror
    GROUP :: all_, around
    WINDOW :: window
    call MPI_Win_create(strip, 4_MPI_ADDRESS_KIND * size(strip), 4, MPI_INFO_NULL, comm, window, ierror)
    call MPI_Comm_group(comm, all_, ierror)
    if (previous == next) call MPI_Group_incl(all_, 1, [next], around, ierror)
    if (previous /= next) call MPI_Group_incl(all_, 2, [previous, next], around, ierror)
    left_edge = 0
    right_edge = n * (m + 1)
    do way = 1, 3
      do i = 0, m + 1
        strip(:, i) = 100 * rank + 10 * way + i
      end do
      select case (way)
      case (1)
        call MPI_Win_fence(MPI_MODE_NOPRECEDE, window, ierror)
        call edges()
        call MPI_Win_fence(MPI_MODE_NOSUCCEED, window, ierror)
      case (2)
        call MPI_Win_post(around, 0, window, ierror)
        call MPI_Win_start(around, 0, window, ierror)
        call edges()
        call MPI_Win_complete(window, ierror)
        call MPI_Win_wait(window, ierror)
      case (3)
        call MPI_Win_post(around, MPI_MODE_NOSTORE, window, ierror)
        call MPI_Win_start(around, 0, window, ierror)
        call edges()
        call MPI_Win_complete(window, ierror)
        call tested()
      end select
      call MPI_F_sync_reg(strip)
      call check(all(strip(:, 0) == 100 * previous + 10 * way + m), 'left')
      call check(all(strip(:, m + 1) == 100 * next + 10 * way + 1), 'right')
      call MPI_Barrier(comm, ierror)
    end do
    call MPI_Group_free(around, ierror)
    call MPI_Group_free(all_, ierror)
    call MPI_Win_free(window, ierror)
  contains
    subroutine edges()
      call MPI_Put(strip(:, 1), n, MPI_INTEGER, previous, right_edge, n, MPI_INTEGER, window, ierror)
      call MPI_Put(strip(:, m), n, MPI_INTEGER, next, left_edge, n, MPI_INTEGER, window, ierror)
    end subroutine
    subroutine tested()
      logical :: flag
      flag = .false.
      do while (.not. flag)
        call MPI_Win_test(window, flag, ierror)
      end do
    end subroutine
  end subroutine

  ! Tickets of a shared counter; a lock made of compare-and-swap.
  subroutine counters(comm)
    COMM :: comm
    integer, pointer :: words(:)
    integer(MPI_ADDRESS_KIND), parameter :: counter = 0, lock = 1, total = 2
    integer :: tickets(3), all_(3 * ranks), i, old, ierror
    integer DELAYED :: value
    WINDOW :: window
    type(c_ptr) :: base
    call MPI_Win_allocate(merge(12_MPI_ADDRESS_KIND, 0_MPI_ADDRESS_KIND, rank == 0), 4, MPI_INFO_NULL, comm, base, window, &
                          ierror)
    call MPI_Win_lock_all(MPI_MODE_NOCHECK, window, ierror)
    if (rank == 0) then
      call c_f_pointer(base, words, [3])
      words = 0
      call MPI_Win_sync(window, ierror)
    end if
    call MPI_Barrier(comm, ierror)
    do i = 1, 3
      call MPI_Fetch_and_op(1, tickets(i), MPI_INTEGER, 0, counter, MPI_SUM, window, ierror)
      call MPI_Win_flush(0, window, ierror)
    end do
    call MPI_Allgather(tickets, 3, MPI_INTEGER, all_, 3, MPI_INTEGER, comm, ierror)
    call check(all([(count(all_ == i) == 1, i = 0, 3 * ranks - 1)]), 'each ticket once')
    do i = 1, 5
      old = 1
      do while (old /= 0)
        call MPI_Compare_and_swap(1, 0, old, MPI_INTEGER, 0, lock, window, ierror)
        call MPI_Win_flush(0, window, ierror)
      end do
      call MPI_Get(value, 1, MPI_INTEGER, 0, total, 1, MPI_INTEGER, window, ierror)
      call MPI_Win_flush(0, window, ierror)
      call MPI_F_sync_reg(value)
      value = value + rank + 1
      call MPI_Put(value, 1, MPI_INTEGER, 0, total, 1, MPI_INTEGER, window, ierror)
      call MPI_Win_flush(0, window, ierror)
      call MPI_Accumulate(0, 1, MPI_INTEGER, 0, lock, 1, MPI_INTEGER, MPI_REPLACE, window, ierror)
      call MPI_Win_flush_local_all(window, ierror)
    end do
    call MPI_Win_unlock_all(window, ierror)
    call MPI_Barrier(comm, ierror)
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window, ierror)
    call MPI_Get(value, 1, MPI_INTEGER, 0, total, 1, MPI_INTEGER, window, ierror)
    call MPI_Win_unlock(0, window, ierror)
    call MPI_F_sync_reg(value)
    call check(value == 5 * ranks * (ranks + 1) / 2, 'a sum under a lock of our own')
    call MPI_Win_free(window, ierror)
  end subroutine

  ! A list across ranks: each element is attached to a dynamic window and holds the place of the one after it.
  subroutine lists(comm)
    COMM :: comm
    integer(MPI_ADDRESS_KIND) DELAYED :: element(3)
    integer(MPI_ADDRESS_KIND) :: place, places(ranks), seen(3)
    DATATYPE :: aint
    WINDOW :: window
    integer :: at, ierror, i
    aint = MPI_AINT
    element = [int(rank, MPI_ADDRESS_KIND), int(next, MPI_ADDRESS_KIND), -1_MPI_ADDRESS_KIND]
    call MPI_Win_create_dynamic(MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_attach(window, element, 24_MPI_ADDRESS_KIND, ierror)
    call MPI_Get_address(element, place, ierror)
    call MPI_Allgather(place, 1, aint, places, 1, aint, comm, ierror)
    element(3) = places(next + 1)
    call MPI_Win_lock_all(0, window, ierror)
    call MPI_Win_sync(window, ierror)
    call MPI_Barrier(comm, ierror)
    at = rank
    do i = 1, ranks
      call MPI_Get(seen, 3, aint, at, place, 3, aint, window, ierror)
      call MPI_Win_flush(at, window, ierror)
      call check(seen(1) == at, 'an element of the list')
      at = int(seen(2))
      place = seen(3)
    end do
    call check(at == rank .and. place == places(rank + 1), 'around the list')
    call MPI_Barrier(comm, ierror)
    call MPI_Win_unlock_all(window, ierror)
    call MPI_Win_detach(window, element, ierror)
    call MPI_Win_free(window, ierror)
  end subroutine

  ! Memory that is attached after the window has been made, and arithmetic of addresses.
  subroutine dynamic(comm)
    COMM :: comm
    integer, allocatable DELAYED :: late(:)
    integer DELAYED :: two(2)
    integer(MPI_ADDRESS_KIND) :: first, third, theirs
    WINDOW :: window
    integer :: ierror
    integer(MPI_ADDRESS_KIND) :: model
    logical :: flag
    call MPI_Win_create_dynamic(MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_get_attr(window, MPI_WIN_MODEL, model, flag, ierror)
    call check(flag .and. (model == MPI_WIN_UNIFIED .or. model == MPI_WIN_SEPARATE), 'memory model')
    allocate (late(10 + rank))
    late = rank
    call MPI_Win_attach(window, late, 4_MPI_ADDRESS_KIND * size(late), ierror)
    call MPI_Get_address(late(1), first, ierror)
    call MPI_Get_address(late(3), third, ierror)
    call check(MPI_Aint_diff(third, first) == 8 .and. MPI_Aint_add(first, 8_MPI_ADDRESS_KIND) == third, 'addresses')
    call MPI_Sendrecv(third, 1, MPI_AINT, previous, 0, theirs, 1, MPI_AINT, next, 0, comm, MPI_STATUS_IGNORE, ierror)
    two = [50 + rank, 60]
    call MPI_Win_fence(0, window, ierror)
    call MPI_Put(two, 2, MPI_INTEGER, next, theirs, 2, MPI_INTEGER, window, ierror)
    call MPI_Win_fence(0, window, ierror)
    call MPI_F_sync_reg(late)
    call check(all(late(1:5) == [rank, rank, 50 + previous, 60, rank]), 'attached later')
    call MPI_Win_detach(window, late, ierror)
    call MPI_Win_free(window, ierror)
  end subroutine

  subroutine requests(comm)
    COMM :: comm
    real DELAYED :: memory(4), origin(4), result(4)
    REQUEST :: r(2)
    INFO :: info
    WINDOW :: window
    integer :: ierror
    memory = rank
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'accumulate_ordering', 'none', ierror)
    call MPI_Win_create(memory, 16_MPI_ADDRESS_KIND, 4, info, comm, window, ierror)
    call MPI_Win_set_info(window, info, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_Win_get_info(window, info, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window, ierror)
    origin = [1., 2., 3., 4.]
    call MPI_Rget_accumulate(origin, 4, MPI_REAL, result, 4, MPI_REAL, next, 0_MPI_ADDRESS_KIND, 4, MPI_REAL, MPI_SUM, &
                             window, r(1), ierror)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierror)
    call MPI_F_sync_reg(result)
    call check(all(result == next), 'before the sum')
    call MPI_Get_accumulate(origin, 0, MPI_REAL, result, 4, MPI_REAL, next, 0_MPI_ADDRESS_KIND, 4, MPI_REAL, MPI_NO_OP, &
                            window, ierror)
    call MPI_Win_flush_local(next, window, ierror)
    call MPI_Win_flush_all(window, ierror)
    call MPI_F_sync_reg(result)
    call check(all(result == next + [1., 2., 3., 4.]), 'after the sum')
    call MPI_Raccumulate(origin, 2, MPI_REAL, next, 0_MPI_ADDRESS_KIND, 2, MPI_REAL, MPI_REPLACE, window, r(1), ierror)
    call MPI_Rput(origin(4), 1, MPI_REAL, next, 3_MPI_ADDRESS_KIND, 1, MPI_REAL, window, r(2), ierror)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierror)
    call MPI_Win_unlock(next, window, ierror)
    call MPI_Barrier(comm, ierror)
    call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window, ierror)
    call MPI_F_sync_reg(memory)
    call check(all(memory == [1., 2., rank + 3., 4.]), 'requests')
    call MPI_Win_unlock(rank, window, ierror)
    call MPI_Win_free(window, ierror)
  end subroutine

  subroutine shared(comm)
    COMM :: comm
    integer, pointer :: mine(:), theirs(:)
    integer(MPI_ADDRESS_KIND) :: bytes
    integer :: unit, ierror
    type(c_ptr) :: base
    WINDOW :: window
    call MPI_Win_allocate_shared(8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, comm, base, window, ierror)
    call c_f_pointer(base, mine, [2])
    call MPI_Win_shared_query(window, previous, bytes, unit, base, ierror)
    call c_f_pointer(base, theirs, [2])
    call MPI_Win_fence(0, window, ierror)
    mine = 0
    call MPI_Win_fence(0, window, ierror)
    theirs(2) = rank + 5
    call MPI_Win_fence(0, window, ierror)
    call check(bytes == 8 .and. unit == 4 .and. all(mine == [0, next + 5]), 'a store into shared memory')
    call MPI_Win_fence(0, window, ierror)
    call MPI_Win_free(window, ierror)
  end subroutine
end module
