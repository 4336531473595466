! Chapters 3 and 4: modes of sending, probes, persistent and partitioned requests, cancelled receives, arrays of statuses.
#include "interfaces.h"
module chapter_messages
  use checks
  use, intrinsic :: iso_c_binding
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: messages
contains
  subroutine messages(comm)
    COMM :: comm
    call modes(comm)
    call probes(comm)
    call persistent(comm)
    call partitions(comm)
    call jacobi(comm)
  end subroutine

  subroutine modes(comm)
    COMM :: comm
    integer :: sent(4, 4), got(4, 4), i, n, ierror, indices(4), done
    integer, target :: space(2000)
    REQUEST :: sends(4), receives(4)
    STATUSES(4) :: ss
    STATUS :: s
    BUFFER_PLACE :: place
    logical :: flag
    call MPI_Buffer_attach(space, 8000, ierror)
    sent = reshape([(1000 * rank + i, i = 1, 16)], [4, 4])
    got = -1
    do i = 1, 4
      call MPI_Irecv(got(1, i), 4, MPI_INTEGER, previous, i, comm, receives(i), ierror)
    end do
    call MPI_Barrier(comm, ierror)
    call MPI_Isend(sent(1, 1), 4, MPI_INTEGER, next, 1, comm, sends(1), ierror)
    call MPI_Issend(sent(1, 2), 4, MPI_INTEGER, next, 2, comm, sends(2), ierror)
    call MPI_Irsend(sent(1, 3), 4, MPI_INTEGER, next, 3, comm, sends(3), ierror)
    call MPI_Ibsend(sent(1, 4), 3, MPI_INTEGER, next, 4, comm, sends(4), ierror)
    done = 0
    do while (done < 4)
      call MPI_Testsome(4, receives, n, indices, ss, ierror)
      do i = 1, n
        call check(TAG_AT(ss, i) == indices(i), 'status of a request by its index')
      end do
      done = done + n
    end do
    call MPI_Waitall(4, sends, ss, ierror)
    n = 1000 * previous
    call check(all(got(:, 1:3) == reshape([(n + i, i = 1, 12)], [4, 3])), 'three modes')
    call check(all(got(1:3, 4) == [(n + i, i = 13, 15)]) .and. got(4, 4) == -1, 'buffered')
    call MPI_Testsome(4, receives, n, indices, MPI_STATUSES_IGNORE, ierror)
    call check(n == MPI_UNDEFINED, 'no request')
    flag = .false.
    call MPI_Testall(4, receives, flag, MPI_STATUSES_IGNORE, ierror)
    call check(flag, 'null requests are complete')
    ! Blocking forms: even ranks send first.
    do i = 0, 1
      if (mod(rank, 2) == i) then
        call MPI_Ssend(rank, 1, MPI_INTEGER, ieor(rank, 1), 5, comm, ierror)
        call MPI_Bsend(rank, 1, MPI_INTEGER, ieor(rank, 1), 6, comm, ierror)
      else
        call MPI_Recv(n, 1, MPI_INTEGER, MPI_ANY_SOURCE, 5, comm, s, ierror)
        call check(n == ieor(rank, 1) .and. SOURCE_OF(s) == n, 'synchronous')
        call MPI_Recv(n, 1, MPI_INTEGER, ieor(rank, 1), MPI_ANY_TAG, comm, s, ierror)
        call check(n == ieor(rank, 1) .and. TAG_OF(s) == 6, 'blocking and buffered')
      end if
    end do
    call MPI_Buffer_detach(place, n, ierror)
    call check(n == 8000, 'size of the buffer')
    n = rank
    call MPI_Sendrecv_replace(n, 1, MPI_INTEGER, next, 7, previous, 7, comm, s, ierror)
    call check(n == previous .and. SOURCE_OF(s) == previous, 'replaced')
    call MPI_Isendrecv(rank, 1, MPI_INTEGER, previous, 8, n, 1, MPI_INTEGER, next, 8, comm, sends(1), ierror)
    call MPI_Wait(sends(1), MPI_STATUS_IGNORE, ierror)
    call check(n == next, 'isendrecv')
    n = rank
    call MPI_Isendrecv_replace(n, 1, MPI_INTEGER, next, 9, previous, 9, comm, sends(1), ierror)
    call MPI_Wait(sends(1), MPI_STATUS_IGNORE, ierror)
    call check(n == previous, 'isendrecv_replace')
    call MPI_Irecv(n, 1, MPI_INTEGER, previous, 99, comm, sends(1), ierror)
    call MPI_Cancel(sends(1), ierror)
    call MPI_Wait(sends(1), s, ierror)
    call MPI_Test_cancelled(s, flag, ierror)
    call check(flag, 'cancelled')
  end subroutine

  subroutine probes(comm)
    COMM :: comm
    integer :: n, ierror
    real :: x(7)
    logical :: flag
    REQUEST :: r
    MESSAGE :: matched
    STATUS :: s
    x = rank
    call MPI_Isend(x, 5, MPI_REAL, next, 11, comm, r, ierror)
    call MPI_Probe(MPI_ANY_SOURCE, 11, comm, s, ierror)
    call MPI_Get_count(s, MPI_REAL, n, ierror)
    call check(n == 5 .and. SOURCE_OF(s) == previous, 'probe')
    call MPI_Get_count(s, MPI_DOUBLE_PRECISION, n, ierror)
    call check(n == MPI_UNDEFINED, 'not a whole number')
    flag = .false.
    do while (.not. flag)
      call MPI_Iprobe(previous, MPI_ANY_TAG, comm, flag, MPI_STATUS_IGNORE, ierror)
    end do
    flag = .false.
    do while (.not. flag)
      call MPI_Improbe(previous, 11, comm, flag, matched, s, ierror)
    end do
    call MPI_Wait(r, MPI_STATUS_IGNORE, ierror)
    call MPI_Imrecv(x, 7, MPI_REAL, matched, r, ierror)
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status(r, flag, s, ierror)
    end do
    call check(r /= MPI_REQUEST_NULL, 'a status leaves the request')
    call MPI_Test(r, flag, s, ierror)
    call MPI_Get_elements(s, MPI_REAL, n, ierror)
    call check(flag .and. n == 5 .and. all(x(1:5) == previous) .and. all(x(6:) == rank), 'matched receive')
    call check(r == MPI_REQUEST_NULL .and. matched == MPI_MESSAGE_NULL, 'null handles')
    call MPI_Mprobe(MPI_PROC_NULL, 0, comm, matched, s, ierror)
    call check(matched == MPI_MESSAGE_NO_PROC .and. SOURCE_OF(s) == MPI_PROC_NULL, 'no process')
    call MPI_Mrecv(x, 7, MPI_REAL, matched, s, ierror)
    call check(SOURCE_OF(s) == MPI_PROC_NULL, 'nothing from no process')
  end subroutine

  subroutine persistent(comm)
    COMM :: comm
    integer :: round, ierror, index
    integer DELAYED :: out(3), in(3)
    REQUEST :: r(4)
    logical :: flag
    call MPI_Send_init(out(1), 1, MPI_INTEGER, next, 21, comm, r(1), ierror)
    call MPI_Ssend_init(out(2), 1, MPI_INTEGER, next, 22, comm, r(2), ierror)
    call MPI_Recv_init(in(1), 1, MPI_INTEGER, previous, 21, comm, r(3), ierror)
    call MPI_Recv_init(in(2), 1, MPI_INTEGER, previous, 22, comm, r(4), ierror)
    do round = 1, 3
      out = [rank, -rank, 0] * round
      call MPI_Start(r(3), ierror)
      call MPI_Start(r(4), ierror)
      call MPI_Startall(2, r, ierror)
      call MPI_Waitall(4, r, MPI_STATUSES_IGNORE, ierror)
      if (.not. MPI_ASYNC_PROTECTS_NONBLOCKING) call MPI_F_sync_reg(in)
      call check(in(1) == previous * round .and. in(2) == -previous * round, 'persistent')
    end do
    call MPI_Waitany(4, r, index, MPI_STATUS_IGNORE, ierror)
    call check(index == MPI_UNDEFINED, 'inactive requests')
    call MPI_Testany(4, r, index, flag, MPI_STATUS_IGNORE, ierror)
    call check(flag .and. index == MPI_UNDEFINED, 'inactive requests are complete')
    do round = 1, 4
      call MPI_Request_free(r(round), ierror)
      call check(r(round) == MPI_REQUEST_NULL, 'freed')
    end do
  end subroutine

  subroutine partitions(comm)
    COMM :: comm
    integer DELAYED :: out(2, 3), in(2, 3)
    integer :: i, round, ierror
    logical :: flag
    REQUEST :: r(2)
    call MPI_Psend_init(out, 3, 2, MPI_INTEGER, next, 31, comm, MPI_INFO_NULL, r(1), ierror)
    call MPI_Precv_init(in, 3, 2, MPI_INTEGER, previous, 31, comm, MPI_INFO_NULL, r(2), ierror)
    do round = 1, 2
      in = -1
      call MPI_Startall(2, r, ierror)
      do i = 3, 1, -1
        out(:, i) = 100 * rank + 10 * round + i
        call MPI_Pready(i - 1, r(1), ierror)
      end do
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(r(2), 1, flag, ierror)
      end do
      call MPI_F_sync_reg(in)
      call check(all(in(:, 2) == 100 * previous + 10 * round + 2), 'a partition')
      call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierror)
      call MPI_F_sync_reg(in)
      call check(all(in(1, :) == [(100 * previous + 10 * round + i, i = 1, 3)]), 'all partitions')
    end do
    out = 7
    call MPI_Startall(2, r, ierror)
    call MPI_Pready_range(0, 1, r(1), ierror)
    call MPI_Pready_list(1, [2], r(1), ierror)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierror)
    call MPI_F_sync_reg(in)
    call check(all(in == 7), 'ranges and lists of partitions')
    call MPI_Request_free(r(1), ierror)
    call MPI_Request_free(r(2), ierror)
  end subroutine

  ! Relaxation on a strip of columns, whose edges travel while the inner columns are computed: equal to one rank alone.
  subroutine jacobi(comm)
    COMM :: comm
    integer, parameter :: n = 8
    double precision, allocatable :: a(:, :), b(:, :), whole(:, :), other(:, :)
    integer :: i, j, m, left, right, first, ierror
    REQUEST :: r(4)
    m = 3
    first = m * rank
    left = merge(MPI_PROC_NULL, rank - 1, rank == 0)
    right = merge(MPI_PROC_NULL, rank + 1, rank == ranks - 1)
    allocate (a(0:n + 1, 0:m + 1), b(n, m), whole(0:n + 1, 0:m * ranks + 1), other(n, m * ranks))
    do i = 0, m * ranks + 1
      whole(:, i) = [(sin(dble(i + 3 * i * j)), j = 0, n + 1)]
    end do
    a = whole(:, first:first + m + 1)
    do i = 1, 10
      call MPI_Irecv(a(1, 0), n, MPI_DOUBLE_PRECISION, left, 41, comm, r(1), ierror)
      call MPI_Irecv(a(1, m + 1), n, MPI_DOUBLE_PRECISION, right, 42, comm, r(2), ierror)
      call MPI_Isend(a(1, 1), n, MPI_DOUBLE_PRECISION, left, 42, comm, r(3), ierror)
      call MPI_Isend(a(1, m), n, MPI_DOUBLE_PRECISION, right, 41, comm, r(4), ierror)
      b(:, 2) = relaxed(a(:, 1:3))
      call MPI_Waitall(4, r, MPI_STATUSES_IGNORE, ierror)
      b(:, 1) = relaxed(a(:, 0:2))
      b(:, 3) = relaxed(a(:, 2:4))
      a(1:n, 1:m) = b
      call alone(whole, other, m * ranks)
    end do
    call check(all(a(1:n, 1:m) == whole(1:n, first + 1:first + m)), 'relaxation')
  contains
    function relaxed(three) result(column)
      double precision, intent(in) :: three(0:n + 1, 3)
      double precision :: column(n)
      column = 0.25d0 * (three(0:n - 1, 2) + three(2:n + 1, 2) + three(1:n, 1) + three(1:n, 3))
    end function
    subroutine alone(all_, new, columns)
      integer, intent(in) :: columns
      double precision, intent(inout) :: all_(0:n + 1, 0:columns + 1), new(n, columns)
      integer :: k
      do k = 1, columns
        new(:, k) = relaxed(all_(:, k - 1:k + 1))
      end do
      all_(1:n, 1:columns) = new
    end subroutine
  end subroutine
end module
