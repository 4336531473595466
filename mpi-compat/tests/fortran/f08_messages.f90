! Chapter 3 with mpi_f08: messages, statuses, requests, sections of arrays, absent ierror.
! ranks 2 3
program messages
  use mpi_f08
  implicit none
  integer :: rank, size, i, n, provided, wrong = 0
  type(MPI_Request) :: r(3)
  type(MPI_Status) :: s, ss(3)
  type(MPI_Message) :: message
  integer :: indices(3), old(MPI_STATUS_SIZE)
  integer(MPI_COUNT_KIND) :: large
  real(8) :: m(10, 10), x(10), cube(4, 5, 6), got(4, 5, 6)
  complex :: z(6), w(3)
  logical :: flag

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  do i = 1, 10
    m(:, i) = [(dble(10 * i + n), n = 0, 9)]
  end do
  cube = reshape([(dble(i), i = 1, 120)], [4, 5, 6])
  z = [(cmplx(i, -i), i = 1, 6)]
  if (rank == 0) then
    call MPI_Send(m(3, :), 10, MPI_DOUBLE_PRECISION, 1, 7, MPI_COMM_WORLD)
    call MPI_Isend(m(2:9:3, 1:10:2), 15, MPI_DOUBLE_PRECISION, 1, 8, MPI_COMM_WORLD, r(1))
    ! Fewer elements than the section has, which end within a column, and large counts.
    call MPI_Isend(cube(1:4:2, 2:4, :), int(2 * 3 * 2 + 3, MPI_COUNT_KIND), MPI_DOUBLE_PRECISION, 1, 9, MPI_COMM_WORLD, r(2))
    ! Two numbers of the datatype are one element of the array.
    call MPI_Isend(z(6:1:-2), 6, MPI_REAL, 1, 10, MPI_COMM_WORLD, r(3))
    call MPI_Waitall(3, r, MPI_STATUSES_IGNORE)
    call check(all(r == MPI_REQUEST_NULL), 'requests are null')
    call MPI_Send(i, 0, MPI_INTEGER, 1, 11, MPI_COMM_WORLD)
  else if (rank == 1) then
    call MPI_Recv(x, 10, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, s)
    call check(s%MPI_TAG == 7 .and. s%MPI_SOURCE == 0, 'status')
    call MPI_Get_count(s, MPI_DOUBLE_PRECISION, n)
    call MPI_Get_count(s, MPI_DOUBLE_PRECISION, large)
    call check(n == 10 .and. large == 10, 'count')
    call check(all(x == [(dble(10 * i + 2), i = 1, 10)]), 'a row')
    call MPI_Status_f082f(s, old)
    call check(old(MPI_TAG) == 7 .and. old(MPI_SOURCE) == 0, 'status as integers')
    m = -1
    got = -1
    call MPI_Irecv(m(1:5:2, 1:5), 15, MPI_DOUBLE_PRECISION, 0, 8, MPI_COMM_WORLD, r(1))
    call MPI_Irecv(got(1:4:2, 2:4, :), 36, MPI_DOUBLE_PRECISION, 0, 9, MPI_COMM_WORLD, r(2))
    call MPI_Irecv(w, 3, MPI_COMPLEX, 0, 10, MPI_COMM_WORLD, r(3))
    n = 0
    do while (n < 3)
      call MPI_Waitsome(3, r, i, indices, ss)
      call check(all(indices(1:i) >= 1) .and. all(indices(1:i) <= 3), 'indices count from one')
      n = n + i
    end do
    do i = 1, 5
      call check(all(m(1:5:2, i) == [(dble(10 * (2 * i - 1) + n), n = 1, 7, 3)]), 'a section to a section')
    end do
    call check(all(m(2:4:2, :) == -1) .and. all(m(:, 6:) == -1), 'nothing beside it')
    call check(all(got(1:4:2, 2:4, 1:2) == cube(1:4:2, 2:4, 1:2)), 'three dimensions')
    call check(all(got(1:4:2, 2, 3) == cube(1:4:2, 2, 3)) .and. got(1, 3, 3) == cube(1, 3, 3), 'the rest')
    call check(got(3, 3, 3) == -1 .and. all(got(2:4:2, :, :) == -1), 'no more than that')
    call check(all(w == z(6:1:-2)), 'complex numbers backwards')
    call MPI_Mprobe(0, 11, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE)
    call check(message /= MPI_MESSAGE_NULL, 'a matched message')
    call MPI_Mrecv(i, 0, MPI_INTEGER, message, s)
    call check(message == MPI_MESSAGE_NULL, 'its handle is null')
  end if
  ! Any index, from one; undefined without requests.
  call MPI_Irecv(i, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, r(2))
  r(1) = MPI_REQUEST_NULL
  r(3) = MPI_REQUEST_NULL
  call MPI_Waitany(3, r, n, s)
  call check(n == 2 .and. s%MPI_SOURCE == MPI_PROC_NULL, 'the second request')
  call MPI_Testany(3, r, n, flag, MPI_STATUS_IGNORE)
  call check(flag .and. n == MPI_UNDEFINED, 'no request')
  call MPI_Sendrecv(rank, 1, MPI_INTEGER, mod(rank + 1, size), 0, n, 1, MPI_INTEGER, mod(rank + size - 1, size), 0, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call check(n == mod(rank + size - 1, size), 'sendrecv')
  if (wrong == 0) print '(a, i0)', 'messages of rank ', rank
  call MPI_Finalize()
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end program
